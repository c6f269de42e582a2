"""Approvals: what they are bound to, who may decide, and what becomes of what was gated."""

import concurrent.futures
import hashlib
import json
import time

import pytest

from governed import APPROVALS, Governed, raw
from harness import unique, wait_until


@pytest.fixture(scope="module")
def scene(fleet):
    return Governed(fleet)


@pytest.fixture(scope="module")
def action(scene):
    return scene.gated_action()


# ---- a gated invocation

def test_a_gated_call_is_parked_and_nothing_is_sent_or_held(scene, action):
    intent = unique("pi")
    limit = scene.limit(action)
    made = scene.pending(action, intent, operationKey=unique("op"))
    assert made["pendingApproval"] is True and made["approvalId"].startswith("apr_")
    assert made["error"] == (
        f"The request for effect {made['effectId']} waits for approval {made['approvalId']} and was not sent. "
        f"Do not send it again; read the approval, or invocation {made['id']}.")
    effect = scene.effect(made["effectId"])
    assert (effect["stage"], effect["outcome"], effect["grade"]) == ("awaiting_approval", "pending", "pending")
    assert effect["approvalId"] == made["approvalId"] and effect["attempts"] == []
    assert scene.usage(limit) == (0, 0, 0) and scene.writes(intent) == 0
    assert scene.agent.get("/api/v2/actions/invocations?status=pending_approval").data[0]["id"] == made["id"]


def test_the_payload_is_what_would_be_sent_and_its_hash_is_of_the_canonical_json(scene, action):
    operation = unique("op") + '"\\x'
    made = scene.pending(action, unique("pi"), operationKey=operation)
    approval = scene.approval(made["approvalId"])
    payload = approval["payload"]
    assert set(payload) == {"action", "actionVersion", "input", "operationKey", "requestHash"}
    assert (payload["action"], payload["actionVersion"]) == (action, made["actionVersion"])
    assert payload["operationKey"] == operation and payload["input"]["amount"] == 500
    canonical = json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert approval["payloadHash"] == hashlib.sha256(canonical.encode()).hexdigest()
    assert (approval["status"], approval["invocationId"], approval["requestedBy"]) == (
        "pending", made["id"], made["requestedBy"])
    assert approval["decidedBy"] is None and approval["decisionOrigin"] is None and approval["previewId"] is None


def test_approving_runs_it_once(scene, action):
    intent = unique("pi")
    limit = scene.limit(action)
    made = scene.pending(action, intent)
    answer = scene.approve(made["approvalId"], note="Looks right.")
    assert answer.status == 200, answer
    assert (answer.data["status"], answer.data["decisionOrigin"], answer.data["note"]) == (
        "approved", "human", "Looks right.")
    assert answer.data["decidedBy"].startswith("key_") and answer.data["decidedAt"]
    done = scene.ended(made["id"])
    assert (done["status"], done["approvalId"], done["pendingApproval"]) == ("succeeded", made["approvalId"], False)
    assert scene.writes(intent) == 1 and scene.usage(limit)[0] == 500
    assert scene.approval(made["approvalId"])["usedAt"]


def test_it_runs_at_once_and_not_with_the_next_look_of_the_scheduler(scene, action):
    made = scene.pending(action, unique("pi"))
    began = time.monotonic()
    assert scene.approve(made["approvalId"]).status == 200
    answer = scene.agent.get(f"/api/v2/actions/invocations/{made['id']}")
    while answer.data["status"] != "succeeded" and time.monotonic() - began < 10:
        answer = scene.agent.get(f"/api/v2/actions/invocations/{made['id']}")
    assert time.monotonic() - began < 0.9  # the scheduler waits a second before it publishes again


def test_denying_ends_it_for_good_and_it_holds_its_operation(scene, action):
    intent, operation = unique("pi"), unique("op")
    made = scene.pending(action, intent, operationKey=operation)
    answer = scene.deny(made["approvalId"], note="Not this one.")
    assert (answer.status, answer.data["status"], answer.data["note"]) == (200, "denied", "Not this one.")
    done = scene.ended(made["id"])
    assert (done["status"], done["grade"]) == ("denied", "denied")
    assert done["error"] == (
        f"The request for effect {made['effectId']} was denied and never left: {answer.data['decidedBy']} denied "
        f"approval {made['approvalId']}, saying: Not this one. Do not send it again in another form.")
    again = scene.agent.invoke(action, {"payment_intent": intent, "amount": 500}, operationKey=operation)
    assert (again.status, again.data["id"], again.data["status"]) == (200, made["id"], "denied")
    other = scene.agent.invoke(action, {"payment_intent": intent, "amount": 501}, operationKey=operation)
    assert (other.status, other.code) == (409, "operation_key_reuse")
    retry = scene.agent.invoke(action, {"payment_intent": intent, "amount": 500}, retryOf=made["id"])
    assert (retry.status, retry.code) == (409, "RETRY_REFUSED")
    assert scene.approve(made["approvalId"], scene.second).code == "APPROVAL_DECIDED"
    assert scene.writes(intent) == 0


def test_the_same_call_again_is_answered_with_the_state_now(scene, action):
    intent, key, operation = unique("pi"), unique("key"), unique("op")
    made = scene.pending(action, intent, key=key, operationKey=operation)
    began = time.monotonic()
    for again in (scene.agent.invoke(action, {"amount": 500, "payment_intent": intent}, key=key,
                                     operationKey=operation),
                  scene.agent.invoke(action, {"payment_intent": intent, "amount": 500}, operationKey=operation)):
        assert (again.status, again.data["id"], again.data["status"]) == (200, made["id"], "pending_approval")
        assert again.headers["X-Idempotent-Replay"] == "current-state"
    assert time.monotonic() - began < 1
    other = scene.agent.invoke(action, {"payment_intent": intent, "amount": 501}, key=key)
    assert (other.status, other.code) == (409, "idempotency_key_reuse")
    assert scene.approve(made["approvalId"]).status == 200
    done = scene.agent.invoke(action, {"payment_intent": intent, "amount": 500}, key=key, operationKey=operation)
    assert (done.status, done.data["id"], done.data["status"]) == (200, made["id"], "succeeded")
    assert scene.writes(intent) == 1


def test_whoever_waits_with_the_same_key_is_told_the_outcome(scene, action):
    """The duplicate comes after the approval, while the provider takes its time."""
    intent, key = unique("pi_slow"), unique("key") # the sandbox answers those late
    made = scene.pending(action, intent, key=key)
    assert scene.approve(made["approvalId"]).status == 200
    done = scene.agent.invoke(action, {"payment_intent": intent, "amount": 500}, key=key)
    assert (done.status, done.data["status"]) == (200, "succeeded")


# ---- who may decide

def test_nobody_decides_what_it_asked_for(scene):
    action = scene.gated_action()
    both = "actions:invoke,actions:read,approvals:decide,approvals:read,approvals:request"
    mine = scene.fleet.api(scene.key("both", "--scopes", both))
    sibling = scene.fleet.api(scene.key("both", "--scopes", both))
    made = scene.pending(action, unique("pi"), who=mine)
    asked = scene.made(mine.post(APPROVALS, {"title": "May I?"}))
    for approval in (made["approvalId"], asked["id"]):
        for who in (mine, sibling):
            for word in ("approve", "deny"):
                refused = scene.decide(word, approval, who)
                assert (refused.status, refused.code) == (403, "SELF_APPROVAL_REFUSED"), refused
        assert scene.approval(approval)["decisions"] == []
        assert scene.approve(approval).status == 200


def test_scopes(scene, action):
    made = scene.pending(action, unique("pi"))
    for who in (scene.agent, scene.operator):
        refused = scene.approve(made["approvalId"], who)
        assert (refused.status, refused.code) == (403, "AUTHORIZATION_ERROR")
        assert refused.error["details"]["scope"] == "approvals:decide"
    blind = scene.fleet.api(scene.key("blind", "--scopes", "approvals:decide"))
    assert blind.get(f"{APPROVALS}/{made['approvalId']}").error["details"]["scope"] == "approvals:read"
    assert blind.post(APPROVALS, {"title": "x"}).error["details"]["scope"] == "approvals:request"


def test_another_environment_is_not_there(scene, action, fleet):
    stranger = Governed(fleet)
    made = scene.pending(action, unique("pi"))
    assert stranger.approve(made["approvalId"]).status == 404
    assert stranger.agent.get(f"{APPROVALS}/{made['approvalId']}").status == 404
    assert stranger.agent.get(APPROVALS).data == []
    for wrong in ("apr_nonsense", "inv" + made["approvalId"][3:], "apr_01ARZ3NDEKTSV4RRFFQ69G5FAV"):
        assert scene.approve(wrong).status == 404


def test_a_key_that_is_held_to_other_actions_has_no_word(scene, action):
    other = scene.refund_action()
    held = scene.fleet.api(scene.key("held", "--scopes", "approvals:decide", "--actions", other))
    made = scene.pending(action, unique("pi"))
    assert scene.approve(made["approvalId"], held).status == 403
    assert scene.deny(made["approvalId"], held).status == 403


def test_several_different_people(scene):
    action, intent = scene.refund_action(), unique("pi")
    scene.policy(action=action, requiredApprovals=2)
    made = scene.pending(action, intent)
    first = scene.approve(made["approvalId"], note="one")
    assert (first.status, first.data["status"], first.data["requiredApprovals"]) == (200, "pending", 2)
    assert [(d["decision"], d["note"], d["agentId"]) for d in first.data["decisions"]] == [("approve", "one", "first")]
    again = scene.approve(made["approvalId"])
    assert (again.status, again.code) == (409, "APPROVAL_ALREADY_COUNTED")
    sibling = scene.person("first")
    assert scene.approve(made["approvalId"], sibling).code == "APPROVAL_ALREADY_COUNTED"
    assert scene.deny(made["approvalId"], sibling).code == "APPROVAL_ALREADY_COUNTED"
    assert scene.agent.invocation(made["id"])["status"] == "pending_approval" and scene.writes(intent) == 0
    second = scene.approve(made["approvalId"], scene.second)
    assert (second.status, second.data["status"], len(second.data["decisions"])) == (200, "approved", 2)
    assert scene.ended(made["id"])["status"] == "succeeded" and scene.writes(intent) == 1


def test_one_denial_is_enough(scene):
    action = scene.refund_action()
    scene.policy(action=action, requiredApprovals=2)
    made = scene.pending(action, unique("pi"))
    assert scene.approve(made["approvalId"]).status == 200
    assert scene.deny(made["approvalId"], scene.second).data["status"] == "denied"
    assert scene.ended(made["id"])["status"] == "denied"


# ---- decisions as writes

def test_a_decision_is_recorded_and_audited(scene, action):
    made = scene.pending(action, unique("pi"))
    key = unique("key")
    first = scene.approve(made["approvalId"], key=key)
    again = scene.approve(made["approvalId"], key=key)
    assert again.status == 200 and again.data == first.data and again.headers["X-Idempotent-Replay"] == "recorded"
    other = scene.deny(made["approvalId"], key=key)
    assert (other.status, other.code) == (409, "idempotency_key_reuse")
    late = scene.approve(made["approvalId"])
    assert (late.status, late.code, late.error["details"]["status"]) == (409, "APPROVAL_DECIDED", "approved")
    rows = scene.sql("select act, agent_id from audit where target = %s", made["approvalId"])
    assert [(r["act"], r["agent_id"]) for r in rows] == [("approval.approve", "first")]


@pytest.mark.parametrize("body, place", [
    ({"note": 5}, "/note"), ({"notes": "x"}, "/notes"), ({"note": "x" * 2001}, "/note")])
def test_decisions_that_cannot_be_read(scene, action, body, place):
    made = scene.pending(action, unique("pi"))
    refused = scene.first.post(f"{APPROVALS}/{made['approvalId']}/approve", body)
    assert (refused.status, refused.error["details"]["place"]) == (400, place)
    assert scene.approval(made["approvalId"])["status"] == "pending"


# ---- the version that was shown

def test_changing_the_action_leaves_what_was_shown(scene):
    """The refund that was approved is sent as it was shown, by the version that was shown."""
    action, intent = scene.gated_action(), unique("pi")
    made = scene.pending(action, intent)
    shown = scene.approval(made["approvalId"])
    definition = scene.made(scene.operator.get(f"/api/v2/actions/{action}"))
    adapter = definition["adapter"]
    adapter["config"]["currency"] = "eur"
    scene.made(scene.operator.patch(f"/api/v2/actions/{action}", {
        "adapter": adapter, "requiresApproval": False, "description": "other"}))
    assert scene.approval(made["approvalId"]) == shown
    assert scene.approve(made["approvalId"]).status == 200
    done = scene.ended(made["id"])
    assert (done["status"], done["actionVersion"]) == ("succeeded", shown["payload"]["actionVersion"])
    assert scene.effect(made["effectId"])["impact"]["unit"] == "usd"


# ---- cancel, expire

def test_cancelling_closes_the_approval(scene, action):
    intent = unique("pi")
    made = scene.pending(action, intent)
    cancelled = scene.cancel(made["id"])
    assert (cancelled.status, cancelled.data["status"]) == (200, "expired")
    approval = scene.approval(made["approvalId"])
    assert (approval["status"], approval["decisionOrigin"]) == ("expired", "system")
    assert approval["note"] == "The invocation was cancelled."
    refused = scene.approve(made["approvalId"])
    assert (refused.status, refused.code, refused.error["details"]["status"]) == (409, "APPROVAL_DECIDED", "expired")
    assert scene.writes(intent) == 0


def test_an_approval_that_nobody_decides_expires_with_its_invocation(scene, action):
    intent, operation = unique("pi"), unique("op")
    made = scene.pending(action, intent, dispatchBeforeSeconds=1, operationKey=operation)
    done = scene.ended(made["id"])
    assert done["status"] == "expired" and "nobody decided its approval in time" in done["error"]
    assert scene.approval(made["approvalId"])["status"] == "expired"
    assert scene.approve(made["approvalId"]).code == "APPROVAL_DECIDED"
    # The operation is free again.
    again = scene.pending(action, intent, operationKey=operation)
    assert again["id"] != made["id"] and scene.writes(intent) == 0


def test_what_was_approved_and_not_sent_in_time_is_not_sent(scene, action):
    """Halted between the approval and the claim, until the approval is over."""
    intent = unique("pi")
    made = scene.pending(action, intent, dispatchBeforeSeconds=2)
    scene.made(scene.operator.post("/api/v2/environment/halt", {}))
    try:
        assert scene.approve(made["approvalId"]).data["status"] == "approved"
        done = scene.ended(made["id"])
    finally:
        scene.made(scene.operator.post("/api/v2/environment/resume"))
    assert done["status"] == "expired" and scene.writes(intent) == 0
    assert scene.approval(made["approvalId"])["usedAt"] is None


def test_a_halt_holds_back_what_is_approved_meanwhile(scene, action):
    intent = unique("pi")
    made = scene.pending(action, intent)
    scene.made(scene.operator.post("/api/v2/environment/halt", {}))
    try:
        assert scene.approve(made["approvalId"]).data["status"] == "approved"
        time.sleep(0.5)
        assert scene.agent.invocation(made["id"])["status"] == "running" and scene.writes(intent) == 0
    finally:
        scene.made(scene.operator.post("/api/v2/environment/resume"))
    assert scene.ended(made["id"])["status"] == "succeeded" and scene.writes(intent) == 1


def test_limits_are_asked_when_it_is_sent(scene):
    action = scene.gated_action()
    limit = scene.limit(action, amount=600)
    made = [scene.pending(action, unique("pi")) for _ in range(2)]
    for one in made:
        assert scene.approve(one["approvalId"]).status == 200
    ends = [scene.ended(one["id"]) for one in made]
    assert sorted(end["status"] for end in ends) == ["failed", "succeeded"]
    assert scene.usage(limit) == (500, 0, 0)


# ---- asked for by itself

def test_asking_for_an_approval(scene):
    asked = scene.agent.post(APPROVALS, {
        "title": "Ship it?", "description": "Both of them.", "payload": {"b": [1, "ü"], "a": None},
        "expiresInSeconds": 60, "runId": "run_1", "parentSpanId": "span_1"})
    assert asked.status == 201, asked
    approval = asked.data
    assert (approval["status"], approval["title"], approval["description"]) == ("pending", "Ship it?", "Both of them.")
    assert approval["payload"] == {"a": None, "b": [1, "ü"]}
    assert approval["payloadHash"] == hashlib.sha256('{"a":null,"b":[1,"ü"]}'.encode()).hexdigest()
    assert approval["action"] is None and approval["invocationId"] is None
    assert (approval["runId"], approval["parentSpanId"]) == ("run_1", "span_1")
    decided = scene.approve(approval["id"], note="Yes.")
    assert (decided.status, decided.data["status"]) == (200, "approved")
    assert scene.approval(approval["id"]) == decided.data


def test_asking_again_with_the_same_key(scene):
    key = unique("key")
    body = {"title": "Once"}
    first, again = (scene.agent.post(APPROVALS, body, {"Idempotency-Key": key}) for _ in range(2))
    assert first.data["id"] == again.data["id"]
    other = scene.agent.post(APPROVALS, {"title": "Twice"}, {"Idempotency-Key": key})
    assert other.code == "idempotency_key_reuse"


@pytest.mark.parametrize("body, place", [
    ({}, "/title"), ({"title": ""}, "/title"), ({"title": " \n"}, "/title"), ({"title": "x" * 301}, "/title"),
    ({"title": "x", "payload": []}, "/payload"), ({"title": "x", "payload": "x"}, "/payload"),
    ({"title": "x", "expiresInSeconds": 0}, "/expiresInSeconds"),
    ({"title": "x", "expiresInSeconds": 1.5}, "/expiresInSeconds"),
    ({"title": "x", "expiresInSeconds": 10 ** 9}, "/expiresInSeconds"),
    ({"title": "x", "action": "refund"}, "/action"), ({"title": "x", "runId": 1}, "/runId")])
def test_requests_that_cannot_be_read(scene, body, place):
    refused = scene.agent.post(APPROVALS, body)
    assert (refused.status, refused.code, refused.error["details"]["place"]) == (400, "VALIDATION_ERROR", place)


def test_one_that_nobody_decides_expires(scene):
    asked = scene.made(scene.agent.post(APPROVALS, {"title": "Quick", "expiresInSeconds": 1}))
    seen = wait_until(lambda: (lambda a: a if a["status"] != "pending" else None)(scene.approval(asked["id"])), 10)
    assert (seen["status"], seen["decisionOrigin"]) == ("expired", "system")
    assert scene.approve(asked["id"]).code in ("APPROVAL_DECIDED", "APPROVAL_EXPIRED")


def test_the_inbox(fleet):
    scene = Governed(fleet)
    ids = [scene.made(scene.agent.post(APPROVALS, {"title": f"No. {i}"}))["id"] for i in range(4)]
    scene.approve(ids[0])
    scene.deny(ids[1])
    scene.policy("auto_deny", "custom", conditions={
        "properties": {"input": {"required": ["bad"]}}, "required": ["input"]})
    wait_until(lambda: scene.agent.post(APPROVALS, {"title": "bad", "payload": {"bad": 1}}).data["status"] == "denied")

    def listed(query):
        answer = scene.agent.get(APPROVALS + query)
        assert answer.status == 200, answer
        return answer

    assert [a["id"] for a in listed("?status=pending").data] == [ids[3], ids[2]]
    assert [a["id"] for a in listed("?status=approved").data] == [ids[0]]
    assert ids[1] in [a["id"] for a in listed("?status=denied").data]
    assert [a["id"] for a in listed("?decisionOrigin=human").data] == [ids[1], ids[0]]
    by_policy = listed("?decisionOrigin=policy").data
    assert by_policy and all(a["policy"]["version"] == 1 for a in by_policy)
    assert listed("?decisionOrigin=automated").data == by_policy
    assert listed("?decisionOrigin=assistant").data == [] == listed("?status=expired").data
    page = listed("?limit=2&offset=1&status=pending")
    assert [a["id"] for a in page.data] == [ids[2]]
    assert page.json["pagination"] == {"limit": 2, "offset": 1, "total": 2}
    for bad in ("?status=maybe", "?decisionOrigin=me", "?limit=0", "?offset=-1"):
        assert scene.agent.get(APPROVALS + bad).status == 400


# ---- waiting

def test_a_wait_ends_with_the_decision(scene):
    asked = scene.made(scene.agent.post(APPROVALS, {"title": "Soon"}))
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        waits = [pool.submit(scene.approval, asked["id"], wait=20) for _ in range(20)]
        time.sleep(0.3)
        assert not any(wait.done() for wait in waits)
        began = time.monotonic()
        scene.deny(asked["id"])
        assert {wait.result()["status"] for wait in waits} == {"denied"}
        assert time.monotonic() - began < 0.9


def test_a_wait_that_ends_first_is_no_error(scene):
    asked = scene.made(scene.agent.post(APPROVALS, {"title": "Later"}))
    began = time.monotonic()
    assert scene.approval(asked["id"], wait=1)["status"] == "pending"
    assert 0.9 < time.monotonic() - began < 3
    scene.approve(asked["id"])
    began = time.monotonic()
    assert scene.approval(asked["id"], wait=30)["status"] == "approved"
    assert time.monotonic() - began < 1


def test_a_wait_for_a_gated_call_ends_with_its_cancellation(scene, action):
    made = scene.pending(action, unique("pi"))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(scene.approval, made["approvalId"], wait=20)
        time.sleep(0.2)
        scene.cancel(made["id"])
        assert waiting.result(5)["status"] == "expired"


@pytest.mark.parametrize("query", ["waitSeconds=x", "waitSeconds=-1", "waitSeconds=1.5"])
def test_waits_that_cannot_be_read(scene, query):
    asked = scene.made(scene.agent.post(APPROVALS, {"title": "x"}))
    assert scene.agent.get(f"{APPROVALS}/{asked['id']}?{query}").status == 400


# ---- by hand

def test_an_approval_of_other_arguments_is_not_enough(scene, action):
    """Somebody changes the database past every guard: the claim still compares what is sent with what was said."""
    for damage in (
            "update approvals set payload = replace(payload, '500', '900'),"
            " payload_hash = sha256(convert_to(replace(payload, '500', '900'), 'UTF8')) where id = %s",
            "update approvals set required_approvals = 2 where id = %s",
            "update effects set input = replace(input, '500', '900') where id = %s",
            "update effects set request = convert_to(replace(convert_from(request, 'UTF8'), '500', '900'), 'UTF8')"
            " where id = %s",
            "delete from approval_decisions where approval_id = %s",
            "update open_effects set gated = false where id = %s and false"):
        intent = unique("pi")
        made = scene.pending(action, intent)
        scene.made(scene.operator.post("/api/v2/environment/halt", {}))
        try:
            assert scene.approve(made["approvalId"]).status == 200
            scene.sql("set session_replication_role = replica; " + damage.replace("%s", f"'{raw(made['id'])}'"))
        finally:
            scene.made(scene.operator.post("/api/v2/environment/resume"))
        done = scene.ended(made["id"])
        if "and false" in damage:  # nothing was damaged: else this test shows nothing
            assert done["status"] == "succeeded" and scene.writes(intent) == 1
        else:
            assert done["status"] == "failed" and scene.writes(intent) == 0, damage
            assert "approval" in done["error"]
