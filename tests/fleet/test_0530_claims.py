"""Claims: a worker outside the fleet is given the right to perform an effect, once, under the same rules."""

import concurrent.futures
import time

import pytest

from governed import Governed
from harness import unique, wait_until

CLAIMS = "/api/v2/claims"
MONEY = {"dimension": "money", "unit": "usd", "amount": "input.amount", "bound": "exact"}


@pytest.fixture(scope="module")
def scene(fleet):
    return Governed(fleet)


@pytest.fixture(scope="module")
def second_worker(scene):
    return scene.caller("agent")


@pytest.fixture
def action(scene):
    return scene.action(adapter={"type": "external", "config": {"impact": MONEY}})


def claim(scene, action, operation, amount=700, who=None, key=None, **more):
    body = {"action": action, "operationKey": operation, "input": {"amount": amount}, **more}
    return (who or scene.agent).post(CLAIMS, body, {"Idempotency-Key": key} if key else {})


def report(scene, claim_id, word, who=None, **body):
    return (who or scene.agent).post(f"{CLAIMS}/{claim_id}/{word}", body, {"Idempotency-Key": unique("report")})


def code(answer):
    return answer.status, answer.error["code"]


def granted(scene, action, **more):
    answer = claim(scene, action, unique("op"), **more)
    assert answer.status == 201, answer
    return answer.data


# ---- granting

def test_a_claim_is_granted_once_and_holds_the_limit(scene, action, second_worker):
    limit, operation = scene.limit(action), unique("op")
    first = claim(scene, action, operation, holder="one")
    assert (first.status, first.data["status"], first.data["holder"]) == (201, "granted", "one")
    assert first.data["id"].startswith("clm_") and first.data["leaseUntil"] > first.data["grantedAt"]
    assert first.data["idempotencyKey"] == f"holdfast-{first.data['effectId']}"
    assert scene.usage(limit) == (0, 700, 0)
    for who in (scene.agent, second_worker):
        again = claim(scene, action, operation, who=who, holder="two")
        assert code(again) == (409, "DUPLICATE_EFFECT"), again
        assert again.error["details"]["id"] == first.data["id"]
    assert scene.effect(first.data["effectId"])["stage"] == "dispatching"


def test_fifty_at_once_and_one_is_granted(scene, action):
    operation = unique("op")
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda n: claim(scene, action, operation, holder=f"h{n}"), range(50)))
    assert sorted({a.status for a in answers}) == [201, 409]
    assert sum(a.status == 201 for a in answers) == 1


def test_fifty_at_once_with_one_key_and_one_is_granted(scene, action):
    operation, key = unique("op"), unique("key")
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda n: claim(scene, action, operation, key=key, holder=f"h{n}"), range(50)))
    assert sum(a.status == 201 for a in answers) == 1
    assert {a.status for a in answers} == {201, 409}


def test_only_the_holder_that_named_itself_hears_of_its_grant_again(scene, action):
    operation, key = unique("op"), unique("key")
    assert claim(scene, action, operation, key=key, holder="one").status == 201
    again = claim(scene, action, operation, key=key, holder="one")
    assert (again.status, again.data["status"]) == (200, "granted")
    assert code(claim(scene, action, operation, key=key, holder="two")) == (409, "DUPLICATE_EFFECT")
    assert code(claim(scene, action, operation, key=key)) == (409, "DUPLICATE_EFFECT")
    nameless = unique("key")
    operation = unique("op")
    assert claim(scene, action, operation, key=nameless).status == 201
    assert code(claim(scene, action, operation, key=nameless)) == (409, "DUPLICATE_EFFECT")


def test_another_input_under_the_operation_or_key_is_refused(scene, action):
    operation, key = unique("op"), unique("key")
    assert claim(scene, action, operation, key=key).status == 201
    assert code(claim(scene, action, operation, amount=701)) == (409, "operation_key_reuse")
    assert code(claim(scene, action, operation, amount=701, key=key)) == (409, "idempotency_key_reuse")


def test_what_the_limit_has_no_room_for_is_refused(scene, action):
    scene.limit(action, amount=1000)
    assert granted(scene, action)["status"] == "granted"
    refused = claim(scene, action, unique("op"))
    assert code(refused) == (409, "EFFECT_REFUSED")
    assert "has 300 of 1000 left, 700 asked for" in refused.error["message"]


@pytest.mark.parametrize("body, place", [
    ({"input": {}}, "action"), ({"action": "x", "operationKey": "a b"}, "/operationKey"),
    ({"action": "x", "operationKey": "a", "leaseSeconds": 0}, "/leaseSeconds"),
    ({"action": "x", "operationKey": "a", "leaseSeconds": 3601}, "/leaseSeconds"),
    ({"action": "x", "operationKey": "a", "holder": ""}, "/holder"),
    ({"action": "x", "operationKey": "a", "previewId": "p"}, "previewId")])
def test_a_claim_that_reads_wrong_names_the_place(scene, body, place):
    answer = scene.agent.post(CLAIMS, body)
    assert code(answer) == (400, "VALIDATION_ERROR")
    assert place in answer.error["details"]["place"] or place in answer.error["message"]


def test_a_claim_needs_an_operation(scene, action):
    answer = scene.agent.post(CLAIMS, {"action": action, "input": {"amount": 1}})
    assert code(answer) == (400, "VALIDATION_ERROR") and answer.error["details"]["place"] == "/operationKey"


def test_an_unknown_action_is_404_and_an_external_one_cant_be_invoked(scene, action):
    assert claim(scene, "no_such_action", "x").status == 404
    assert code(scene.agent.invoke(action, {"amount": 1})) == (409, "CLAIM_REQUIRED")


def test_any_action_can_be_claimed_and_the_fleet_does_not_send_it(scene):
    intent, operation = unique("pi"), unique("op")
    name = scene.refund_action()
    body = {"action": name, "operationKey": operation, "input": {"payment_intent": intent, "amount": 5}}
    made = scene.agent.post(CLAIMS, body)
    assert made.status == 201, made
    invoked = scene.agent.invoke(name, body["input"], operationKey=operation, wait=0)
    assert invoked.data["effectId"] == made.data["effectId"]
    time.sleep(1.5) # longer than republishing takes: a wrong dispatch would be seen
    assert scene.requests(intent) == []


def test_what_a_worker_performed_is_never_replayed(scene):
    intent, name = unique("pi"), scene.refund_action()
    made = scene.agent.post(CLAIMS, {"action": name, "operationKey": unique("op"),
                                     "input": {"payment_intent": intent, "amount": 5}}).data
    assert report(scene, made["id"], "unknown").status == 200
    refused = scene.resolver.post(f"/api/v2/actions/effects/{made['effectId']}/replay", {})
    assert (refused.status, refused.error["details"]["reason"]) == (409, "replay_unsupported"), refused
    assert scene.writes(intent) == 0


def test_what_was_invoked_is_not_granted(scene):
    intent, operation = unique("pi"), unique("op")
    name = scene.refund_action()
    scene.refund(name, intent, 5, operationKey=operation)
    answer = scene.agent.post(CLAIMS, {"action": name, "operationKey": operation,
                                       "input": {"payment_intent": intent, "amount": 5}})
    assert code(answer) == (409, "DUPLICATE_EFFECT")
    assert scene.writes(intent) == 1


# ---- policy and approval

def test_a_claim_waits_for_its_approval_and_is_granted_once_then(scene, action):
    operation = unique("op")
    scene.made(scene.operator.patch(f"/api/v2/actions/{action}", {"requiresApproval": True}))
    asked = claim(scene, action, operation, holder="one")
    assert (asked.status, asked.data["status"]) == (202, "pending_approval")
    assert claim(scene, action, operation, holder="two").status == 202
    assert scene.approve(asked.data["approvalId"]).status == 200
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda n: claim(scene, action, operation, holder=f"h{n}"), range(20)))
    assert sorted(a.status for a in answers) == [201] + [409] * 19


def test_a_denied_claim_stays_denied(scene, action):
    operation = unique("op")
    scene.made(scene.operator.patch(f"/api/v2/actions/{action}", {"requiresApproval": True}))
    asked = claim(scene, action, operation)
    assert scene.deny(asked.data["approvalId"]).status == 200
    assert code(claim(scene, action, operation)) == (403, "EFFECT_DENIED")


def test_a_policy_denies_a_claim(scene, action):
    scene.policy("auto_deny", action=action)
    wait_until(lambda: code(claim(scene, action, unique("op"))) == (403, "EFFECT_DENIED"), what="the policy")


# ---- the end

def test_complete_consumes_and_a_second_claim_is_a_duplicate(scene, action):
    limit, operation = scene.limit(action), unique("op")
    made = claim(scene, action, operation).data
    done = report(scene, made["id"], "complete", result={"id": "x1"}, externalReference="x1")
    assert (done.status, done.data["status"], done.data["grade"]) == (200, "succeeded", "acknowledged"), done
    assert scene.usage(limit) == (700, 0, 0)
    assert code(claim(scene, action, operation)) == (409, "DUPLICATE_EFFECT")
    effect = scene.effect(made["effectId"])
    assert effect["externalReference"] == "x1"
    assert effect["evidence"][-1]["text"] == "The worker agent reported that it performed it"
    assert code(report(scene, made["id"], "complete")) == (409, "EFFECT_SETTLED")


def test_complete_of_less_consumes_that(scene, action):
    limit = scene.limit(action)
    made = granted(scene, action)
    assert report(scene, made["id"], "complete", actualAmount=200).status == 200
    assert scene.usage(limit) == (200, 0, 0)


def test_failed_within_the_lease_releases_and_a_retry_may_follow(scene, action):
    limit, operation = scene.limit(action), unique("op")
    made = claim(scene, action, operation).data
    failed = report(scene, made["id"], "failed", reason="The ledger was locked")
    assert (failed.status, failed.data["status"]) == (200, "failed")
    assert failed.data["error"] == (
        f"The worker that performed effect {made['effectId']} reported that it failed: The ledger was locked.")
    assert scene.usage(limit) == (0, 0, 0)
    assert code(claim(scene, action, operation)) == (409, "DUPLICATE_EFFECT")
    retried = claim(scene, action, operation, retryOf=made["invocationId"])
    assert retried.status == 201 and retried.data["effectId"] != made["effectId"]


def test_failed_needs_a_reason(scene, action):
    assert code(report(scene, granted(scene, action)["id"], "failed")) == (400, "VALIDATION_ERROR")


def test_a_lease_that_ends_is_unknown_and_never_free_again(scene, action):
    limit, operation = scene.limit(action), unique("op")
    made = claim(scene, action, operation, leaseSeconds=1).data
    wait_until(lambda: scene.effect(made["effectId"])["outcome"] == "unknown", 30, what="the sweep")
    assert scene.usage(limit) == (0, 700, 700)
    assert code(claim(scene, action, operation)) == (409, "AMBIGUOUS_EFFECT")
    assert code(report(scene, made["id"], "failed", reason="late")) == (409, "LEASE_ENDED")
    assert scene.usage(limit) == (0, 700, 700)
    late = report(scene, made["id"], "complete")
    assert (late.status, late.data["status"]) == (200, "succeeded")
    assert scene.usage(limit) == (700, 0, 0)


def test_unknown_is_held_and_a_person_settles_it(scene, action):
    limit, operation = scene.limit(action), unique("op")
    made = claim(scene, action, operation).data
    told = report(scene, made["id"], "unknown", reason="The connection broke")
    assert (told.status, told.data["status"]) == (200, "unknown"), told
    assert scene.usage(limit) == (0, 700, 700)
    assert code(claim(scene, action, operation)) == (409, "AMBIGUOUS_EFFECT")
    assert scene.resolve(made["effectId"], "failed").status == 200
    assert scene.usage(limit) == (0, 0, 0)
    conflicting = report(scene, made["id"], "complete")
    assert (conflicting.status, conflicting.data["conflict"]) == (200, True)


def test_only_the_agent_that_holds_it_reports(scene, action):
    made = granted(scene, action)
    other = scene.caller("another")
    assert code(report(scene, made["id"], "complete", who=other)) == (403, "AUTHORIZATION_ERROR")
    assert other.get(f"{CLAIMS}/{made['id']}").data["status"] == "granted"
    assert scene.agent.get(f"{CLAIMS}/clm_00000000000000000000000000").status == 404


def test_a_halt_waits_for_the_lease_and_grants_nothing(scene, fleet):
    apart = Governed(fleet)
    action = apart.action(adapter={"type": "external"})
    made = granted(apart, action, amount=1, leaseSeconds=120)
    halted = apart.operator.post("/api/v2/environment/halt", {"reason": "test"})
    assert halted.data["inFlight"] == 1 and halted.data["quietAt"][:18] == made["leaseUntil"][:18]
    assert code(claim(apart, action, unique("op"))) == (409, "ENVIRONMENT_HALTED")
    assert report(apart, made["id"], "complete").status == 200


@pytest.mark.parametrize("config, place", [
    ({"impact": {"dimension": "money"}}, "/adapter/config/impact/bound"), ({"x": 1}, "/adapter/config")])
def test_an_external_action_that_reads_wrong_names_the_place(scene, config, place):
    answer = scene.operator.post("/api/v2/actions", {"name": unique("a"), "adapter": {"type": "external", "config": config}})
    assert code(answer) == (400, "VALIDATION_ERROR") and answer.error["details"]["place"].startswith(place)
