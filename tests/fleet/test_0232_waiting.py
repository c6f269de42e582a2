"""What was accepted and may not go yet: a halted environment, cancelling, expiry, a revoked key."""

import concurrent.futures
import subprocess

import pytest

from broker import Broker
from harness import unique, wait_until
from scene import ACTIONS, Scene

ENVIRONMENT = "/api/v2/environment"


@pytest.fixture(scope="module")
def scene(fleet):
    return Scene(fleet)


@pytest.fixture(scope="module")
def write(scene):
    return scene.action(
        urlTemplate=scene.fleet.env["SANDBOX_URL"] + "/generic/waiting", bodyTemplate={"n": "{{input.n}}"},
        headers={"X-Holdfast-Effect": "{{effect.id}}"},
        impact={"dimension": "money", "unit": "usd", "amount": "100", "bound": "exact"})


@pytest.fixture(scope="module")
def limit(scene, write):
    return scene.limit(write, amount=10 ** 6)


@pytest.fixture
def waiting(fleet, scene, write):
    """Accepts a call before its environment is halted, so that it is ready and goes nowhere."""
    made = []

    def accept(agent=None, **members):
        fleet.pause("dispatcher-1")
        answer = (agent or scene.agent).invoke(write, {"n": 1}, wait=0, **members)
        assert (answer.status, answer.data["status"]) == (202, "running"), answer
        made.append(answer.data)
        halt(scene)
        fleet.resume("dispatcher-1")
        return answer.data

    yield accept
    fleet.resume("dispatcher-1")
    scene.operator.post(f"{ENVIRONMENT}/resume")


def halt(scene):
    halted = scene.operator.post(f"{ENVIRONMENT}/halt", {"reason": "a test"})
    assert halted.status == 200, halted
    return halted.data


def resume(scene):
    assert scene.operator.post(f"{ENVIRONMENT}/resume").status == 200


def status(scene, invocation):
    return scene.agent.invocation(invocation["id"])["status"]


def writes(scene, invocation):
    return scene.sandbox.counts(effect=invocation["effectId"])["writes"]


def looked_at(fleet):
    """Waits until the dispatcher has had every message of now in hand."""
    wait_until(Broker(fleet).caught_up, 20, 0.2, what="the dispatcher to look at everything")


def test_what_was_accepted_before_a_halt_waits_for_resume(fleet, scene, write, limit, waiting):
    before = scene.usage(limit)
    invocation = waiting()
    looked_at(fleet)
    assert (status(scene, invocation), writes(scene, invocation)) == ("running", 0)
    assert scene.effect(invocation["effectId"])["stage"] == "ready"
    assert scene.usage(limit) == before
    key = unique("key")
    new = scene.agent.invoke(write, {"n": 2}, key)
    assert (new.status, new.code) == (409, "ENVIRONMENT_HALTED")
    assert fleet.psql("select 1 from effects where idempotency_key = %s", key) == []
    again = scene.agent.invoke(write, {"n": 1}, invocation["idempotencyKey"], wait=0)
    assert (again.status, again.code) == (409, "idempotency_request_in_progress")
    resume(scene)
    assert scene.settled(invocation["effectId"])["outcome"] == "succeeded"
    assert writes(scene, invocation) == 1
    assert scene.agent.invoke(write, {"n": 2}, key).data["status"] == "succeeded"


def test_a_halt_says_what_is_in_flight_and_when_all_is_quiet(fleet, scene, write):
    scene.sandbox.fault("delay_ms", {"path_prefix": "/generic/waiting"}, ms=700)
    invocation = scene.agent.invoke(write, {"n": 1}, wait=0).data
    wait_until(lambda: writes(scene, invocation) == 1, what="the write")
    halted = halt(scene)
    try:
        assert halted["inFlight"] >= 1
        (row,) = fleet.psql("select iso(send_by) as quiet from attempts a where prefixed('eff', a.effect_id) = %s",
                            invocation["effectId"])
        assert halted["quietAt"] >= row["quiet"]
        # What had left is settled during the halt.
        assert scene.settled(invocation["effectId"])["outcome"] == "succeeded"
    finally:
        resume(scene)


def test_a_halt_of_one_environment_leaves_the_others(fleet, scene, write):
    other = Scene(fleet)
    theirs = other.action(urlTemplate=fleet.env["SANDBOX_URL"] + "/generic/waiting", bodyTemplate={"n": 1}, governed=True)
    halt(scene)
    try:
        assert other.agent.invoke(theirs, {}).data["status"] == "succeeded"
    finally:
        resume(scene)


def cancel(scene, invocation, who=None):
    return (who or scene.agent).post(f"{ACTIONS}/invocations/{invocation['id']}/cancel")


def test_a_ready_call_is_cancelled(fleet, scene, write, limit, waiting):
    before = scene.usage(limit)
    invocation = waiting()
    cancelled = cancel(scene, invocation)
    assert (cancelled.status, cancelled.data["status"]) == (200, "expired"), cancelled
    assert "was cancelled and never left" in cancelled.data["error"]
    effect = scene.effect(invocation["effectId"])
    assert (effect["stage"], effect["outcome"]) == ("rejected", "not_dispatched")
    resume(scene)
    looked_at(fleet)
    assert (status(scene, invocation), writes(scene, invocation), scene.usage(limit)) == ("expired", 0, before)
    again = cancel(scene, invocation)
    assert again.status == 409, again
    duplicate = scene.agent.invoke(write, {"n": 1}, invocation["idempotencyKey"])
    assert (duplicate.status, duplicate.data["id"], duplicate.data["status"]) == (200, invocation["id"], "expired")


def test_who_waits_for_a_cancelled_call_is_told(fleet, scene, write, waiting):
    invocation = waiting()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        other = pool.submit(scene.agent.invoke, write, {"n": 1}, invocation["idempotencyKey"], 10)
        wait_until(lambda: fleet.metric("ingest-1", "holdfast_waiting_calls"), what="it to wait")
        assert cancel(scene, invocation).status == 200
        answer = other.result()
    assert (answer.status, answer.data["status"]) == (200, "expired")


def test_a_call_on_its_way_or_done_is_not_cancelled(scene, write):
    scene.sandbox.fault("delay_ms", {"path_prefix": "/generic/waiting"}, ms=600)
    invocation = scene.agent.invoke(write, {"n": 1}, wait=0).data
    wait_until(lambda: writes(scene, invocation) == 1, what="the write")
    assert cancel(scene, invocation).status == 409
    assert scene.settled(invocation["effectId"])["outcome"] == "succeeded"
    assert cancel(scene, invocation).status == 409
    assert writes(scene, invocation) == 1


def test_a_call_of_another_environment_is_not_cancelled(fleet, scene, write, waiting):
    invocation = waiting()
    assert cancel(scene, invocation, Scene(fleet).agent).status == 404
    assert status(scene, invocation) == "running"


def test_a_call_that_waits_past_its_time_expires(scene, write, waiting):
    invocation = waiting(dispatchBeforeSeconds=1)
    wait_until(lambda: status(scene, invocation) == "expired", 10, what="the expiry")
    assert "expired and never left" in scene.agent.invocation(invocation["id"])["error"]
    resume(scene)
    assert scene.agent.invoke(write, {"n": 3}).data["status"] == "succeeded"
    assert (status(scene, invocation), writes(scene, invocation)) == ("expired", 0)
    assert scene.effect(invocation["effectId"])["reservations"] == []


def test_a_call_whose_key_was_revoked_while_it_waited_is_refused(fleet, scene, waiting):
    agent = fleet.api(scene.key(unique("agent"), "--preset", "agent"))
    key_id = agent.get("/api/v2/auth/identity").data["keyId"]
    invocation = waiting(agent)
    revoked = subprocess.run([f"{fleet.env['FLEET_BIN']}/holdfast", "keys", "revoke", key_id],
                             env={"HOLDFAST_DATABASE_URL": fleet.env["HOLDFAST_DATABASE_URL"]},
                             capture_output=True, text=True)
    assert revoked.returncode == 0, revoked.stderr
    resume(scene)
    effect = scene.effect_when(invocation["effectId"], lambda e: e["stage"] == "rejected")
    assert (effect["grade"], effect["outcome"], writes(scene, invocation)) == ("refused", "not_dispatched", 0)
    assert "the key that asked was revoked" in effect["error"]
    wait_until(lambda: agent.get("/api/v2/auth/identity").status == 401, 5, what="the key to be refused")


def test_a_call_whose_secret_is_gone_is_refused(fleet, scene):
    scene.secret("SHORT_LIVED", "s3cret")
    action = scene.action(urlTemplate=fleet.env["SANDBOX_URL"] + "/generic/waiting", bodyTemplate={"n": 1}, governed=True,
                          headers={"Authorization": "Bearer {{secret:SHORT_LIVED}}", "X-Holdfast-Effect": "{{effect.id}}"})
    assert scene.operator.delete("/api/v2/secrets/SHORT_LIVED").status in (200, 204)
    answer = scene.agent.invoke(action, {})
    assert (answer.status, answer.data["status"], answer.data["grade"]) == (200, "failed", "refused")
    assert "secret SHORT_LIVED does not exist" in answer.data["error"]
    assert not [r for r in scene.sandbox.requests() if "s3cret" in str(r["headers"])]
