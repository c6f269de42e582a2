"""Kafka away, rewound, rebalanced and poisoned: references may be lost or come again, effects may not."""

import base64
import concurrent.futures
import json
import random

import pytest

from broker import DEAD_LETTERS, EFFECTS, RECONCILE, Broker
from harness import unique, wait_until
from scene import ACTIONS, Scene, effect_url

NOBODY = "eff_01ARZ3NDEKTSV4RRFFQ69G5FAV"


@pytest.fixture(scope="module")
def scene(fleet):
    return Scene(fleet)


@pytest.fixture(scope="module")
def write(scene):
    return write_action(scene)


@pytest.fixture(scope="module")
def broker(fleet):
    return Broker(fleet)


@pytest.fixture(autouse=True)
def everybody_lives(fleet):
    yield
    fleet.up()


def write_action(scene, **more):
    return scene.action(
        urlTemplate=scene.fleet.env["SANDBOX_URL"] + "/generic/broker", bodyTemplate={"n": "{{input.n}}"},
        headers={"X-Holdfast-Effect": "{{effect.id}}"}, governed=True, **more)


def accept(scene, action, n=1, **members):
    """An accepted call that nobody waits for."""
    answer = scene.agent.invoke(action, {"n": n}, wait=0, **members)
    assert answer.status in (200, 202), answer
    return answer.data["effectId"]


def writes(scene, effect_id):
    return scene.sandbox.counts(effect=effect_id)["writes"]


def settled_once(scene, effect_ids, timeout=30):
    """Waits until each of them has succeeded, by one write."""
    for effect_id in effect_ids:
        effect = scene.settled(effect_id, timeout)
        assert (effect["outcome"], writes(scene, effect_id)) == ("succeeded", 1)


# ---------------------------------------------------------------- messages that come again


def test_an_ancient_message_writes_nothing(fleet, scene, write, broker):
    """Case 14: the group at the earliest offset, Redis empty, everything long settled."""
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        effects = list(pool.map(lambda n: accept(scene, write, n), range(100)))
    settled_once(scene, effects)
    before = scene.sandbox.counts()["totals"]
    fleet.kill("dispatcher-1")
    fleet.redis().flushall()
    start = broker.rewind()
    assert sum(broker.ends().values()) - sum(start.values()) >= 100
    fleet.restart("dispatcher-1")
    wait_until(broker.caught_up, 30, 0.3, what="everything in the topic to be decided again")
    settled_once(scene, [accept(scene, write)])
    after = scene.sandbox.counts()["totals"]
    assert after["writes"] == before["writes"] + 1
    assert after["effectsWrittenAgain"] == before["effectsWrittenAgain"]
    assert fleet.psql("select 1 from evidence where kind = 'late' and prefixed('eff', effect_id) = any (%s)", effects) == []


def test_a_message_many_times_over_makes_one_write(fleet, scene, write, broker):
    fleet.pause("dispatcher-1")
    effect_id = accept(scene, write)
    (row,) = fleet.psql("select environment_id, destination from effects where prefixed('eff', id) = %s", effect_id)
    message = {"v": 1, "effect": effect_id, "environment": row["environment_id"], "seq": 1,
               "destination": row["destination"], "reply": -1}
    for partition in broker.partitions(EFFECTS):
        broker.produce([json.dumps(message)] * 20, partition=partition)
    fleet.resume("dispatcher-1")
    settled_once(scene, [effect_id])
    wait_until(broker.caught_up, 30, 0.3)
    assert writes(scene, effect_id) == 1


def test_rebalances_during_three_hundred_effects(make_fleet):
    """One of two dispatchers is killed or ended again and again."""
    fleet = make_fleet("rebalance", dispatchers=2)
    scene = Scene(fleet)
    action = write_action(scene, verify={
        "url": fleet.env["SANDBOX_URL"] + "/generic/broker?effect={{effect.id}}", "status": 200,
        "match": [{"path": "data.*.effect", "equals": "{{effect.id}}"}]})
    scene.made(scene.operator.patch(f"/api/v2/actions/{action}", {
        "bodyTemplate": {"n": "{{input.n}}", "effect": "{{effect.id}}"}}))
    scene.sandbox.fault("delay_ms", {"kind": "write"}, ms=20, times=-1)
    order = random.Random(7)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        accepting = [pool.submit(accept, scene, action, n) for n in range(300)]
        for _ in range(4):
            name = order.choice(["dispatcher-1", "dispatcher-2"])
            fleet.kill(name, order.choice([9, 15]))
            fleet.restart(name)
        effects = [future.result() for future in accepting]
    for effect_id in effects:
        effect = scene.effect_when(effect_id, lambda e: e["stage"] not in ("ready", "dispatching"))
        count = writes(scene, effect_id)
        if effect["outcome"] == "unknown" and count:
            effect = scene.settled(effect_id)
        assert count == {"succeeded": 1, "failed": 0, "unknown": 0}[effect["outcome"]], effect
    workers = fleet.psql("select worker, count(*) as n from attempts group by 1")
    assert {row["worker"] for row in workers} == {"dispatcher-1", "dispatcher-2"}


# ---------------------------------------------------------------- Kafka away


def test_kafka_stopped_right_after_the_accept(fleet, scene, write):
    """Case 6: what was answered 2xx is dispatched once, later."""
    key = unique("key")
    fleet.kill("kafka")
    effects = [accept(scene, write, n) for n in range(5)]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        cut_off = pool.submit(scene.agent.invoke, write, {"n": 9}, key)
        wait_until(lambda: fleet.psql("select 1 from effects where idempotency_key = %s", key))
        fleet.kill("ingest-1")
        assert isinstance(cut_off.exception(), OSError)
    fleet.restart("kafka", "ingest-1")
    settled_once(scene, effects)
    again = scene.agent.invoke(write, {"n": 9}, key)
    settled_once(scene, [again.data["effectId"]])


def test_everybody_starts_while_kafka_is_away(fleet, scene, write):
    """They come up, say what is missing, and go on by themselves once it is there."""
    fleet.kill("kafka")
    for name in ("ingest-1", "dispatcher-1", "scheduler-1", "reconciler-1"):
        fleet.kill(name)
    fleet.restart("ingest-1", "dispatcher-1", "scheduler-1", "reconciler-1", "kafka")
    settled_once(scene, [accept(scene, write)])


def test_probes_while_kafka_is_away(fleet, scene, write):
    fleet.kill("kafka")
    names = ("dispatcher-1", "scheduler-1", "reconciler-1")
    wait_until(lambda: all(fleet.admin(name).get("/readyz").status == 503 for name in names), 30,
               what="everybody not ready")
    assert fleet.admin("ingest-1").get("/readyz").status == 200, "it can accept without Kafka"
    for name in names:
        assert fleet.admin(name).get("/livez").status == 200
        assert b"kafka" in fleet.admin(name).get("/readyz").body.lower()
    effect_id = accept(scene, write)
    fleet.restart("kafka")
    settled_once(scene, [effect_id])
    wait_until(lambda: all(fleet.admin(name).get("/readyz").status == 200 for name in names), 30)


def test_a_body_of_two_megabytes_is_refused_without_a_hold(fleet, scene, write):
    limited = scene.action(
        urlTemplate=fleet.env["SANDBOX_URL"] + "/generic/broker", bodyTemplate={"n": "{{input.n}}"},
        impact={"dimension": "money", "unit": "usd", "amount": "1", "bound": "exact"})
    limit, key = scene.limit(limited), unique("key")
    large = scene.agent.invoke(limited, {"n": "x" * (2 << 20)}, key)
    assert (large.status, large.code) == (413, "PAYLOAD_TOO_LARGE")
    assert fleet.psql("select 1 from effects where idempotency_key = %s", key) == []
    assert scene.usage(limit) == (0, 0, 0)
    # The largest that is taken goes all the way, and its key was not used up.
    assert scene.agent.invoke(limited, {"n": "x" * 1_000_000}, key).data["status"] == "succeeded"


# ---------------------------------------------------------------- poison


def test_poison_is_dead_lettered_and_blocks_nothing(fleet, scene, write, broker):
    """Case 15."""
    good = {"v": 1, "effect": NOBODY, "environment": 1, "seq": 1, "destination": "127.0.0.1:1", "reply": -1}
    poison = {
        "null": None,
        "empty": b"",
        "truncated": json.dumps(good).encode()[:-5],
        "an id that nobody has": json.dumps(good).encode(),
        "no id": json.dumps({**good, "effect": "eff_nobody"}).encode(),
        "another version": json.dumps({**good, "v": 2}).encode(),
        "a member too many": json.dumps({**good, "x": 1}).encode(),
        "garbage": random.Random(1).randbytes(1_000_000),
        "a list": b"[]",
        "twice": b'{"v":1,' + json.dumps(good).encode()[1:],
    }
    before = len(broker.read(DEAD_LETTERS))
    partition = broker.partitions(EFFECTS)[0]
    fleet.pause("dispatcher-1")
    offsets = dict(zip(poison, broker.produce(list(poison.values()), partition=partition)))
    effects = [accept(scene, write, n) for n in range(40)]  # over every partition
    fleet.resume("dispatcher-1")
    settled_once(scene, effects)
    wait_until(broker.caught_up, 30, 0.3, what="the poison to be decided")
    letters = broker.read(DEAD_LETTERS)[before:]
    by_offset = {letter["offset"]: letter for letter in letters}
    assert sorted(by_offset) == sorted(offsets.values()), letters
    for name, payload in poison.items():
        letter = by_offset[offsets[name]]
        assert (letter["topic"], letter["partition"]) == (EFFECTS, partition)
        assert letter["payloadBytes"] == len(payload or b"")
        if payload is not None:
            assert payload.startswith(base64.b64decode(letter["payload"])[:1000])
    reasons = {name: by_offset[offsets[name]]["reason"] for name in poison}
    assert reasons["another version"].startswith("/v: ")
    assert reasons["an id that nobody has"] == "there is no such effect"
    assert reasons["null"] == reasons["empty"] == "the message is empty"


def test_poison_in_the_reconcile_topic(fleet, scene, broker):
    before = len(broker.read(DEAD_LETTERS))
    good = {"v": 1, "effect": NOBODY, "environment": 1, "purpose": "unknown", "reply": -1}
    poison = [None, json.dumps(good).encode(), json.dumps({**good, "v": 2}).encode(),
              json.dumps({**good, "purpose": "write"}).encode()]
    for partition in broker.partitions(RECONCILE):
        broker.produce(poison, RECONCILE, partition)
    unknown = scene.refund(scene.lossy_refund_action(), unique("pi"), 100)
    assert scene.settled(unknown["effectId"])["grade"] == "confirmed"
    wait_until(lambda: broker.caught_up(RECONCILE, RECONCILE), 30, 0.3)
    letters = broker.read(DEAD_LETTERS)[before:]
    assert len(letters) == len(poison) * len(broker.partitions(RECONCILE))
    assert {letter["topic"] for letter in letters} == {RECONCILE}


def test_nothing_is_dead_lettered_because_postgres_is_away(fleet, scene, write, broker):
    before = len(broker.read(DEAD_LETTERS))
    fleet.pause("dispatcher-1")
    effects = [accept(scene, write, n) for n in range(20)]
    fleet.kill("postgres")
    fleet.resume("dispatcher-1")
    # It has taken them from Kafka, and can decide none.
    wait_until(lambda: fleet.admin("dispatcher-1").get("/readyz").status == 503, what="it to notice")
    wait_until(lambda: fleet.metric("dispatcher-1", "holdfast_effects_waiting")
               + fleet.metric("dispatcher-1", "holdfast_sends_in_flight") >= 20, what="it to take them")
    assert fleet.admin("dispatcher-1").get("/livez").status == 200
    fleet.restart("postgres")
    for effect_id in effects:
        wait_until(lambda: scene.operator.get(effect_url(effect_id)).status == 200, what="ingest")
    settled_once(scene, effects)
    assert len(broker.read(DEAD_LETTERS)) == before


def test_nobody_who_was_idle_notices_that_postgres_was_restarted(fleet, scene, write):
    """Connections that died meanwhile are replaced before they are used."""
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        warm = list(pool.map(lambda n: scene.agent.invoke(write, {"n": n}), range(16)))
        fleet.restart("postgres")
        for name in ("ingest-1", "dispatcher-1", "scheduler-1", "reconciler-1"):
            wait_until(lambda: fleet.admin(name).get("/readyz").status == 200, 30, what=f"{name} ready")
        calls = list(pool.map(lambda n: scene.agent.invoke(write, {"n": n}), range(16)))
        reads = list(pool.map(lambda a: scene.agent.get(f"{ACTIONS}/invocations/{a.data['id']}"), warm))
    assert {a.status for a in warm + calls + reads} == {200}, [a for a in calls + reads if a.status != 200]
    assert {a.data["status"] for a in calls} == {"succeeded"}
