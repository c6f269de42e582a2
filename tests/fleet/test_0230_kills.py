"""SIGKILL at every step of one invocation, and at random during many: what was accepted is dispatched at
most once, and nothing is forgotten."""

import concurrent.futures
import random
import threading
import time

import psycopg
import pytest

from harness import unique, wait_until
from protocol import EXPECTED_LIMITS
from scene import Scene, kinds

SERVICES = ["ingest-1", "dispatcher-1", "reconciler-1", "scheduler-1"]


@pytest.fixture(scope="module")
def scene(fleet):
    return Scene(fleet)


@pytest.fixture(autouse=True)
def everybody_lives(fleet):
    """Whatever a test left dead is started again."""
    yield
    fleet.up()


def spending_action(scene, verify=True):
    """A declared action whose read-back finds the write by the effect's id."""
    base = f"{scene.fleet.env['SANDBOX_URL']}/generic/{unique('kills')}"
    found = {"url": base + "?effect={{effect.id}}", "status": 200,
             "match": [{"path": "data.*.effect", "equals": "{{effect.id}}"}]}
    return scene.action(
        urlTemplate=base, bodyTemplate={"effect": "{{effect.id}}", "tag": "{{input.tag}}"},
        headers={"X-Holdfast-Effect": "{{effect.id}}"}, **({"verify": found} if verify else {}),
        impact={"dimension": "money", "unit": "usd", "amount": "100", "bound": "exact"})


class Story:
    """One effect that is accepted and then watched; nobody waits for it."""

    def __init__(self, scene, **fault):
        self.scene = scene
        self.action = spending_action(scene)
        self.limit = scene.limit(self.action, amount=1000)
        self.tag = unique("tag")
        if fault:
            scene.sandbox.fault(fault.pop("do"), {"kind": fault.pop("kind", "write"), "path_prefix": self.path},
                                times=fault.pop("times", 1), **fault)

    @property
    def path(self):
        url = self.scene.operator.get(f"/api/v2/actions/{self.action}").data["urlTemplate"]
        return "/generic/" + url.rsplit("/", 1)[1]

    def begin(self):
        answer = self.scene.agent.invoke(self.action, {"tag": self.tag}, wait=0)
        assert answer.status in (200, 202), answer
        self.id = answer.data["effectId"]
        return self

    @property
    def counts(self):
        return self.scene.sandbox.counts(effect=self.id)

    @property
    def reads(self):
        return [r for r in self.scene.sandbox.requests() if not r["write"] and self.id in r["target"]]

    def effect(self):
        return self.scene.effect(self.id)

    def stage(self):
        (row,) = self.scene.fleet.psql("select stage::text from effect_states where id = %s", self.uuid)
        return row["stage"]

    @property
    def uuid(self):
        (row,) = self.scene.fleet.psql("select id from effects where prefixed('eff', id) = %s", self.id)
        return row["id"]

    def written(self):
        wait_until(lambda: self.counts["writes"] == 1, what="the write")

    def ends(self, grade, writes, usage, timeout=20):
        effect = self.scene.effect_when(self.id, lambda e: e["grade"] == grade, timeout)
        assert self.counts["writes"] == writes
        assert self.scene.usage(self.limit) == usage
        return effect


class RowLock:
    """Holds the open row of an effect (or a whole table), so that whoever wants it waits."""

    def __init__(self, fleet, sql, *parameters):
        self.fleet = fleet
        self.connection = psycopg.connect(fleet.env["FLEET_DATABASE_ADMIN_URL"])
        self.connection.execute(sql, parameters or None)

    def awaited(self):
        wait_until(lambda: self.fleet.psql("select 1 from pg_locks where not granted"), what="somebody who waits")

    def release(self):
        self.connection.close()


# ---------------------------------------------------------------- the dispatcher


def test_dispatcher_killed_before_its_claim(fleet, scene):
    fleet.pause("dispatcher-1")
    story = Story(scene).begin()
    assert story.stage() == "ready"
    fleet.kill("dispatcher-1")
    fleet.restart("dispatcher-1")
    story.ends("confirmed", 1, (100, 0, 0))


@pytest.mark.parametrize("journal", ["kept", "lost"])
def test_dispatcher_killed_during_its_claim(fleet, scene, journal):
    """The claim was sent with its COMMIT: the server finishes it for somebody who is gone."""
    story = Story(scene)
    lock = RowLock(fleet, "select 1 from limits where prefixed('lim', id) = %s for update", story.limit)
    story.begin()
    lock.awaited()
    fleet.kill("dispatcher-1")
    lock.release()
    if journal == "kept":
        fleet.restart("dispatcher-1")
        effect = story.ends("failed", 0, (0, 0, 0))
        assert "never left" in effect["error"]
        return
    for file in (fleet.dir / "journal").glob("dispatcher-1.*"):
        file.unlink()
    fleet.restart("dispatcher-1")
    scene.effect_when(story.id, lambda e: e["outcome"] == "unknown")
    # Nothing found proves nothing; a person may say so.
    scene.effect_when(story.id, lambda e: kinds(e).count("reconcile") >= 2)
    assert (story.counts["writes"], scene.usage(story.limit)) == (0, (0, 100, 100))
    assert scene.resolve(story.id, "failed").status == 200
    story.ends("failed", 0, (0, 0, 0))


def test_dispatcher_killed_while_the_provider_hangs(fleet, scene):
    story = Story(scene, do="hang").begin()
    story.written()
    assert story.stage() == "dispatching"
    fleet.kill("dispatcher-1")
    fleet.restart("dispatcher-1")
    effect = story.ends("confirmed", 1, (100, 0, 0))
    assert kinds(effect)[:2] == ["dispatch", "reconcile"]


def test_dispatcher_killed_while_the_provider_hangs_having_applied_nothing(fleet, scene):
    story = Story(scene, do="hang", apply=False).begin()
    story.written()
    fleet.kill("dispatcher-1")
    fleet.restart("dispatcher-1")
    effect = scene.effect_when(story.id, lambda e: kinds(e).count("reconcile") >= 3)
    assert (effect["outcome"], effect["grade"]) == ("unknown", "unknown")
    story.ends("unknown", 1, (0, 100, 100))


def test_dispatcher_killed_after_the_answer_before_its_settlement(fleet, scene):
    story = Story(scene, do="delay_ms", ms=300).begin()
    story.written()
    lock = RowLock(fleet, "select 1 from open_effects where id = %s for update", story.uuid)
    lock.awaited()
    fleet.kill("dispatcher-1")
    lock.release()
    fleet.restart("dispatcher-1")
    story.ends("confirmed", 1, (100, 0, 0))


def test_dispatcher_paused_past_its_lease(fleet, scene):
    """It sleeps with the claim in hand; when it wakes its gate is shut."""
    story = Story(scene)
    lock = RowLock(fleet, "select 1 from limits where prefixed('lim', id) = %s for update", story.limit)
    story.begin()
    lock.awaited()
    fleet.pause("dispatcher-1")
    lock.release()
    wait_until(lambda: story.stage() == "reconciling", what="the sweep")
    fleet.resume("dispatcher-1")
    effect = scene.settled(story.id)
    assert (effect["outcome"], story.counts["writes"]) == ("failed", 0)
    assert scene.usage(story.limit) == (0, 0, 0)
    assert "never left" in scene.agent.invocation(effect["invocationId"])["error"]


def test_dispatcher_paused_while_the_provider_answers(fleet, scene):
    """The sweep has made it unknown when the sleeper wakes with the answer: a late answer settles."""
    story = Story(scene, do="delay_ms", ms=200)
    rule = scene.sandbox.fault("status", {"kind": "read", "path_prefix": story.path}, status=503, times=-1)
    story.begin().written()
    fleet.pause("dispatcher-1")
    wait_until(lambda: story.stage() == "reconciling", what="the sweep")
    assert scene.usage(story.limit) == (0, 100, 100)
    fleet.resume("dispatcher-1")
    scene.settled(story.id)
    story.ends("acknowledged", 1, (100, 0, 0))
    scene.end_rule(rule)


# ---------------------------------------------------------------- the others


def test_reconciler_killed_in_the_middle_of_a_read(fleet, scene):
    story = Story(scene, do="drop")
    scene.sandbox.fault("hang", {"kind": "read", "path_prefix": story.path})
    story.begin()
    wait_until(lambda: story.reads, what="the read")
    fleet.kill("reconciler-1")
    fleet.restart("reconciler-1")
    story.ends("confirmed", 1, (100, 0, 0))


def test_reconciler_killed_before_its_settlement(fleet, scene):
    story = Story(scene, do="drop")
    scene.sandbox.fault("delay_ms", {"kind": "read", "path_prefix": story.path}, ms=300)
    story.begin()
    wait_until(lambda: story.reads, what="the read")
    lock = RowLock(fleet, "select 1 from open_effects where id = %s for update", story.uuid)
    lock.awaited()
    fleet.kill("reconciler-1")
    lock.release()
    fleet.restart("reconciler-1")
    story.ends("confirmed", 1, (100, 0, 0))


def test_scheduler_dead_while_its_work_is_due(fleet, scene):
    """Nobody sweeps, nobody publishes reads, until there is one again; the dispatcher is gone for good."""
    story = Story(scene, do="hang").begin()
    story.written()
    fleet.kill("scheduler-1")
    fleet.kill("dispatcher-1")
    wait_until(lambda: fleet.psql("select 1 from open_effects where id = %s and answer_by < now()", story.uuid))
    assert story.stage() == "dispatching"
    fleet.restart("scheduler-1")
    story.ends("confirmed", 1, (100, 0, 0))
    fleet.restart("dispatcher-1")
    story.ends("confirmed", 1, (100, 0, 0))


def test_ingest_killed_with_what_it_had_accepted(fleet, scene):
    fleet.pause("dispatcher-1")
    stories = [Story(scene) for _ in range(5)]
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        waiting = [pool.submit(scene.agent.invoke, s.action, {"tag": s.tag}, s.tag) for s in stories]
        wait_until(lambda: len(fleet.psql("select 1 from effects where idempotency_key = any (%s)",
                                          [s.tag for s in stories])) == 5)
        fleet.kill("ingest-1")
        assert all(isinstance(w.exception(), OSError) for w in waiting)
    fleet.restart("ingest-1")
    fleet.resume("dispatcher-1")
    for story in stories:
        answer = scene.agent.invoke(story.action, {"tag": story.tag}, story.tag)
        assert (answer.status, answer.data["status"]) == (200, "succeeded")
        story.id = answer.data["effectId"]
        story.ends("confirmed", 1, (100, 0, 0))


def test_everybody_killed_at_once(fleet, scene):
    stories = [Story(scene, **fault).begin() for fault in (
        {}, {"do": "hang"}, {"do": "drop"}, {"do": "delay_ms", "ms": 500})]
    for name in SERVICES:
        fleet.kill(name)
    fleet.restart()
    for story in stories:
        effect = scene.effect_when(story.id, lambda e: e["grade"] in ("confirmed", "unknown"), 20)
        if story.counts["writes"]:
            effect = scene.effect_when(story.id, lambda e: e["grade"] == "confirmed", 20)
        assert story.counts["writes"] <= 1
        assert scene.usage(story.limit) == ((100, 0, 0) if effect["grade"] == "confirmed" else (0, 100, 100))


# ---------------------------------------------------------------- at random


class Traffic:
    """Agents that invoke and send again under the same key when nothing came back, as the client does."""

    def __init__(self, scene, action, agents):
        self.scene = scene
        self.action = action
        self.stop = threading.Event()
        self.accepted = {}  # by key: the first 2xx of each
        self.pool = concurrent.futures.ThreadPoolExecutor(agents)
        self.agents = [self.pool.submit(self.run) for _ in range(agents)]

    def run(self):
        while not self.stop.is_set():
            key = unique("key")
            while key not in self.accepted and not self.send(key) and not self.stop.is_set():
                time.sleep(0.05)

    def send(self, key):
        try:
            answer = self.scene.agent.invoke(self.action, {"tag": key}, key, wait=1)
        except OSError:
            return False
        if answer.status < 300:
            self.accepted[key] = answer.data
        else:
            assert answer.status in (409, 503), answer
        return answer.status < 500

    def end(self):
        self.stop.set()
        for agent in self.agents:
            agent.result()
        self.pool.shutdown()


def test_random_kills_under_load(fleet, scene):
    action = spending_action(scene)
    scene.limit(action, amount=10 ** 9)
    before = scene.sandbox.counts()["totals"]
    order = random.Random(3)
    traffic = Traffic(scene, action, 8)
    for _ in range(10):
        name, seen = order.choice(SERVICES), len(traffic.accepted)
        scene.sandbox.fault(order.choice(["drop", "reset", "hang"]), {"kind": "write"}, times=3, skip=2)
        wait_until(lambda: len(traffic.accepted) > seen + 3, what="calls that go through")
        fleet.kill(name)
        fleet.restart(name)
    traffic.end()
    scene.sandbox.control("DELETE", "/faults")
    assert len(traffic.accepted) >= 40

    rows = wait_until(lambda: all_ended(scene, traffic), 40, 0.5, what="an end of everything that was accepted")
    for effect_id, state in rows.items():
        writes = scene.sandbox.counts(effect=effect_id)["writes"]
        expected = {"succeeded": 1, "failed": 0}.get(state["outcome"])
        assert writes == expected or (state["outcome"] == "unknown" and writes == 0), (effect_id, state, writes)
    assert scene.sandbox.counts()["totals"]["effectsWrittenAgain"] == before["effectsWrittenAgain"]
    for row in fleet.psql(EXPECTED_LIMITS, scene_environment(scene)):
        assert (row["reserved"], row["unknown_exposure"], row["consumed"]) == (
            row["held"], row["exposed"], row["spent"]), row


def scene_environment(scene):
    (row,) = scene.fleet.psql("select id from environments where name = %s", scene.environment)
    return row["id"]


def all_ended(scene, traffic):
    """The state of everything accepted once nothing is ready or in flight and what was written is found."""
    rows = scene.fleet.psql(
        "select prefixed('eff', q.id) as id, q.stage::text, q.outcome::text from effect_states q"
        " join effects e on e.id = q.id where e.idempotency_key = any (%s)", list(traffic.accepted))
    assert len(rows) == len(traffic.accepted), "something that was accepted is not there"
    for row in rows:
        if row["stage"] in ("ready", "dispatching"):
            return None
        if row["outcome"] == "unknown" and scene.sandbox.counts(effect=row["id"])["writes"]:
            return None
    return {row["id"]: row for row in rows}
