"""ingest by itself: what it refuses to read, who goes away, how it stops, and a COMMIT whose answer is lost."""

import collections
import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.parse

import pytest

from harness import Api, process_gone, unique, wait_until
from scene import Scene

INVOKE = "/api/v2/actions/{}/invoke"


@pytest.fixture(scope="module")
def scene(fleet):
    return Scene(fleet)


@pytest.fixture(scope="module")
def action(scene):
    """A plain write to the sandbox."""
    return scene.action(urlTemplate=scene.fleet.env["SANDBOX_URL"] + "/generic/ingest", method="POST",
                        bodyTemplate={"n": "{{input.n}}"})


def stored(fleet, key):
    (row,) = fleet.psql("select count(*) as n from effects where idempotency_key = %s", key)
    return row["n"]


def raw(scene, head, body=b"", path=None, method="POST"):
    """Sends bytes as they are on a connection of their own; gives status and the error's code."""
    url = urllib.parse.urlsplit(scene.fleet.url)
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {scene.agent.key}",
             "Connection: close", *head, "", ""]
    with socket.create_connection((url.hostname, url.port), timeout=20) as sent:
        sent.sendall("\r\n".join(lines).encode("latin-1") + body)
        answer = http.client.HTTPResponse(sent)
        answer.begin()
        text = answer.read()
    try:
        return answer.status, json.loads(text).get("error", {}).get("code")
    except ValueError:
        return answer.status, None


# ---- what is refused while it is read

@pytest.mark.parametrize("head, status", [
    (["Idempotency-Key: a", "Idempotency-Key: b"], 400),
    (["Idempotency-Key: a", "Authorization: Bearer other"], 400),
    (["Idempotency-Key: a\x01b"], 400),
    (["Idempotency-Key: a", "Transfer-Encoding: chunked"], 400),
    (["Idempotency-Key: a", "X-Long: " + "x" * 60000], 431),
], ids=["two keys", "two authorizations", "control", "two lengths", "long header"])
def test_a_head_that_two_could_read_differently_is_refused(scene, action, head, status):
    body = b'{"input":{"n":1}}'
    got, _ = raw(scene, [*head, f"Content-Length: {len(body)}"], body, INVOKE.format(action))
    assert got == status


@pytest.mark.parametrize("path, status", [
    ("/api/v2/actions/%2e%2e%2fx/invoke", 404),
    ("/api/v2/actions/x%00/invoke", 400),
    ("/api/v2/actions/x%0d%0aX: y/invoke", 400),
    ("/api/v2/actions/x%zz/invoke", 400),
    ("/api/v2/actions//invoke", 404),
    ("/" + "a/" * 40, 404),
])
def test_a_path_is_read_segment_by_segment(scene, path, status):
    head = [f"Idempotency-Key: {unique('key')}", "Content-Length: 12"]
    assert raw(scene, head, b'{"input":{}}', path.replace(" ", ""))[0] == status


def test_a_method_that_a_path_lacks_is_told_with_those_it_has(scene):
    answer = scene.agent.call("DELETE", "/api/v2/actions/invocations/inv_X")
    assert (answer.status, answer.headers["Allow"]) == (405, "GET")
    assert answer.headers["X-Request-Id"].startswith("req_")


def test_an_oversize_body_is_refused_and_leaves_nothing(scene, action):
    keys = [unique("key") for _ in range(3)]
    head = [f"Idempotency-Key: {keys[0]}", "Content-Length: 2000000"]
    assert raw(scene, head, b"x" * 2000000, INVOKE.format(action)) == (413, "PAYLOAD_TOO_LARGE")
    head = [f"Idempotency-Key: {keys[1]}", "Transfer-Encoding: chunked"]
    chunks = b"".join(b"80000\r\n" + b"x" * 0x80000 + b"\r\n" for _ in range(3)) + b"0\r\n\r\n"
    assert raw(scene, head, chunks, INVOKE.format(action)) == (413, "PAYLOAD_TOO_LARGE")
    head = [f"Idempotency-Key: {keys[2]}", "Content-Length: 90000000000"]  # refused unread
    assert raw(scene, head, b"", INVOKE.format(action)) == (413, "PAYLOAD_TOO_LARGE")
    assert [stored(scene.fleet, key) for key in keys] == [0, 0, 0]


# ---- who goes away

def test_a_caller_that_goes_away_changes_nothing(scene, action):
    key = unique("key")
    body = json.dumps({"input": {"n": 1}}).encode()
    url = urllib.parse.urlsplit(scene.fleet.url)
    rule = scene.sandbox.fault("delay_ms", {"path_prefix": "/generic/ingest"}, ms=500)
    with socket.create_connection((url.hostname, url.port)) as gone:
        gone.sendall((f"POST {INVOKE.format(action)} HTTP/1.1\r\nHost: x\r\n"
                      f"Authorization: Bearer {scene.agent.key}\r\nIdempotency-Key: {key}\r\n"
                      f"Content-Length: {len(body)}\r\n\r\n").encode() + body)
        wait_until(lambda: stored(scene.fleet, key) == 1, what="the call to be stored")
    answer = scene.agent.invoke(action, {"n": 1}, key=key)
    scene.end_rule(rule)
    assert answer.status == 200 and answer.data["status"] == "succeeded"
    assert answer.headers["X-Idempotent-Replay"] == "current-state"
    assert stored(scene.fleet, key) == 1


# ---- an ingest of its own, with a proxy before its database

class CommitProxy:
    """Stands before Postgres and can lose an accept's COMMIT on its way there, or its answer."""

    def __init__(self, host, port):
        self.target = (host, port)
        self.mode = "off"
        self.losses = 0
        self.open = set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.listen, daemon=True).start()

    def lose(self, what, times=1):
        """`what` is request or answer."""
        self.mode, self.losses = what, times

    def cut(self):
        """Ends every connection, and takes no new one until `off`."""
        self.mode = "cut"
        for one in list(self.open):
            shut(one)

    def off(self):
        self.mode = "off"

    def listen(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        if self.mode == "cut":
            client.close()
            return
        server = socket.create_connection(self.target)
        self.open.add(client)
        session = {"accepts": False, "losing": False}
        threading.Thread(target=self.pump, args=(client, server, self.to_server, session),
                         daemon=True).start()
        self.pump(server, client, self.to_client, session)
        self.open.discard(client)

    def to_server(self, data, session):
        session["accepts"] = session["accepts"] or b"accept_batch" in data
        if not session["accepts"] or b"COMMIT\0" not in data or self.losses <= 0:
            return True
        if self.mode not in ("request", "answer"):
            return True
        self.losses -= 1
        session["losing"] = self.mode == "answer"
        return self.mode == "answer"

    @staticmethod
    def to_client(data, session):
        return not (session["losing"] and b"COMMIT\0" in data)

    @staticmethod
    def pump(source, sink, passes, session):
        try:
            while (data := source.recv(65536)) and passes(data, session):
                sink.sendall(data)
        except OSError:
            pass
        shut(source)
        shut(sink)


def shut(one):
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


class Ingest:
    """One more ingest on a fleet's servers, its database reached through a proxy."""

    def __init__(self, fleet, folder, **settings):
        url = urllib.parse.urlsplit(fleet.env["HOLDFAST_DATABASE_URL"])
        self.proxy = CommitProxy(url.hostname, url.port)
        netloc = url.netloc.replace(f":{url.port}", f":{self.proxy.port}")
        self.log_path = folder / "ingest.log"
        self.env = {
            **{name: value for name, value in fleet.env.items()
               if name in ("HOLDFAST_REDIS_URL", "HOLDFAST_KAFKA_BROKERS")},
            "PATH": os.environ["PATH"], "HOLDFAST_DATABASE_URL": url._replace(netloc=netloc).geturl(),
            "HOLDFAST_NAME": "ingest-9", "HOLDFAST_HTTP_LISTEN": "127.0.0.1:0",
            "HOLDFAST_ADMIN_LISTEN": "127.0.0.1:0", "HOLDFAST_INVOKE_WAIT_MS": "3000",
            "HOLDFAST_MASTER_KEY_FILE": str(fleet.dir / "master.key"),
            "HOLDFAST_RESTORE_GUARD": "off", **fleet.settings,
            "HOLDFAST_DEV_DESTINATIONS": urllib.parse.urlsplit(fleet.env["SANDBOX_URL"]).netloc,
            **settings}
        self.program = pathlib.Path(fleet.env["FLEET_BIN"]) / "holdfast-ingest"
        self.start()

    def start(self):
        self.log_path.write_bytes(b"")
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen([self.program], env=self.env, stderr=log)
        self.url = f"http://127.0.0.1:{self.logged('port')}"
        self.admin_url = f"http://127.0.0.1:{self.logged('admin_port')}"
        wait_until(lambda: Api(self.admin_url).get("/readyz").status == 200, what="ingest")

    def logged(self, name):
        found = wait_until(lambda: re.search(rf'"{name}":(\d+)', self.log_path.read_text()),
                           what=f"{name} in the log")
        return found.group(1)

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.process.wait(40)
        assert process_gone(self.process.pid)
        return self.process.returncode


@pytest.fixture
def ingest(fleet, tmp_path):
    started = Ingest(fleet, tmp_path)
    yield started
    if started.process.poll() is None:
        started.proxy.off()
        started.end()


def test_a_lost_commit_answer_makes_neither_two_nor_none(fleet, scene, action, ingest):
    api = Api(ingest.url, scene.agent.key)
    api.invoke(action, {"n": 0}, wait=0)  # the connection is there
    for what, times in (("answer", 1), ("request", 1), ("answer", 3), ("request", 3)):
        key = unique("key")
        ingest.proxy.lose(what, times)
        answer = api.invoke(action, {"n": 1}, key=key)
        assert answer.status in (200, 202) and "X-Idempotent-Replay" not in answer.headers, (what, answer)
        assert stored(fleet, key) == 1


def test_while_the_database_is_away_callers_are_asked_to_send_again(fleet, scene, action, ingest):
    api, key = Api(ingest.url, scene.agent.key), unique("key")
    api.invoke(action, {"n": 0}, wait=0)
    ingest.proxy.cut()
    answer = api.invoke(action, {"n": 1}, key=key)
    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
    wait_until(lambda: Api(ingest.admin_url).get("/readyz").status == 503, what="not ready")
    assert b"database" in Api(ingest.admin_url).get("/readyz").body
    assert Api(ingest.admin_url).get("/livez").status == 200
    ingest.proxy.off()
    answer = wait_until(lambda: (a := api.invoke(action, {"n": 1}, key=key)).status == 200 and a)
    assert answer.data["status"] == "succeeded" and stored(fleet, key) == 1


def test_a_bad_line_to_the_database_loses_and_doubles_nothing(fleet, scene, action, ingest):
    api = Api(ingest.url, scene.agent.key)
    keys = [unique("key") for _ in range(200)]
    stop = threading.Event()

    def disturb():
        while not stop.is_set():
            for act in (lambda: ingest.proxy.lose("answer", 2), ingest.proxy.off,
                        lambda: ingest.proxy.lose("request", 2), ingest.proxy.off,
                        ingest.proxy.cut, ingest.proxy.off):
                act()
                time.sleep(0.1)

    def insist(key):
        return wait_until(lambda: (a := api.invoke(action, {"n": 2}, key=key)).status in (200, 202) and a,
                          60, 0.1)

    disturbance = threading.Thread(target=disturb)
    disturbance.start()
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(insist, keys))
    stop.set()
    disturbance.join()
    assert len({answer.data["id"] for answer in answers}) == len(keys)
    assert collections.Counter(stored(fleet, key) for key in keys) == {1: len(keys)}


def test_a_stop_answers_those_who_wait(fleet, scene, action, ingest):
    keys = [unique("key") for _ in range(20)]
    api = Api(ingest.url, scene.agent.key)
    fleet.pause("dispatcher-1")
    try:
        with concurrent.futures.ThreadPoolExecutor(len(keys)) as pool:
            calls = [pool.submit(api.invoke, action, {"n": 3}, key) for key in keys]
            wait_until(lambda: sum(stored(fleet, key) for key in keys) == len(keys), what="all stored")
            assert ingest.end() == 0
            answers = [call.result() for call in calls]
    finally:
        fleet.resume("dispatcher-1")
    assert {(a.status, a.data["status"]) for a in answers} == {(202, "running")}
    for key, first in zip(keys, answers):
        again = wait_until(lambda: (a := scene.agent.invoke(action, {"n": 3}, key=key)).status == 200 and a)
        assert again.data["id"] == first.data["id"]


def test_killed_in_a_burst_the_same_keys_make_one_each(fleet, scene, action, ingest):
    keys = [unique("key") for _ in range(200)]
    done = threading.Event()

    def kill_and_start():
        for _ in range(3):
            time.sleep(0.3)
            ingest.end(signal.SIGKILL)
            ingest.start()
        done.set()

    def insist(key):
        def answered():
            try:
                answer = Api(ingest.url, scene.agent.key).invoke(action, {"n": 4}, key=key)
                return answer.status in (200, 202)
            except (OSError, http.client.HTTPException):
                return False
        return wait_until(answered, 60, 0.1)

    killer = threading.Thread(target=kill_and_start)
    killer.start()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(insist, keys))
    killer.join()
    assert done.is_set()
    assert collections.Counter(stored(fleet, key) for key in keys) == {1: len(keys)}


def test_a_pattern_that_takes_too_long_is_a_plain_refusal(scene):
    """A value on which an expression backtracks without end is the caller's to change, and is told at once."""
    slow = scene.action(urlTemplate=scene.fleet.env["SANDBOX_URL"] + "/generic/ingest",
                        inputSchema={"type": "object", "properties": {"a": {"pattern": "^(a+)+$"}}})
    key = unique("key")
    began = time.monotonic()
    answer = scene.agent.invoke(slow, {"a": "a" * 60 + "!"}, key)
    assert time.monotonic() - began < 5
    assert (answer.status, answer.code) == (400, "VALIDATION_ERROR")
    assert answer.error["details"]["place"].startswith("/input")
    assert stored(scene.fleet, key) == 0
