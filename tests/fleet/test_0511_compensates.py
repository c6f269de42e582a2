"""Effects that undo another one: of a success alone, one at a time, linked on both."""

import concurrent.futures

import pytest

from harness import unique
from scene import ACTIONS, Scene


@pytest.fixture(scope="module")
def scene(fleet):
    return Scene(fleet)


@pytest.fixture(scope="module")
def refund(scene):
    return scene.refund_action()


@pytest.fixture
def done(scene, refund):
    """An effect that succeeded."""
    return scene.refund(refund, unique("pi"), 100)["effectId"]


@pytest.fixture
def paused_dispatcher(fleet):
    fleet.pause("dispatcher-1")
    yield lambda: fleet.resume("dispatcher-1")
    fleet.resume("dispatcher-1")


def undo(scene, action, effect, intent=None, **more):
    value = {"payment_intent": intent or unique("pi"), "amount": 100}
    return scene.agent.invoke(action, value, compensates=effect, **more)


def is_refused(answer, reason):
    assert (answer.status, answer.code) == (409, "COMPENSATION_REFUSED"), answer
    assert reason in answer.error["details"]["reason"]


def test_a_success_is_compensated_once_and_linked_on_both(scene, refund, done):
    key, operation, intent = unique("key"), unique("op"), unique("pi")
    first = undo(scene, refund, done, intent, key=key, operationKey=operation)
    assert (first.status, first.data["status"]) == (200, "succeeded")
    effect = first.data["effectId"]
    assert scene.effect(effect)["compensates"] == done
    assert (scene.effect(done)["compensatedBy"], scene.effect(done)["compensates"]) == ([effect], None)
    refused = unique("key")
    is_refused(undo(scene, refund, done, key=refused), effect)
    assert scene.fleet.psql("select 1 from effects where idempotency_key = %s", refused) == []
    for more in ({"key": key}, {}):
        again = undo(scene, refund, done, intent, operationKey=operation, **more)
        assert (again.status, again.data["id"]) == (200, first.data["id"])


def test_twenty_at_once_and_one_is_taken(scene, refund, done):
    intent = unique("pi")
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: undo(scene, refund, done, intent), range(20)))
    assert sorted(a.status for a in answers) == [200] + [409] * 19
    assert {a.code for a in answers if a.status == 409} == {"COMPENSATION_REFUSED"}
    assert scene.sandbox.counts(intent=intent)["writes"] == 1


def test_what_did_not_happen_is_not_compensated(scene, refund, fleet, done):
    failed = scene.refund(refund, unique("pi_402"), 100)["effectId"]
    pending = scene.refund(refund, unique("pi_pending"), 100)["effectId"]
    lossy, intent = scene.lossy_refund_action(), unique("pi")
    scene.block_reads(intent)
    unknown = scene.refund(lossy, intent, 100)["effectId"]
    for effect, reason in ((failed, "failed"), (pending, "not settled"), (unknown, "unknown"),
                           ("eff_01ARZ3NDEKTSV4RRFFQ69G5FAV", "no effect")):
        is_refused(undo(scene, refund, effect), reason)
    other = Scene(fleet)
    is_refused(undo(other, other.refund_action(), done), "no effect")
    malformed = undo(scene, refund, "eff_x")
    assert (malformed.status, malformed.code) == (400, "VALIDATION_ERROR")


def test_another_follows_one_that_failed_or_never_left(scene, refund, done, paused_dispatcher):
    waiting = undo(scene, refund, done, wait=0)
    is_refused(undo(scene, refund, done, wait=0), waiting.data["effectId"])
    assert scene.agent.post(f"{ACTIONS}/invocations/{waiting.data['id']}/cancel").status == 200
    paused_dispatcher()
    failed = undo(scene, refund, done, unique("pi_402"))
    assert failed.data["status"] == "failed"
    # Its retry compensates the same, whether it says so or not.
    retry = scene.agent.invoke(refund, {"payment_intent": unique("pi"), "amount": 100}, retryOf=failed.data["id"])
    assert retry.data["status"] == "succeeded"
    assert scene.effect(retry.data["effectId"])["compensates"] == done
    assert scene.effect(done)["compensatedBy"] == [
        a.data["effectId"] for a in (waiting, failed, retry)]
    is_refused(undo(scene, refund, done), retry.data["effectId"])


def test_a_conflict_stops_it_before_and_in_the_claim(scene, refund, done, paused_dispatcher):
    waiting = undo(scene, refund, done, wait=0)
    scene.fleet.psql("insert into conflicts select id, hf_now(), 'Two records.', 'test' from effects"
                     " where prefixed('eff', id) = %s", done, admin=True)
    paused_dispatcher()
    effect = scene.effect_when(waiting.data["effectId"], lambda e: e["grade"] == "refused", 8)
    assert (effect["stage"], effect["attempts"]) == ("rejected", [])
    assert done in effect["error"] and "conflict" in effect["error"]
    is_refused(undo(scene, refund, done), "conflict")
