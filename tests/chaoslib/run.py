"""One run: the fleet, the agents, the faults, the settling, the comparison, the table."""

import base64
import collections
import concurrent.futures
import http.client
import json
import os
import pathlib
import random
import signal
import threading
import time
import urllib.parse

import ledgers
from agents import Agents
from harness import Fleet, wait_until
from link import Link
from protocol import EXPECTED_LIMITS
from schedule import LINKED, SERVICES, schedule_make
from scene import Scene, effect_url

SETTLE_S = 120  # what the provider can tell has to be settled by then
AMOUNT_MAX = 2 ** 53 - 1

# How the provider misbehaves, a rule for a few requests. What only a person can settle is with the agents: they know
# which operation it was done to. An early 200 says nothing here: "succeeded" from a provider that has nothing would be
# believed, whatever we did.
MISCHIEF = [
    ("write", "drop", {}), ("write", "reset", {}), ("write", "hang", {"ms": 1500}), ("write", "delay_ms", {"ms": 700}),
    ("write", "garbage", {}), ("write", "truncate_head", {}), ("write", "truncate_body", {}), ("write", "truncate_chunk", {}),
    ("write", "status", {"status": 500}), ("write", "status", {"status": 503, "apply": True}), ("write", "status", {"status": 408}),
    ("write", "status", {"status": 409}), ("write", "status", {"status": 302, "headers": {"Location": "/v1/refunds"}}),
    ("write", "status", {"status": 402}), ("write", "html", {"status": 200, "apply": True}), ("write", "stale_keepalive", {}),
    ("write", "stale_keepalive", {"mode": "unread"}), ("write", "drip", {"ms": 5}), ("write", "status", {"status": 429}),
    ("write", "status", {"status": 103}), ("write", "stale_keepalive", {"mode": "idle", "ms": 50}), ("write", "reset_early", {}),
    ("write", "early_200", {"body": "busy"}), ("write", "truncate_chunk", {"mode": "no_last"}), ("write", "lag", {"reads": 2}),
    ("write", "raw", {"body_base64": base64.b64encode(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{").decode()}),
    ("write", "body_raw", {"body_base64": base64.b64encode(b'{"id": "re_').decode()}),
    ("read", "status", {"status": 503}), ("read", "status", {"status": 429, "headers": {"Retry-After": "1"}}),
    ("read", "empty_list", {}), ("read", "hang", {"ms": 1500}), ("read", "html", {}), ("read", "garbage", {})]


def show(options):
    for event in schedule_make(options.seed, options.minutes):
        print(event)
    return 0


class Chaos:
    def __init__(self, options):
        self.options = options
        self.counts = collections.Counter()
        self.chance = random.Random(f"mischief {options.seed}")
        self.locks = {name: threading.Lock() for name in [*SERVICES, *LINKED]}
        self.stopping = threading.Event()
        self.problems = []

    # ---- the fleet

    def up(self):
        counts = {"ingests": 2, "dispatchers": 3, "reconcilers": 2, "schedulers": 2}
        self.fleet = Fleet("chaos", settings={"HOLDFAST_READBACK_SCHEDULE": "1s,1s,2s,2s,4s"}, **counts).up()
        self.scene = Scene(self.fleet)
        self.link = Link(self.fleet.sandbox.port)
        self.links = {"provider": self.link, **self.server_links()}
        self.action = self.scene.refund_action(base=f"http://127.0.0.1:{self.link.port}")
        self.limit = self.scene.limit(self.action, amount=AMOUNT_MAX, period="total")
        urls = self.fleet.env.get("FLEET_INGEST_URLS", self.fleet.url).split()
        self.agents = Agents([url.split("=", 1)[-1] for url in urls], self.scene.agent.key, self.action,
                             self.options.seed, self.options.agents, None if self.options.calm else self.fleet.sandbox)

    def server_links(self):
        """Puts a link between every service and Postgres, and Redis. The comparison goes around them."""
        lines, links = [], {}
        for server, name in (("postgres", "HOLDFAST_DATABASE_URL"), ("redis", "HOLDFAST_REDIS_URL")):
            port = urllib.parse.urlsplit(self.fleet.env[name]).port
            links[server] = Link(port)
            lines.append(f"{name}={self.fleet.env[name].replace(f':{port}', f':{links[server].port}')}\n")
        (self.fleet.dir / "override").mkdir()
        for service in SERVICES:
            (self.fleet.dir / "override" / service).write_text("".join(lines))
        self.fleet.restart(*SERVICES)
        return links

    # ---- faults

    def admin(self, sql, *parameters):
        return self.fleet.psql(sql, *parameters, admin=True)

    def restart(self, name):
        for _ in range(5):
            try:
                return self.fleet.restart(name, "--no-wait")
            except Exception as error:
                self.problems.append(f"restart {name}: {str(error)[-300:]}")
                time.sleep(1)

    def fault(self, event):
        """One event, from its beginning to its end. Those of one service wait for each other."""
        act = getattr(self, f"fault_{event.kind}")
        try:
            if event.target in self.locks:
                with self.locks[event.target]:
                    act(event)
            else:
                act(event)
            self.counts[event.kind] += 1
        except Exception as error:
            self.problems.append(f"{event}: {str(error)[-300:]}")

    def fault_kill(self, event):
        self.fleet.kill(event.target)
        time.sleep(event.lasts)
        self.restart(event.target)

    def fault_pause(self, event):
        pid = self.fleet.pid(event.target)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(event.lasts)
        os.kill(pid, signal.SIGCONT)

    def fault_link(self, event):
        name, mode = event.target.split(":")
        with self.locks[name]:
            self.links[name].set(mode)
            time.sleep(event.lasts)
            self.links[name].set("pass")

    def fault_cut_database(self, event):
        self.admin("select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'holdfast%%'"
                   " or application_name ~ '^(ingest|dispatcher|reconciler|scheduler)-' order by random() limit 5")

    def fault_cut_redis(self, event):
        self.fleet.redis().execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def fault_flush_redis(self, event):
        self.fleet.redis().flushall()

    def fault_halt(self, event):
        halted = self.scene.operator.post("/api/v2/environment/halt", {"reason": "chaos"})
        time.sleep(event.lasts)
        wait_until(lambda: self.resumed(), 30, what=f"resume after {halted}")

    def resumed(self):
        try:
            return self.scene.operator.post("/api/v2/environment/resume").status == 200
        except OSError:
            return False

    def fault_pause_kafka(self, event):
        pid = self.fleet.pid("kafka")
        os.kill(pid, signal.SIGSTOP)
        time.sleep(event.lasts)
        os.kill(pid, signal.SIGCONT)

    def fault_restart_redis(self, event):
        self.restart("redis")

    def fault_restart_kafka(self, event):
        self.restart("kafka")

    def fault_restart_database(self, event):
        os.kill(self.fleet.pid("postgres"), signal.SIGQUIT if self.chance.random() < 0.5 else signal.SIGINT)
        time.sleep(event.lasts)
        self.restart("postgres")

    def mischief(self):
        turn = 0
        while not self.stopping.wait(0.15):
            turn += 1
            if turn % 100 == 0:  # what nothing met makes room
                self.fleet.sandbox.control("DELETE", "/faults")
            kind, do, members = self.chance.choice(MISCHIEF)
            try:
                self.fleet.sandbox.fault(do, {"kind": kind}, times=self.chance.randint(1, 3), **members)
                self.counts["provider"] += 1
            except Exception as error:
                self.problems.append(f"mischief {do}: {error}")

    def disturb(self):
        """The schedule; what lasts long goes on beside what comes next."""
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            for event in schedule_make(self.options.seed, self.options.minutes):
                time.sleep(max(0, began + event.at - time.monotonic()))
                pool.submit(self.fault, event)
        time.sleep(max(0, began + self.options.minutes * 60 - time.monotonic()))

    # ---- the end

    def calm(self):
        self.stopping.set()
        for link in self.links.values():
            link.set("pass")
        self.fleet.sandbox.control("DELETE", "/faults")
        self.fleet.up()
        self.resumed()

    def open_effects(self):
        return self.admin("select prefixed('eff', id) as id, stage::text, outcome::text from open_effects")

    def odd_effects(self):
        return {row["id"] for row in self.admin("select prefixed('eff', id) as id from effects where operation_key = any(%s)",
                                                list(self.agents.odd))}

    def settle(self):
        """Waits for what settles by itself: everything that the provider has, and everything that was not sent. Then
        a person says of the rest what the provider shows. Returns the seconds that the first took."""
        began = time.monotonic()

        odd = self.odd_effects()

        def open_ones():
            rows = self.open_effects()
            self.left = [row["id"] for row in rows]
            if any(row["outcome"] != "unknown" and row["id"] not in odd for row in rows):
                return False
            return all(id in odd or self.counted(id).applied == 0 for id in self.left)

        try:
            wait_until(open_ones, SETTLE_S, every=1, what="what the provider can tell")
        except Exception:
            self.problems.append(f"not settled after {SETTLE_S} s: {self.open_effects()[:5]}")
        took = time.monotonic() - began
        self.unknown_left = len(self.left)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(self.resolve, self.left))
        return took

    def resolve(self, id):
        outcome = "succeeded" if self.counted(id).applied else "failed"

        def resolved():
            """A refusal is none when a read-back was faster."""
            answer = self.scene.resolver.post(effect_url(id, "resolve"), {
                "outcome": outcome, "reason": "as the provider shows"})
            return answer.status == 200 or self.scene.effect(id)["stage"] == "settled"

        try:
            wait_until(resolved, 20, every=0.5, what=f"resolve {id}")
        except Exception as error:  # the comparison names it
            self.problems.append(str(error)[-300:])

    def counted(self, id):
        found = self.fleet.sandbox.counts(effect=id)
        return ledgers.Counted(found["writes"], found["applied"])

    def all_counted(self, ids):
        """Of every effect, over one connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.fleet.sandbox.port, timeout=30)
        counted = {}
        for id in ids:
            connection.request("GET", f"/_control/counts?effect={id}")
            found = json.loads(connection.getresponse().read())
            counted[id] = ledgers.Counted(found["writes"], found["applied"])
        connection.close()
        return counted

    def compare(self):
        rows = self.admin("select prefixed('eff', e.id) as id, coalesce(s.outcome::text, 'open') as outcome,"
                          " coalesce(s.reason = 'manual', false) as by_person, c.effect_id is not null as conflict from effects e"
                          " left join settlements s on s.effect_id = e.id left join conflicts c on c.effect_id = e.id")
        odd = self.odd_effects()
        effects = {row["id"]: ledgers.Effect(**row, odd=row["id"] in odd) for row in rows}
        (environment,) = self.admin("select id from environments where name = %s", self.scene.environment)
        limits = [ledgers.Limit(r["reserved"], r["unknown_exposure"], r["consumed"], r["held"], r["exposed"], r["spent"])
                  for r in self.admin(EXPECTED_LIMITS, environment["id"])]
        named = {effect for told in self.agents.operations.values() for effect in told}
        counted = self.all_counted(set(effects) | named)
        totals = self.fleet.sandbox.control("GET", "/counts")["totals"]
        broken = list(ledgers.broken_promises([(t.effect, t.status) for t in self.agents.told], self.agents.operations,
                                              effects, counted, limits))
        if totals["effectsWrittenAgain"]:
            broken.append(("second write", f"the provider counted {totals['effectsWrittenAgain']}"))
        return effects, broken

    def table(self, took, effects, broken):
        outcomes = collections.Counter(effect.outcome for effect in effects.values())
        kinds = collections.Counter(kind for kind, _ in broken)
        cuts = sum(self.counts[k] for k in ("link", "cut_database", "cut_redis", "pause_kafka"))
        restarts = sum(self.counts[k] for k in ("restart_database", "restart_redis", "restart_kafka"))
        print(f"| seed {self.options.seed}, {self.options.minutes:g} min | |\n|---|---|")
        for name, value in (
                ("effects", len(effects)), ("requests of agents", self.agents.requests),
                ("of these without an answer that names an effect", self.agents.errors),
                ("processes killed with SIGKILL and started again", self.counts["kill"]),
                ("processes stopped and continued", self.counts["pause"]),
                ("links cut, swallowed, delayed or paused", cuts), ("restarts of Postgres, Redis, Kafka", restarts),
                ("Redis flushed", self.counts["flush_redis"]), ("halts", self.counts["halt"]),
                ("writes that the provider doubled or garbled", sum(effect.odd for effect in effects.values())),
                ("rules of misbehaviour given to the provider", self.counts["provider"]),
                ("succeeded", outcomes["succeeded"]), ("failed", outcomes["failed"]), ("not sent", outcomes["not_dispatched"]),
                ("unknown that a person had to settle", self.unknown_left), ("seconds until the rest had settled", f"{took:.0f}"),
                ("second writes", kinds["second write"]), ("lost", kinds["lost"]),
                ("holds wrong", kinds["hold"]), ("stuck", kinds["stuck"]),
                ("false or taken back", kinds["false success"] + kinds["false failure"] + kinds["taken back"]),
                ("other violations", kinds["conflict"] + kinds["operation"] + kinds["unknown write"])):
            print(f"| {name} | {value} |")

    def run(self):
        self.up()
        self.agents.start()
        if self.options.calm:
            time.sleep(self.options.minutes * 60)
        else:
            trouble = threading.Thread(target=self.mischief, daemon=True)
            trouble.start()
            self.disturb()
        self.calm()
        self.agents.stop()
        took = self.settle()
        effects, broken = self.compare()
        self.table(took, effects, broken)
        for problem in self.problems[:20]:
            print(f"note: {problem}")
        for kind, what in broken[:50]:
            print(f"BROKEN {kind}: {what}")
        late = took >= SETTLE_S
        return 1 if broken or late else 0


def run(options):
    chaos = Chaos(options)
    status = 2
    try:
        status = chaos.run()
    finally:
        for link in getattr(chaos, "links", {}).values():
            link.end()
        if options.keep and status != 0 and hasattr(chaos, "fleet"):
            import shutil
            shutil.copytree(chaos.fleet.dir / "log", pathlib.Path(options.keep), dirs_exist_ok=True)
        if hasattr(chaos, "fleet"):
            chaos.fleet.end()
    return status
