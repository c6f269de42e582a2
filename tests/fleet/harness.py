"""A development fleet as an object: starts and ends one, kills its processes, and talks to its parts.

HOLDFAST_BIN names the built programs; deploy/dev/fleet does the work.
"""

import http.client
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.parse
import uuid

import anlyon
import psycopg
import psycopg.rows
import redis

from sandbox_client import SandboxClient

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLEET = ROOT / "deploy" / "dev" / "fleet"

# A test should not wait for what a person would: leases and time-outs of about a second.
TEST_SETTINGS = {
    "HOLDFAST_SEND_LEASE_MS": "1000",
    "HOLDFAST_PROVIDER_TIMEOUT_MS": "1000",
    "HOLDFAST_READ_TIMEOUT_MS": "1000",
    "HOLDFAST_READ_LEASE_MS": "3000",
    "HOLDFAST_CONNECT_TIMEOUT_MS": "500",
    "HOLDFAST_INVOKE_WAIT_MS": "3000",
    "HOLDFAST_READBACK_SCHEDULE": "1s,1s,2s",
    "HOLDFAST_CONFIRM_DELAY_MS": "500",
    "HOLDFAST_REPUBLISH_AFTER_MS": "1000",
    "HOLDFAST_SWEEP_INTERVAL_MS": "200",
    "HOLDFAST_TICK_MS": "50",
    "HOLDFAST_KAFKA_SESSION_TIMEOUT_MS": "3000",
    "HOLDFAST_DRAIN_MS": "5000",
    # Stand-ins of tests on ports of their own, and ports where nobody listens.
    "HOLDFAST_DEV_DESTINATIONS": "127.0.0.1",
}

SANITIZER_REPORT = re.compile(
    r"^.*(?:ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|runtime error:).*$", re.MULTILINE)


def wait_until(condition, timeout=15, every=0.05, what=None):
    """Calls the condition until it gives something true, which is returned; fails after the time-out."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {timeout} s: {what or condition} (last: {value!r})")
        time.sleep(every)


def unique(prefix):
    """A name that no other test has used."""
    return f"{prefix}_{uuid.uuid4().hex[:12]}"


def process_gone(pid):
    """True when nothing of the process is left but, at most, a zombie that nobody reaps."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
        tasks = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rsplit(")", 1)[1].split()[0] in "ZX" and len(tasks) <= 1


class Answer:
    """What came back over HTTP. `data` and `error` are the members of the envelope, or None."""

    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body
        try:
            self.json = json.loads(body) if body else None
        except ValueError:
            self.json = None
        envelope = self.json if isinstance(self.json, dict) else {}
        self.data = envelope.get("data")
        self.error = envelope.get("error")
        self.code = (self.error or {}).get("code")

    def __repr__(self):
        return f"<{self.status} {self.body[:500]!r}>"


class Api:
    """Plain HTTP with a key: one request on one connection, nothing re-sent."""

    def __init__(self, url, key=None, timeout=40):
        self.url = urllib.parse.urlsplit(url)
        self.key = key
        self.timeout = timeout

    def call(self, method, path, body=None, headers=None):
        """`body` is sent as JSON, or as it is when it is bytes."""
        sent = {"Content-Type": "application/json"} if body is not None else {}
        if self.key:
            sent["Authorization"] = f"Bearer {self.key}"
        sent.update(headers or {})
        content = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        connection = http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=self.timeout)
        try:
            connection.request(method, path, content, sent)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def get(self, path, **headers):
        return self.call("GET", path, None, headers)

    def post(self, path, body=None, headers=None):
        return self.call("POST", path, {} if body is None else body, headers)

    def put(self, path, body, headers=None):
        return self.call("PUT", path, body, headers)

    def patch(self, path, body, headers=None):
        return self.call("PATCH", path, body, headers)

    def delete(self, path, headers=None):
        return self.call("DELETE", path, None, headers)

    def invoke(self, action, value, key=None, wait=None, **members):
        """Invokes with an idempotency key, a new one unless given; more members go into the body."""
        headers = {"Idempotency-Key": key or unique("key")}
        if wait is not None:
            headers["Prefer"] = f"wait={wait}"
        body = {"input": value, **members}
        return self.call("POST", f"/api/v2/actions/{action}/invoke", body, headers)

    def effect(self, effect_id):
        return self.get(f"/api/v2/actions/effects/{effect_id}").data

    def invocation(self, invocation_id):
        return self.get(f"/api/v2/actions/invocations/{invocation_id}").data


class Fleet:
    """One fleet in a folder of its own under /tmp. Ended by `end`, whatever happened."""

    def __init__(self, name="fleet", broker="kafka", settings=None, **counts):
        self.name = name
        self.settings = {**TEST_SETTINGS, **(settings or {})}
        self.options = ["--broker", broker, "--port-base", "auto"]
        for part, count in counts.items():  # ingests=2, dispatchers=2, ...
            self.options += [f"--{part}", str(count)]
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix=f"holdfast-{name}-"))
        self.dir.chmod(0o755)  # Postgres runs as another user when we are root
        self.env = {}
        self.connection = None

    def command(self, *arguments, **settings):
        """Runs deploy/dev/fleet on this fleet and gives what it prints."""
        inherited = {k: v for k, v in os.environ.items()
                     if not k.startswith("HOLDFAST_") or k == "HOLDFAST_BIN"}
        done = subprocess.run([FLEET, *arguments, "--dir", self.dir], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=300,
                              env={**inherited, **self.settings, **settings})
        if done.returncode:
            raise RuntimeError(f"fleet {' '.join(map(str, arguments))} failed:\n{done.stderr}")
        return done.stdout

    def up(self, *options, **settings):
        """Starts what does not run. Settings given here are kept for later restarts too."""
        self.settings.update(settings)
        printed = self.command("up", *self.options, *options)
        self.env = dict(line.split("=", 1) for line in shlex.split(printed))
        return self

    def restart(self, *names, **settings):
        self.command("restart", *names, **settings)

    def down(self):
        if self.connection:
            self.connection.close()
            self.connection = None
        if (self.dir / "options").exists():
            self.command("down")

    # Processes

    def pid(self, name):
        return int((self.dir / "run" / f"{name}.pid").read_text())

    def kill(self, name, number=signal.SIGKILL):
        """Sends a signal; after one that ends the process, returns when it is gone."""
        pid = self.pid(name)
        os.kill(pid, number)
        if number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
            wait_until(lambda: process_gone(pid), 40, what=f"{name} to end")

    def pause(self, name):
        self.kill(name, signal.SIGSTOP)

    def resume(self, name):
        self.kill(name, signal.SIGCONT)

    def names(self, part):
        """As `ingest-1`, `ingest-2`."""
        return sorted(path.stem for path in (self.dir / "run").glob(f"{part}-*.pid"))

    def log(self, name):
        return (self.dir / "log" / f"{name}.log").read_text(errors="replace")

    # Ways in

    @property
    def url(self):
        return self.env["HOLDFAST_URL"]

    def key(self, who):
        """The key of `operator`, `agent` or `resolver`; any other text is a key itself."""
        return self.env.get(f"HOLDFAST_{who.upper()}_KEY", who)

    def api(self, who="agent", url=None):
        return Api(url or self.url, self.key(who))

    def client(self, who="agent", **options):
        """The public client, unmodified."""
        return anlyon.Client(api_key=self.key(who), base_url=self.url, **options)

    def admin(self, name):
        """Plain HTTP on the port for probes: `fleet.admin("ingest-1").get("/readyz")`."""
        urls = dict(pair.split("=", 1) for pair in self.env["FLEET_ADMIN_URLS"].split())
        return Api(urls[name])

    def metric(self, name, series):
        """The sum of a metric's samples whose names and labels begin so."""
        lines = self.admin(name).get("/metrics").body.decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(series))

    @property
    def sandbox(self):
        return SandboxClient(urllib.parse.urlsplit(self.env["SANDBOX_URL"]).port)

    def psql(self, sql, *parameters, admin=False):
        """Rows as dicts, as the fleet's own user or as the superuser; [] when there are none to give."""
        name = "FLEET_DATABASE_ADMIN_URL" if admin else "HOLDFAST_DATABASE_URL"
        with psycopg.connect(self.env[name], autocommit=True, connect_timeout=10,
                             row_factory=psycopg.rows.dict_row) as connection:
            cursor = connection.execute(sql, parameters or None)
            return cursor.fetchall() if cursor.description else []

    def redis(self):
        return redis.Redis.from_url(self.env["HOLDFAST_REDIS_URL"], decode_responses=True)

    # The end

    def sanitizer_reports(self):
        """What a sanitizer wrote into the logs: a report fails the test that made it."""
        reports = []
        for path in sorted((self.dir / "log").glob("*.log")):
            found = SANITIZER_REPORT.findall(path.read_text(errors="replace"))
            reports += [f"{path.name}: {line}" for line in found]
        return reports

    def end(self, keep=False):
        """Ends every process and deletes the folder; `keep` (or a report) saves its logs first."""
        try:
            self.down()
            reports = self.sanitizer_reports()
            if keep or reports:
                self.save_logs()
            if (self.dir / "options").exists():
                self.command("down", "--wipe")
        finally:
            shutil.rmtree(self.dir, ignore_errors=True)
        assert not reports, "\n".join(reports)

    def save_logs(self):
        kept = os.environ.get("FLEET_KEEP")
        if kept:
            shutil.copytree(self.dir / "log", pathlib.Path(kept) / self.dir.name, dirs_exist_ok=True)
