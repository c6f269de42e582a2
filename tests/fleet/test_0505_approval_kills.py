"""Approvals when a process dies between the decision and the send, and when whoever waits hangs on another ingest."""

import concurrent.futures
import signal
import time

import pytest

from governed import APPROVALS, Governed, raw
from harness import Fleet, unique, wait_until


@pytest.fixture(scope="module")
def fleet(request):
    """Two ingests of one's own, since processes are killed here."""
    failed_before = request.session.testsfailed
    private = Fleet("approval-kills", broker="embedded", ingests=2)
    try:
        yield private.up()
    finally:
        private.end(keep=request.session.testsfailed > failed_before)


@pytest.fixture(scope="module")
def scene(fleet):
    return Governed(fleet)


@pytest.fixture(scope="module")
def action(scene):
    return scene.gated_action()


def urls(fleet):
    return fleet.env["FLEET_INGEST_URLS"].split()


# ---- kills

def test_an_ingest_that_dies_right_after_the_decision(scene, action, fleet):
    """As if killed between its COMMIT and the publication: the decision alone is there."""
    intent = unique("pi")
    made = scene.pending(action, intent)
    (row,) = scene.sql("select * from approval_decide(%s, (select environment_id from effects where id = %s),"
                       " gen_random_uuid(), 'boss', 'approve', null)", raw(made["id"]), raw(made["id"]))
    assert row["verdict"] == "approved"
    assert scene.ended(made["id"])["status"] == "succeeded" and scene.writes(intent) == 1


def test_a_dispatcher_that_dies_between_the_decision_and_the_send(scene, action, fleet):
    intent = unique("pi")
    made = scene.pending(action, intent)
    fleet.pause("dispatcher-1")
    assert scene.approve(made["approvalId"]).status == 200
    fleet.kill("dispatcher-1")
    time.sleep(0.5)
    assert scene.writes(intent) == 0
    fleet.restart("dispatcher-1")
    assert scene.ended(made["id"])["status"] == "succeeded" and scene.writes(intent) == 1


def test_ingests_that_die_while_people_decide(scene, action, fleet):
    """Whoever decided sends the same again; each call is sent once, and none that was denied."""
    calls = [(unique("pi"), unique("decision")) for _ in range(30)]
    made = [scene.pending(action, intent) for intent, _ in calls]

    def decide(i):
        word = "deny" if i % 3 == 0 else "approve"

        def said():
            try:
                return scene.decide(word, made[i]["approvalId"], key=calls[i][1])
            except OSError:
                return None

        answer = wait_until(lambda: (lambda a: a if a is not None and a.status != 503 else None)(said()), 30)
        assert answer.status == 200, answer

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        deciding = pool.map(decide, range(len(calls)))
        for _ in range(2):
            time.sleep(0.05)
            fleet.kill("ingest-1")
            fleet.restart("ingest-1")
        list(deciding)
    for i, (intent, _) in enumerate(calls):
        ended = scene.ended(made[i]["id"])
        assert (ended["status"], scene.writes(intent)) == (("denied", 0) if i % 3 == 0 else ("succeeded", 1))
        assert len(scene.approval(made[i]["approvalId"])["decisions"]) == 1


def test_a_scheduler_that_is_away_loses_no_expiry(scene, action, fleet):
    asked = scene.made(scene.agent.post(APPROVALS, {"title": "x", "expiresInSeconds": 1}))
    made = scene.pending(action, unique("pi"), dispatchBeforeSeconds=1)
    fleet.kill("scheduler-1")
    time.sleep(1.5)
    for approval in (asked["id"], made["approvalId"]):
        for word in ("approve", "deny"):  # nobody has written down that it is over; it is
            assert scene.decide(word, approval).code == "APPROVAL_EXPIRED"
    fleet.restart("scheduler-1")
    assert scene.ended(made["id"])["status"] == "expired"
    wait_until(lambda: scene.approval(asked["id"])["status"] == "expired")


# ---- waiting on another ingest

def test_a_decision_wakes_those_who_wait_elsewhere(scene, action, fleet):
    made = scene.pending(action, unique("pi"))
    agents = [fleet.api(scene.agent.key, url) for url in urls(fleet)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        waits = [pool.submit(scene.approval, made["approvalId"], agents[i % 2], 20) for i in range(8)]
        time.sleep(0.5)
        scene.approve(made["approvalId"])
        began = time.monotonic()
        assert {wait.result(5)["status"] for wait in waits} == {"approved"}
        assert time.monotonic() - began < 0.8  # the look of each second would be too late for some


def test_a_lost_notification_costs_a_second(scene, fleet):
    """The sessions that listen are cut, and decide nothing until they listen again."""
    asked = scene.made(scene.agent.post(APPROVALS, {"title": "x"}))
    agents = [fleet.api(scene.agent.key, url) for url in urls(fleet)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        waits = [pool.submit(scene.approval, asked["id"], agents[i % 2], 20) for i in range(4)]
        time.sleep(0.3)
        cut = scene.sql("select pg_terminate_backend(pid) from pg_stat_activity"
                        " where application_name like 'holdfast-ingest approvals%%'")
        assert len(cut) == 2
        scene.deny(asked["id"])
        assert {wait.result(8)["status"] for wait in waits} == {"denied"}


def test_who_waits_costs_no_thread_and_no_query(scene, fleet):
    """Far more waits than route threads, and the database is asked by the batch."""
    asked = [scene.made(scene.agent.post(APPROVALS, {"title": "x"}))["id"] for _ in range(5)]
    with concurrent.futures.ThreadPoolExecutor(200) as pool:
        waits = [pool.submit(scene.approval, asked[i % 5], None, 30) for i in range(200)]
        wait_until(lambda: fleet.metric("ingest-1", "holdfast_waiting_decisions") == 200, 15)
        began = time.monotonic()
        assert scene.agent.get("/api/v2/auth/identity").status == 200
        assert time.monotonic() - began < 1
        for approval in asked:
            scene.approve(approval)
        assert {wait.result(10)["status"] for wait in waits} == {"approved"}
    wait_until(lambda: fleet.metric("ingest-1", "holdfast_waiting_decisions") == 0)


def test_a_drain_ends_the_waits(scene, fleet):
    asked = scene.made(scene.agent.post(APPROVALS, {"title": "x"}))
    second = fleet.api(scene.agent.key, urls(fleet)[1])
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(scene.approval, asked["id"], second, 30)
        wait_until(lambda: fleet.metric("ingest-2", "holdfast_waiting_decisions") == 1)
        fleet.kill("ingest-2", signal.SIGTERM)
        assert waiting.result(10)["status"] == "pending"
    fleet.restart("ingest-2")
