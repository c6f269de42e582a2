"""The main flow, driven by the public client: a refund, and one whose answer is lost."""

import time

import pytest
from anlyon.errors import ValidationError

from harness import unique, wait_until
from scene import UNKNOWN, Scene, kinds, texts


class Flow:
    """A scene whose people use the public client; with a refund action and a limit of 20000 a day."""

    def __init__(self, fleet, **config):
        self.scene = Scene(fleet)
        self.sandbox = fleet.sandbox
        self.operator = fleet.client(self.scene.operator.key)
        self.agent = fleet.client(self.scene.agent.key)
        self.operator.secrets.put("STRIPE_TEST_KEY", value="sk_test_client",
                                  allowed_hosts=["127.0.0.1"], allowed_placements=["header"])
        self.limit = self.operator.impact_limits.create(
            name="refunds a day", dimension="money", period="day", amount=20000, currency="usd")["id"]
        self.action = unique("refund-order")
        self.operator.actions.create(
            name=self.action, description="Refunds a payment",
            adapter={"type": "stripe.refund", "credentialSecret": "STRIPE_TEST_KEY",
                     "config": {"account": "acct_1", "mode": "test", "currency": "usd",
                                "baseUrl": fleet.env["SANDBOX_URL"], **config}})

    def usage(self):
        found = self.operator.impact_limits.get(self.limit)
        return found["consumed"], found["reserved"], found["unknownExposure"]

    def refund(self, intent, amount=12000, **more):
        return self.agent.actions.invoke(
            self.action, {"payment_intent": intent, "amount": amount}, **more)

    def settled(self, effect_id):
        return wait_until(lambda: self.effect_if(effect_id, stage="settled"), 20, what="a settlement")

    def effect_if(self, effect_id, **members):
        effect = self.agent.actions.effect(effect_id).data
        return effect if all(effect[name] == value for name, value in members.items()) else None


def test_a_refund_is_acknowledged_then_confirmed(fleet):
    flow = Flow(fleet)
    intent = unique("pi")
    made = flow.refund(intent, idempotency_key="refund-1")
    assert (made["status"], made["grade"], made["responseStatus"]) == ("succeeded", "acknowledged", 200)
    assert made["error"] is None and made["response"]["object"] == "refund"
    assert (made["action"], made["actionVersion"], made["idempotencyKey"]) == (
        flow.action, 1, "refund-1")
    assert flow.usage() == (12000, 0, 0)

    effect = wait_until(lambda: flow.effect_if(made["effectId"], grade="confirmed"), 20)
    assert (effect["outcome"], effect["stage"], effect["verification"]) == (
        "succeeded", "settled", "provider")
    assert kinds(effect) == ["dispatch", "reconcile"]
    assert effect["provider"]["objectId"] == made["response"]["id"]
    assert effect["provider"]["adapter"] == "stripe.refund"
    assert [(r["limitId"], r["amount"], r["state"]) for r in effect["reservations"]] == [
        (flow.limit, 12000, "consumed")]
    assert flow.agent.actions.invocation(made["id"])["grade"] == "confirmed"
    counts = flow.sandbox.counts(intent=intent)
    assert (counts["writes"], counts["applied"]) == (1, 1)
    assert flow.usage() == (12000, 0, 0)


def test_the_provider_got_what_was_asked_for(fleet):
    flow = Flow(fleet)
    intent = unique("pi")
    made = flow.agent.actions.invoke(flow.action, {
        "payment_intent": intent, "amount": 700, "reason": "duplicate", "metadata": {"order": "a&b=c"}})
    write = flow.scene.requests(intent)[0]
    headers = {name.lower(): value for name, value in write["headers"]}
    assert (write["method"], write["target"]) == ("POST", "/v1/refunds")
    assert headers["authorization"] == "Bearer sk_test_client"
    effect = flow.agent.actions.effect(made["effectId"])
    assert headers["idempotency-key"] == effect["provider"]["idempotencyKey"]
    assert write["body"] == (f"amount=700&payment_intent={intent}&reason=duplicate&"
                             f"metadata[holdfast_effect]={effect['id']}&metadata[order]=a%26b%3Dc")
    assert made["response"]["metadata"] == {"holdfast_effect": effect["id"], "order": "a&b=c"}


def check_unknown(flow, made):
    """What api.md promises about an invocation whose answer was lost, before anything was read."""
    assert (made["status"], made["grade"]) == ("unknown", "unknown")
    assert made["error"] == UNKNOWN.format(made["effectId"])
    assert made["responseStatus"] is None and made["response"] is None
    effect = flow.agent.actions.effect(made["effectId"])
    assert (effect["stage"], effect["outcome"], effect["verification"]) == (
        "reconciling", "unknown", "unverified")
    assert effect["unresolvedExposure"] is True and effect["grade"] == "unknown"
    assert effect["conflict"] is False and effect["nextReadBackAt"] is not None
    assert effect["reservations"] == [{"limitId": flow.limit, "amount": 12000, "state": "held"}]
    assert kinds(effect) == ["dispatch"]
    attempt = effect["attempts"][0]
    assert attempt["result"] == "unknown" and attempt["sentAt"] is not None
    assert flow.usage() == (0, 12000, 12000)


def check_settled_by_read_back(flow, made, intent):
    effect = flow.settled(made["effectId"])
    assert (effect["outcome"], effect["grade"], effect["verification"]) == (
        "succeeded", "confirmed", "provider")
    assert effect["unresolvedExposure"] is False and effect["nextReadBackAt"] is None
    assert kinds(effect) == ["dispatch", "reconcile"]
    assert flow.usage() == (12000, 0, 0)
    counts = flow.sandbox.counts(intent=intent)
    assert (counts["writes"], counts["reads"], counts["applied"]) == (1, 1, 1)
    invocation = flow.agent.actions.invocation(made["id"])
    assert (invocation["status"], invocation["grade"], invocation["error"]) == (
        "succeeded", "confirmed", None)
    return effect


def test_a_lost_answer_is_settled_by_the_scheduled_read_back(fleet):
    flow = Flow(fleet)
    intent = unique("pi")
    flow.sandbox.fault("drop", {"intent": intent, "kind": "write"})
    began = time.monotonic()
    made = flow.refund(intent)
    assert time.monotonic() - began < 3  # unknown is told at once, not when the wait is over
    check_unknown(flow, made)
    unresolved = flow.agent.actions.effects(unresolved=True)
    assert [e["id"] for e in unresolved] == [made["effectId"]]
    assert [i["id"] for i in flow.agent.actions.invocations(status="unknown")] == [made["id"]]
    effect = check_settled_by_read_back(flow, made, intent)
    assert effect["provider"]["objectId"].startswith("re_")
    assert len(flow.agent.actions.effects(unresolved=True)) == 0


def test_the_fault_drill_loses_the_answer(fleet):
    flow = Flow(fleet, faultDrill="drop_response_after_send")
    intent = unique("pi")
    made = flow.refund(intent)
    check_unknown(flow, made)
    effect = check_settled_by_read_back(flow, made, intent)
    assert "Fault drill" in effect["attempts"][0]["evidence"]


def test_unknown_money_is_not_spent_again(fleet):
    flow = Flow(fleet)
    intent = unique("pi")
    reads = flow.scene.block_reads(intent)
    flow.sandbox.fault("drop", {"intent": intent, "kind": "write"})
    lost = flow.refund(intent)
    assert lost["status"] == "unknown"
    varied = flow.refund(intent, 12001)  # the agent tries again with a variation
    assert (varied["status"], varied["grade"]) == ("failed", "refused")
    refused = flow.agent.actions.effect(varied["effectId"])
    assert (refused["outcome"], refused["stage"]) == ("not_dispatched", "rejected")
    assert refused["reservations"] == [] and refused["attempts"] == []
    again = flow.refund(intent, 8000)
    assert again["status"] == "succeeded"
    assert flow.usage() == (8000, 12000, 12000)
    flow.scene.end_rule(reads)
    flow.settled(lost["effectId"])
    assert flow.usage() == (20000, 0, 0)
    assert flow.sandbox.counts(intent=intent)["writes"] == 2


@pytest.fixture
def declared(fleet):
    """A declared action with impact and verify on the sandbox's generic objects."""
    flow = Flow(fleet)
    base = fleet.env["SANDBOX_URL"]
    flow.action = unique("open-ticket")
    flow.operator.actions.create(
        name=flow.action, method="POST", url_template=f"{base}/generic/tickets",
        headers={"Authorization": "Bearer {{secret:STRIPE_TEST_KEY}}",
                 "X-Holdfast-Effect": "{{effect.id}}"},
        body_template={"title": "{{input.title}}", "cost": "{{input.cost}}", "ref": "{{effect.id}}"},
        input_schema={"type": "object", "required": ["title", "cost"], "additionalProperties": False,
                      "properties": {"title": {"type": "string"}, "cost": {"type": "integer"}}},
        impact={"dimension": "money", "unit": "usd", "amount": "input.cost", "bound": "exact"},
        verify={"url": f"{base}/generic/tickets?ref={{{{effect.id}}}}", "status": 200,
                "match": [{"path": "data.*.ref", "equals": "{{effect.id}}"},
                          {"path": "data.*.cost", "equals": "{{input.cost}}"}]})
    return flow


def test_a_declared_action_is_confirmed(declared):
    made = declared.agent.actions.invoke(declared.action, {"title": "a \"b\"", "cost": 300})
    assert (made["status"], made["grade"]) == ("succeeded", "acknowledged")
    assert made["response"]["title"] == 'a "b"' and made["response"]["cost"] == 300
    effect = wait_until(lambda: declared.effect_if(made["effectId"], grade="confirmed"), 20)
    assert kinds(effect) == ["dispatch", "reconcile"]
    assert effect["impact"] == {"dimension": "money", "unit": "usd", "amount": 300, "bound": "exact"}
    assert declared.usage() == (300, 0, 0)
    counts = declared.sandbox.counts(effect=made["effectId"])
    assert (counts["writes"], counts["reads"]) == (1, 1)


def test_a_lost_answer_of_a_declared_action_is_read_back(declared):
    declared.sandbox.fault("reset", {"path_prefix": "/generic/tickets", "kind": "write"})
    made = declared.agent.actions.invoke(declared.action, {"title": "x", "cost": 400})
    assert made["status"] == "unknown" and made["error"] == UNKNOWN.format(made["effectId"])
    assert declared.usage() == (0, 400, 400)
    effect = declared.settled(made["effectId"])
    assert (effect["grade"], kinds(effect)) == ("confirmed", ["dispatch", "reconcile"])
    assert declared.usage() == (400, 0, 0)
    counts = declared.sandbox.counts(effect=made["effectId"])
    assert (counts["writes"], counts["applied"], counts["reads"]) == (1, 1, 1)


def test_a_declared_rule_that_does_not_match_leaves_it_unknown(declared):
    declared.sandbox.fault("drop", {"path_prefix": "/generic/tickets", "kind": "write"}, apply=False)
    made = declared.agent.actions.invoke(declared.action, {"title": "x", "cost": 500})
    assert made["status"] == "unknown"
    sentence = ("The read-back did not match the declared verify rule. That does not prove the write "
                "failed, so the outcome stays unknown.")
    effect = wait_until(lambda: next(
        (e for e in [declared.agent.actions.effect(made["effectId"]).data]
         if len(texts(e, "reconcile")) >= 2), None), 20, what="two reads")
    assert set(texts(effect, "reconcile")) == {sentence}
    assert (effect["stage"], effect["outcome"]) == ("reconciling", "unknown")
    assert declared.usage() == (0, 500, 500)


def test_the_input_is_checked_before_anything_is_stored(declared):
    with pytest.raises(ValidationError) as refused:
        declared.agent.actions.invoke(declared.action, {"title": "x", "cost": "500"})
    assert "cost" in str(refused.value)
    assert len(declared.agent.actions.effects()) == 0
    assert declared.usage() == (0, 0, 0)
