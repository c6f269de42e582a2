"""Approval policies: what they say, which one decides, who may change them, and policy files."""

import json

import pytest

from governed import POLICIES, Governed
from harness import unique, wait_until


@pytest.fixture
def scene(fleet):
    """An environment for each test: policies of one would decide about the other's."""
    return Governed(fleet)


@pytest.fixture(scope="module")
def shared(fleet):
    return Governed(fleet)


def evaluate(scene, action, payload=None, who=None, **more):
    body = {"kind": "action", "actionName": action, "payload": payload or {"payment_intent": "pi_1", "amount": 500}, **more}
    answer = (who or scene.operator).post(f"{POLICIES}/evaluate", body)
    assert answer.status == 200, answer
    return answer.data


def status_when(scene, action, wanted, amount=500, who=None):
    """Invokes until the policies in force say so; gives the last invocation. A policy is in force within a second."""
    seen = {}

    def look():
        answer = (who or scene.agent).invoke(action, {"payment_intent": unique("pi"), "amount": amount})
        seen["last"] = answer.data
        return answer.data["status"] == wanted

    wait_until(look, 10, what=f"{wanted} in {seen}")
    return seen["last"]


# ---- each effect

def test_require_approval_parks_the_call_and_names_the_policy(scene):
    action = scene.refund_action()
    policy = scene.policy(action=action, requiredApprovals=2)
    made = status_when(scene, action, "pending_approval")
    assert scene.effect(made["effectId"])["policy"] == {"id": policy["id"], "version": 1}
    assert scene.approve(made["approvalId"]).data["status"] == "pending"
    assert scene.approve(made["approvalId"], who=scene.second).data["status"] == "approved"
    assert scene.ended(made["id"])["status"] == "succeeded"


def test_auto_approve_is_stronger_than_the_action(scene):
    action = scene.gated_action()
    assert scene.agent.invoke(action, {"payment_intent": unique("pi"), "amount": 5}).data["status"] == "pending_approval"
    scene.policy("auto_approve", action=action)
    status_when(scene, action, "succeeded")


def test_auto_deny_is_for_good_and_holds_its_operation(scene):
    action, intent, operation, key = scene.refund_action(), unique("pi"), unique("op"), unique("key")
    policy = scene.policy("auto_deny", action=action)
    made = status_when(scene, action, "denied")
    assert made["grade"] == "denied" and "was denied and never left" in made["error"]
    value = {"payment_intent": intent, "amount": 5}
    first = scene.agent.invoke(action, value, key=key, operationKey=operation).data
    assert scene.operator.delete(f"{POLICIES}/{policy['id']}").status in (200, 204)
    status_when(scene, action, "succeeded")
    for again in (scene.agent.invoke(action, value, key=key, operationKey=operation),
                  scene.agent.invoke(action, value, operationKey=operation)):
        assert (again.data["id"], again.data["status"]) == (first["id"], "denied")
    assert scene.writes(intent) == 0


# ---- which one decides

def test_the_highest_priority_decides_and_the_older_of_two_equals(scene):
    action = scene.refund_action()
    scene.policy("auto_deny", action=action, priority=10)
    assert evaluate(scene, action)["effect"] == "auto_deny"
    scene.policy("require_approval", action=action, priority=10)
    assert evaluate(scene, action)["effect"] == "auto_deny"
    scene.policy("auto_approve", action=action, priority=11)
    assert evaluate(scene, action)["effect"] == "auto_approve"


@pytest.mark.parametrize("match, hits", [
    ({"matchAgentId": "agent"}, {"agentId": "agent"}), ({"matchUserId": "u1"}, {"userId": "u1"}),
    ({"matchTags": ["eu", "night"]}, {"tags": ["night", "eu", "more"]}),
    ({"minAmount": 500}, {}),
    ({"conditions": {"properties": {"input": {"properties": {"amount": {"maximum": 500}}}}}}, {})])
def test_each_matcher_hits_what_it_says(scene, match, hits):
    action = scene.refund_action()
    scene.policy("auto_deny", action=action, **match)
    assert evaluate(scene, action, **hits)["effect"] == "auto_deny"


@pytest.mark.parametrize("match, misses", [
    ({"matchAgentId": "agent"}, {"agentId": "other"}), ({"matchUserId": "u1"}, {"userId": "u2"}),
    ({"matchUserId": "u1"}, {}), ({"matchTags": ["eu", "night"]}, {"tags": ["eu"]}),
    ({"minAmount": 501}, {}),
    ({"conditions": {"properties": {"input": {"properties": {"amount": {"maximum": 499}}}}}}, {}),
    ({"conditions": {"properties": {"agentId": {"const": "nobody"}}}}, {"agentId": "agent"})])
def test_each_matcher_misses_what_it_does_not_say(scene, match, misses):
    action = scene.refund_action()
    scene.policy("auto_deny", action=action, **match)
    assert evaluate(scene, action, **misses)["effect"] == "none"


def test_another_action_is_not_meant(scene):
    meant, other = scene.refund_action(), scene.refund_action()
    scene.policy("auto_deny", action=meant)
    assert evaluate(scene, other)["effect"] == "none"
    assert [p["matchActionName"] for p in scene.operator.get(f"{POLICIES}?actionName={meant}").data] == [meant]
    assert scene.operator.get(f"{POLICIES}?actionName={other}").data == []


def test_min_amount_is_of_the_declared_impact_and_unknown_counts_as_large(scene):
    """A refund of all that is left declares no quantity."""
    action = scene.refund_action()
    scene.policy("require_approval", action=action, minAmount=10000)
    assert evaluate(scene, action, {"payment_intent": "pi_1", "amount": 9999})["effect"] == "none"
    assert evaluate(scene, action, {"payment_intent": "pi_1", "amount": 10000})["effect"] == "require_approval"
    assert evaluate(scene, action, {"payment_intent": "pi_1"})["effect"] == "require_approval"


def test_a_disabled_policy_does_not_decide(scene):
    action = scene.refund_action()
    policy = scene.policy("auto_deny", action=action, enabled=False)
    assert evaluate(scene, action)["effect"] == "none"
    assert scene.operator.patch(f"{POLICIES}/{policy['id']}", {"enabled": True}).status == 200
    assert evaluate(scene, action)["effect"] == "auto_deny"


# ---- the resource

def test_every_edit_is_a_version_and_a_delete_leaves_a_tombstone(scene):
    policy = scene.policy("auto_deny", action=scene.refund_action(), changeNote="first")
    one = f"{POLICIES}/{policy['id']}"
    assert scene.operator.patch(one, {"priority": 7, "changeNote": "second"}).data["version"] == 2
    assert scene.operator.patch(one, {"minAmount": 100}).data["minAmount"] == 100
    assert scene.operator.patch(one, {"minAmount": None}).data["minAmount"] is None
    assert scene.operator.delete(one).status in (200, 204)
    assert scene.operator.get(one).status == 404 and scene.operator.delete(one).status == 404
    versions = scene.operator.get(f"{one}/versions").data
    assert [v["version"] for v in versions] == [5, 4, 3, 2, 1]
    page = scene.operator.get(f"{one}/versions?limit=2").body
    page = json.loads(page) if isinstance(page, (bytes, str)) else page
    assert page["pagination"]["nextBefore"] == 4
    assert [v["version"] for v in scene.operator.get(f"{one}/versions?limit=2&before=4").data] == [3, 2]
    assert scene.operator.get(f"{one}/versions/2").data["priority"] == 7
    assert scene.operator.get(f"{one}/versions/9").status == 404


@pytest.mark.parametrize("wrong, place", [
    ({"name": ""}, "/name"), ({"matchKind": "some"}, "/matchKind"), ({"effect": "maybe"}, "/effect"),
    ({"matchKind": "any", "matchActionName": "x"}, "/matchActionName"), ({"minAmount": -1}, "/minAmount"),
    ({"minAmount": 1.5}, "/minAmount"), ({"requiredApprovals": 0}, "/requiredApprovals"),
    ({"requiredApprovals": 11}, "/requiredApprovals"), ({"priority": "1"}, "/priority"),
    ({"conditions": {"type": "nothing"}}, "/conditions"), ({"conditions": 1}, "/conditions"),
    ({"matchTags": ["a", "a"]}, "/matchTags"), ({"what": 1}, "what")])
def test_a_policy_that_reads_wrong_names_the_place(shared, wrong, place):
    body = {"name": unique("p"), "matchKind": "action", "matchActionName": "x", "effect": "auto_deny", **wrong}
    if "matchKind" in wrong and "matchActionName" not in wrong:
        del body["matchActionName"]
    answer = shared.operator.post(POLICIES, body)
    assert (answer.status, answer.code) == (400, "VALIDATION_ERROR"), answer
    assert place in answer.error["details"]["place"] or place in answer.error["message"], answer


@pytest.mark.parametrize("broad", [{"matchKind": "any"}, {"matchKind": "action"}])
def test_a_broad_denial_has_to_be_acknowledged(scene, broad):
    body = {"name": unique("p"), "effect": "auto_deny", **broad}
    refused = scene.operator.post(POLICIES, body)
    assert (refused.status, refused.error["details"]["place"]) == (400, "/acknowledgeBroadScope")
    assert scene.operator.post(POLICIES, {**body, "acknowledgeBroadScope": True}).status in (200, 201)


def test_an_edit_that_makes_a_denial_broad_has_to_be_acknowledged(scene):
    policy = scene.policy("auto_deny", action=scene.refund_action())
    refused = scene.operator.patch(f"{POLICIES}/{policy['id']}", {"matchActionName": None})
    assert (refused.status, refused.error["details"]["place"]) == (400, "/acknowledgeBroadScope")


def test_cel_is_not_available_and_a_name_is_taken_once(scene):
    body = {"name": unique("p"), "matchKind": "action", "matchActionName": "x", "effect": "auto_deny"}
    cel = scene.operator.post(POLICIES, {**body, "condition": "input.amount > 1"})
    assert (cel.status, cel.code) == (402, "FEATURE_NOT_AVAILABLE")
    assert scene.operator.post(POLICIES, body).status in (200, 201)
    assert (scene.operator.post(POLICIES, body).status) == 409


def test_an_agent_sees_and_changes_none(scene):
    policy = scene.policy("auto_deny", action=scene.refund_action())
    for answer in (scene.agent.get(POLICIES), scene.agent.get(f"{POLICIES}/{policy['id']}"),
                   scene.agent.post(POLICIES, {}), scene.agent.patch(f"{POLICIES}/{policy['id']}", {}),
                   scene.agent.delete(f"{POLICIES}/{policy['id']}"),
                   scene.agent.post(f"{POLICIES}/files/plan", {"source": ""}),
                   scene.agent.post(f"{POLICIES}/files/apply", {"source": "", "digest": "x"})):
        assert (answer.status, answer.code) == (403, "AUTHORIZATION_ERROR")


def test_an_environment_has_its_own(scene, shared):
    policy = scene.policy("auto_deny", action=scene.refund_action())
    assert shared.operator.get(f"{POLICIES}/{policy['id']}").status == 404
    assert shared.operator.patch(f"{POLICIES}/{policy['id']}", {"enabled": False}).status == 404


# ---- files

FILE = """version: 1
policies:
  - name: small refunds
    matchKind: action
    matchActionName: {action}
    effect: auto_approve
    priority: 5
    conditions:
      properties:
        input: {{properties: {{amount: {{maximum: 1000}}}}}}
  - name: the rest
    matchKind: action
    matchActionName: {action}
    effect: require_approval
"""


def plan(scene, source):
    answer = scene.operator.post(f"{POLICIES}/files/plan", {"source": source})
    assert answer.status == 200, answer
    return answer.data


def apply(scene, source, digest):
    return scene.operator.post(f"{POLICIES}/files/apply", {"source": source, "digest": digest})


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_a_file_is_planned_applied_and_then_changes_nothing(scene, form):
    action = scene.refund_action()
    source = FILE.format(action=action)
    if form == "json":
        small = {"properties": {"input": {"properties": {"amount": {"maximum": 1000}}}}}
        meant = {"matchKind": "action", "matchActionName": action}
        source = json.dumps({"version": 1, "policies": [
            {"name": "small refunds", **meant, "effect": "auto_approve", "priority": 5, "conditions": small},
            {"name": "the rest", **meant, "effect": "require_approval"}]})
    first = plan(scene, source)
    assert first["valid"] and len(first["changes"]) == 2
    assert scene.operator.get(POLICIES).data == []
    done = apply(scene, source, first["digest"])
    assert done.status == 200, done
    assert [p["name"] for p in scene.operator.get(POLICIES).data] == ["small refunds", "the rest"]
    assert evaluate(scene, action, {"payment_intent": "pi_1", "amount": 1000})["effect"] == "auto_approve"
    assert evaluate(scene, action, {"payment_intent": "pi_1", "amount": 1001})["effect"] == "require_approval"
    assert {c["action"] for c in plan(scene, source)["changes"]} <= {"unchanged"}


def test_a_plan_that_is_no_longer_true_is_refused(scene):
    source = FILE.format(action=scene.refund_action())
    digest = plan(scene, source)["digest"]
    scene.policy("auto_deny", action="another")
    stale = apply(scene, source, digest)
    assert (stale.status, stale.code) == (409, "STALE_PLAN")
    assert apply(scene, source + "# more\n", plan(scene, source)["digest"]).status in (200, 409)
    assert apply(scene, source, "0" * 64).code == "STALE_PLAN"


def test_what_a_file_no_longer_has_is_deleted_and_others_are_left(scene):
    action = scene.refund_action()
    source = FILE.format(action=action)
    apply(scene, source, plan(scene, source)["digest"])
    by_hand = scene.policy("auto_deny", action=action, priority=-5)
    shorter = source[:source.index("  - name: the rest")]
    assert apply(scene, shorter, plan(scene, shorter)["digest"]).status == 200
    assert {p["name"] for p in scene.operator.get(POLICIES).data} == {"small refunds", by_hand["name"]}


def test_a_file_is_tried_on_cases_and_nothing_is_written(scene):
    action = scene.refund_action()
    source = FILE.format(action=action)
    request = {"kind": "action", "actionName": action}
    cases = [{"name": "small", **request, "payload": {"payment_intent": "p", "amount": 5}, "expect": "auto_approve"},
             {"name": "large", **request, "payload": {"payment_intent": "p", "amount": 5000}, "expect": "auto_approve"}]
    tried = scene.operator.post(f"{POLICIES}/files/test", {"source": source, "cases": cases})
    assert tried.status == 200, tried
    results = tried.data["cases" if "cases" in tried.data else "results"]
    assert [r["passed"] for r in results] == [True, False]
    assert scene.operator.get(POLICIES).data == []


@pytest.mark.parametrize("source", [
    "version: 1\npolicies: [*a]", "version: 1\npolicies: &a [*a]", "policies: {", "version: 2\npolicies: []",
    "version: 1\npolicies:\n  - name: x\n    name: y\n", "- 1", "version: 1\npolicies: [{name: a, effect: auto_deny}]",
    "version: 1\npolicies:\n" + "  - {name: a, matchKind: any, effect: require_approval}\n" * 2,
    "a: &a [x,x,x,x]\nb: &b [*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b]\nversion: 1\npolicies: []",
    "[" * 500, "!!python/object:os.system x"])
def test_a_file_that_reads_wrong_is_refused_with_its_places(shared, source):
    answer = shared.operator.post(f"{POLICIES}/files/plan", {"source": source})
    if answer.status == 200:
        assert answer.data["valid"] is False and answer.data["errors"], answer
    else:
        assert (answer.status, answer.code) == (400, "VALIDATION_ERROR"), answer
    refused = apply(shared, source, "0" * 64)
    assert (refused.status, refused.code) == (400, "VALIDATION_ERROR"), refused


# ---- the public client

def test_the_public_client_drives_it(scene):
    client = scene.fleet.client(scene.operator.key)
    action = scene.refund_action()
    made = client.approval_policies.create(name="c", match_kind="action", match_action_name=action, effect="auto_deny")
    assert client.approval_policies.get(made["id"])["name"] == "c"
    assert client.approval_policies.disable(made["id"])["enabled"] is False
    assert client.approval_policies.enable(made["id"])["enabled"] is True
    decided = client.approval_policies.evaluate(kind="action", action_name=action,
                                                payload={"payment_intent": "pi_1", "amount": 1})
    assert decided["effect"] == "auto_deny"
    client.approval_policies.delete(made["id"])
    assert len(client.approval_policies.versions(made["id"])) >= 2
    source = FILE.format(action=action)
    planned = client.approval_policies.plan_file(source)
    client.approval_policies.apply_file(source, digest=planned["digest"])
    assert [p["name"] for p in client.approval_policies.list()] == ["small refunds", "the rest"]
