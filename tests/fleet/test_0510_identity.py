"""Who holds an operation in each state of its effect, and how one call at most takes it over."""

import concurrent.futures

import pytest

from harness import unique, wait_until
from scene import ACTIONS, Scene


@pytest.fixture(scope="module")
def scene(fleet):
    return Scene(fleet)


@pytest.fixture(scope="module")
def refund(scene):
    return scene.refund_action()


@pytest.fixture(scope="module")
def second_agent(scene):
    return scene.fleet.api(scene.key("second", "--preset", "agent"))


@pytest.fixture
def paused_dispatcher(fleet):
    """Nothing is dispatched until the function that is given is called (or the test ends)."""
    fleet.pause("dispatcher-1")
    yield lambda: fleet.resume("dispatcher-1")
    fleet.resume("dispatcher-1")


def value_of(intent, amount=100):
    return {"payment_intent": intent, "amount": amount}


def cancel(scene, invocation):
    return scene.agent.post(f"{ACTIONS}/invocations/{invocation}/cancel")


def writes(scene, intent):
    return scene.sandbox.counts(intent=intent)["writes"]


def generations(scene, operation):
    """The invocations that have held an operation, oldest first."""
    rows = scene.fleet.psql(
        "select o.generation, prefixed('inv', o.effect_id) as holder from operations o"
        " join effects e on e.id = o.effect_id where e.operation_key = %s order by 1", operation)
    assert [row["generation"] for row in rows] == list(range(len(rows)))
    return [row["holder"] for row in rows]


def is_held(scene, who, action, operation, intent, holder):
    """The same input answers the holder; another input is refused and binds no key."""
    key = unique("key")
    same = who.invoke(action, value_of(intent), wait=0, operationKey=operation)
    assert (same.data["id"], same.headers["X-Idempotent-Replay"]) == (holder, "current-state"), same
    other = who.invoke(action, value_of(intent, 101), key, wait=0, operationKey=operation)
    assert (other.status, other.code) == (409, "operation_key_reuse"), other
    assert other.error["details"]["invocationId"] == holder
    assert scene.fleet.psql("select 1 from effects where idempotency_key = %s", key) == []
    free = who.invoke(action, value_of(unique("pi"), 102), key, wait=0)
    assert free.status in (200, 202) and free.data["id"] != holder
    assert generations(scene, operation) == [holder]


def test_running_holds_for_every_agent(scene, refund, second_agent, paused_dispatcher):
    operation, intent = unique("op"), unique("pi")
    first = scene.agent.invoke(refund, value_of(intent), wait=0, operationKey=operation)
    assert (first.status, first.data["status"]) == (202, "running")
    for who in (scene.agent, second_agent):
        is_held(scene, who, refund, operation, intent, first.data["id"])
    paused_dispatcher()
    scene.effect_when(first.data["effectId"], lambda e: e["outcome"] == "succeeded")
    assert writes(scene, intent) == 1


def test_pending_at_the_provider_holds(scene, refund, second_agent):
    operation, intent = unique("op"), unique("pi_pending")
    first = scene.refund(refund, intent, 100, operationKey=operation)
    assert scene.effect(first["effectId"])["outcome"] == "pending"
    is_held(scene, second_agent, refund, operation, intent, first["id"])
    assert writes(scene, intent) == 1


def test_succeeded_and_failed_hold(scene, refund, second_agent):
    for intent, status in ((unique("pi"), "succeeded"), (unique("pi_402"), "failed")):
        operation = unique("op")
        first = scene.refund(refund, intent, 100, operationKey=operation)
        assert first["status"] == status
        is_held(scene, second_agent, refund, operation, intent, first["id"])
        assert writes(scene, intent) == 1


def test_an_operation_outlives_its_ingest(fleet, scene, refund, second_agent):
    operation, intent = unique("op"), unique("pi")
    first = scene.refund(refund, intent, 100, operationKey=operation)
    fleet.kill("ingest-1")
    fleet.restart("ingest-1")
    wait_until(lambda: second_agent.get("/api/v2/auth/identity").status == 200, what="ingest")
    is_held(scene, second_agent, refund, operation, intent, first["id"])
    assert writes(scene, intent) == 1


def test_cancelled_frees_with_another_input(scene, refund, second_agent, paused_dispatcher):
    operation, intent, key = unique("op"), unique("pi"), unique("key")
    first = scene.agent.invoke(refund, value_of(intent), key, wait=0, operationKey=operation)
    assert cancel(scene, first.data["id"]).status == 200
    second = second_agent.invoke(refund, value_of(intent, 101), wait=0, operationKey=operation)
    assert second.status == 202 and second.data["id"] != first.data["id"]
    again = scene.agent.invoke(refund, value_of(intent), key, wait=0, operationKey=operation)
    assert (again.data["id"], again.data["status"]) == (first.data["id"], "expired"), "a key keeps its invocation"
    assert generations(scene, operation) == [first.data["id"], second.data["id"]]
    paused_dispatcher()
    scene.effect_when(second.data["effectId"], lambda e: e["outcome"] == "succeeded")
    assert writes(scene, intent) == 1


def test_expired_frees(scene, refund, paused_dispatcher):
    operation, intent = unique("op"), unique("pi")
    first = scene.agent.invoke(refund, value_of(intent), wait=0, operationKey=operation, dispatchBeforeSeconds=1)
    wait_until(lambda: scene.agent.invocation(first.data["id"])["status"] == "expired", 20, what="the expiry")
    second = scene.agent.invoke(refund, value_of(intent), wait=0, operationKey=operation)
    assert second.status == 202 and second.data["id"] != first.data["id"]
    paused_dispatcher()
    scene.effect_when(second.data["effectId"], lambda e: e["outcome"] == "succeeded")
    assert generations(scene, operation) == [first.data["id"], second.data["id"]]
    assert writes(scene, intent) == 1


def test_twenty_new_calls_after_a_refusal_and_one_takes_it_over(scene):
    operation, intent, action = unique("op"), unique("pi"), scene.refund_action()
    limit = scene.limit(action, amount=50)
    refused = scene.refund(action, intent, 100, operationKey=operation)
    assert refused["grade"] == "refused"
    scene.made(scene.operator.patch(f"/api/v2/impact-limits/{limit}", {"amount": 1000}))
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: scene.refund(action, intent, 100, operationKey=operation), range(20)))
    (second,) = {answer["id"] for answer in answers}
    assert generations(scene, operation) == [refused["id"], second]
    assert (writes(scene, intent), scene.usage(limit)[0]) == (1, 100)


@pytest.mark.parametrize("named", [True, False])
def test_twenty_retries_at_once_and_one_goes_on(scene, refund, named):
    """Whether the retry names the operation or goes on under its original's."""
    operation, intent = unique("op"), unique("pi")
    failed = scene.refund(refund, unique("pi_402"), 100, operationKey=operation)
    more = {"retryOf": failed["id"], **({"operationKey": operation} if named else {})}
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: scene.agent.invoke(refund, value_of(intent), **more), range(20)))
    taken = [a for a in answers if a.status == 200]
    assert len(taken) == 1, answers
    assert {(a.status, a.code) for a in answers if a.status != 200} == {(409, "RETRY_REFUSED")}
    retry = taken[0].data
    assert (retry["retryOf"], retry["operationKey"], retry["status"]) == (failed["id"], operation, "succeeded")
    assert generations(scene, operation) == [failed["id"], retry["id"]]
    assert writes(scene, intent) == 1


def test_a_retry_of_what_never_left_is_refused_and_a_new_call_is_not(scene, refund, paused_dispatcher):
    operation, intent = unique("op"), unique("pi")
    first = scene.agent.invoke(refund, value_of(intent), wait=0, operationKey=operation)
    early = scene.agent.invoke(refund, value_of(intent), wait=0, retryOf=first.data["id"])
    assert (early.status, early.code) == (409, "RETRY_REFUSED")
    assert cancel(scene, first.data["id"]).status == 200
    late = scene.agent.invoke(refund, value_of(intent), wait=0, retryOf=first.data["id"])
    assert (late.status, late.code) == (409, "RETRY_REFUSED")
    assert "not_dispatched" in late.error["details"]["reason"]
    assert scene.agent.invoke(refund, value_of(intent), wait=0, operationKey=operation).status == 202


def test_an_environment_has_its_own_operations(fleet, scene, refund):
    operation = unique("op")
    first = scene.refund(refund, unique("pi"), 100, operationKey=operation)
    other = Scene(fleet)
    theirs = other.refund(other.refund_action(), unique("pi"), 101, operationKey=operation)
    assert theirs["status"] == "succeeded" and theirs["id"] != first["id"]
    retry = other.agent.invoke(other.refund_action(), value_of(unique("pi")), retryOf=first["id"])
    assert (retry.status, retry.code) == (409, "RETRY_REFUSED")
    assert "no invocation" in retry.error["details"]["reason"]
