"""What a person may say about an effect: who, when, with what reason, and what it does to the money."""

import pytest

from harness import unique
from scene import Scene, Stories, effect_url, kinds, texts

AMOUNT = 12000

story = Stories()


class Lost:
    """An unknown refund whose reads get no usable answer, and its limit."""

    def __init__(self, scene, applied=True, who=None, do="drop", **fault):
        self.scene = scene
        self.intent = unique("pi")
        self.reads = scene.block_reads(self.intent)
        scene.sandbox.fault(do, {"intent": self.intent, "kind": "write"}, apply=applied, **fault)
        action = scene.lossy_refund_action()
        self.limit = scene.limit(action)
        made = (who or scene.agent).invoke(action, {"payment_intent": self.intent, "amount": AMOUNT})
        assert made.status == 200 and made.data["status"] == "unknown", made
        self.action, self.id, self.invocation_id = action, made.data["effectId"], made.data["id"]

    def usage(self):
        return self.scene.usage(self.limit)

    def check_unknown(self):
        effect = self.scene.effect(self.id)
        assert (effect["stage"], effect["outcome"]) == ("reconciling", "unknown")
        assert self.usage() == (0, AMOUNT, AMOUNT)


def audits(scene, target):
    return scene.fleet.psql("select act, agent_id, detail from audit where target = %s order by n", target)


@story
def succeeded_consumes(scene):
    lost = Lost(scene)
    answer = scene.resolve(lost.id, "succeeded", "The dashboard shows it.", externalReference="re_77")
    assert answer.status == 200, answer
    effect = answer.data
    assert (effect["stage"], effect["outcome"], effect["grade"], effect["verification"]) == (
        "settled", "succeeded", "acknowledged", "manual")
    assert effect["unresolvedExposure"] is False and effect["externalReference"] == "re_77"
    assert texts(effect, "manual") == ["The dashboard shows it."]
    assert effect["reservations"][0]["state"] == "consumed"
    assert lost.usage() == (AMOUNT, 0, 0)
    invocation = scene.agent.invocation(lost.invocation_id)
    assert (invocation["status"], invocation["grade"], invocation["error"]) == (
        "succeeded", "acknowledged", None)
    act, = audits(scene, lost.id)
    assert (act["act"], act["agent_id"]) == ("effect.resolve", "resolver")


@story
def failed_releases(scene):
    lost = Lost(scene, applied=False)
    answer = scene.resolve(lost.id, "failed", "Not on the statement.", partialEffect="none")
    assert answer.status == 200, answer
    effect = answer.data
    assert (effect["stage"], effect["outcome"], effect["grade"], effect["verification"]) == (
        "settled", "failed", "failed", "manual")
    assert effect["partialEffect"] == "none"
    assert effect["reservations"][0]["state"] == "released"
    assert lost.usage() == (0, 0, 0)
    assert "Not on the statement." in scene.agent.invocation(lost.invocation_id)["error"]
    assert scene.sandbox.counts(intent=lost.intent)["writes"] == 1


@story
def a_reason_is_required(scene):
    lost = Lost(scene)
    url = effect_url(lost.id, "resolve")
    for body in ({"outcome": "failed"}, {"outcome": "failed", "reason": ""},
                 {"outcome": "failed", "reason": "  "}, {"reason": "x"},
                 {"outcome": "unknown", "reason": "x"}, {"outcome": "failed", "reason": 7},
                 {"outcome": "failed", "reason": "x", "partialEffect": "some"}):
        refused = scene.resolver.post(url, body)
        assert (refused.status, refused.code) == (400, "VALIDATION_ERROR"), (body, refused)
    lost.check_unknown()
    assert audits(scene, lost.id) == []


@story
def nobody_resolves_its_own_call(scene):
    scopes = ("--scopes", "actions:read,actions:invoke,actions:resolve")
    agent = unique("agent")
    caller = scene.fleet.api(scene.key(agent, *scopes))
    colleague = scene.fleet.api(scene.key(agent, *scopes))
    other = scene.fleet.api(scene.key(unique("agent"), *scopes))
    lost = Lost(scene, who=caller)
    for who in (caller, colleague):
        for outcome in ("succeeded", "failed"):
            refused = scene.resolve(lost.id, outcome, who=who)
            assert (refused.status, refused.code) == (403, "SELF_RESOLUTION_REFUSED")
    lost.check_unknown()
    assert scene.resolve(lost.id, "succeeded", who=other).status == 200


@story
def the_scope_is_required(scene):
    lost = Lost(scene)
    for who in (scene.agent, scene.operator):
        for act, body in (("resolve", {"outcome": "failed", "reason": "x"}), ("notes", {"note": "x"})):
            refused = who.post(effect_url(lost.id, act), body)
            assert (refused.status, refused.code) == (403, "AUTHORIZATION_ERROR")
            assert "actions:resolve" in str(refused.error["details"])
    lost.check_unknown()


@story
def not_while_a_write_is_in_flight(scene):
    intent = unique("pi")
    scene.sandbox.fault("hang", {"intent": intent, "kind": "write"})
    action = scene.refund_action()
    limit = scene.limit(action)
    made = scene.refund(action, intent, wait=0)
    scene.effect_when(made["effectId"], lambda e: e["stage"] == "dispatching")
    refused = scene.resolve(made["effectId"])
    assert (refused.status, refused.code) == (409, "EFFECT_IN_FLIGHT")
    assert scene.settled(made["effectId"])["verification"] == "provider"
    assert scene.usage(limit) == (AMOUNT, 0, 0)


@story
def not_once_it_is_settled(scene):
    lost = Lost(scene)
    assert scene.resolve(lost.id, "succeeded").status == 200
    for outcome in ("succeeded", "failed"):
        refused = scene.resolve(lost.id, outcome, "Another thought.")
        assert (refused.status, refused.code) == (409, "EFFECT_SETTLED")
    effect = scene.effect(lost.id)
    assert effect["outcome"] == "succeeded" and "Another thought." not in texts(effect)
    assert lost.usage() == (AMOUNT, 0, 0)
    assert len(audits(scene, lost.id)) == 1


@story
def the_same_request_again_gets_the_same_answer(scene):
    lost = Lost(scene)
    body, headers = {"outcome": "succeeded", "reason": "Seen."}, {"Idempotency-Key": unique("key")}
    first = scene.resolver.post(effect_url(lost.id, "resolve"), body, headers)
    again = scene.resolver.post(effect_url(lost.id, "resolve"), body, headers)
    assert (first.status, again.status) == (200, 200)
    assert again.data["settledAt"] == first.data["settledAt"]
    assert lost.usage() == (AMOUNT, 0, 0) and len(audits(scene, lost.id)) == 1


@story
def the_actual_impact_is_consumed(scene):
    lost = Lost(scene)
    for actual in ([{"dimension": "emails", "amount": 1}], [{"dimension": "money", "unit": "eur",
                   "amount": 1}], [{"dimension": "money", "unit": "usd", "amount": -1}],
                   [{"dimension": "money", "unit": "usd", "amount": 1.5}]):
        refused = scene.resolve(lost.id, "succeeded", actualImpact=actual)
        assert refused.status == 400, (actual, refused)
    lost.check_unknown()
    answer = scene.resolve(lost.id, "succeeded", partialEffect="confirmed", actualImpact=[
        {"dimension": "money", "unit": "usd", "amount": 5000}])
    assert answer.status == 200, answer
    assert answer.data["partialEffect"] == "confirmed"
    assert [(r["amount"], r["state"]) for r in answer.data["reservations"]] == [(5000, "consumed")]
    assert lost.usage() == (5000, 0, 0)


@story
def notes_are_appended(scene):
    lost = Lost(scene)
    for note in ("First look.", "Second look."):
        answer = scene.resolver.post(effect_url(lost.id, "notes"), {"note": note})
        assert answer.status in (200, 201), answer
    effect = scene.effect(lost.id)
    assert texts(effect, "note") == ["First look.", "Second look."]
    assert next(e for e in effect["evidence"] if e["kind"] == "note")["by"].startswith("key_")
    for body in ({}, {"note": ""}, {"note": 1}, {"text": "x"}):
        assert scene.resolver.post(effect_url(lost.id, "notes"), body).status == 400
    lost.check_unknown()
    assert [act["act"] for act in audits(scene, lost.id)] == ["effect.note", "effect.note"]


@story
def what_a_person_said_failed_and_the_provider_has(scene):
    """It is read back for a day more; what is found is a conflict, and nothing moves by itself."""
    lost = Lost(scene)
    assert scene.resolve(lost.id, "failed").status == 200
    assert lost.usage() == (0, 0, 0)
    assert scene.effect(lost.id)["nextReadBackAt"] is not None
    scene.end_rule(lost.reads)
    effect = scene.effect_when(lost.id, lambda e: e["conflict"])
    assert (effect["stage"], effect["outcome"], effect["grade"], effect["verification"]) == (
        "settled", "failed", "failed", "manual")
    assert lost.usage() == (0, AMOUNT, AMOUNT)  # what may have happened counts again
    assert effect["unresolvedExposure"] is True and effect["reservations"][0]["state"] == "held"
    assert effect["nextReadBackAt"] is None  # it was found; a person goes on from here
    retry = scene.agent.invoke(lost.action, {"payment_intent": lost.intent, "amount": AMOUNT},
                               retryOf=lost.invocation_id)
    assert (retry.status, retry.code) == (409, "RETRY_REFUSED")
    assert "conflict" in retry.error["message"]
    assert scene.sandbox.counts(intent=lost.intent)["writes"] == 1


@story
def what_a_person_said_failed_and_the_provider_agrees(scene):
    """The provider's own record says failed, too: nothing contradicts, and the reads end."""
    lost = Lost(scene, do="status_field", value="failed")
    assert scene.resolve(lost.id, "failed").status == 200
    scene.end_rule(lost.reads)
    effect = scene.effect_when(lost.id, lambda e: e["nextReadBackAt"] is None)
    assert (effect["conflict"], effect["outcome"], effect["verification"]) == (False, "failed", "manual")
    assert "failed" in texts(effect, "late")[0]
    assert lost.usage() == (0, 0, 0)


@story
def what_a_person_said_failed_may_be_retried(scene):
    lost = Lost(scene, applied=False)
    early = scene.agent.invoke(lost.action, {"payment_intent": lost.intent, "amount": AMOUNT},
                               retryOf=lost.invocation_id)
    assert (early.status, early.code) == (409, "RETRY_REFUSED")
    assert scene.resolve(lost.id, "failed").status == 200
    retry = scene.agent.invoke(lost.action, {"payment_intent": lost.intent, "amount": AMOUNT},
                               retryOf=lost.invocation_id)
    assert (retry.status, retry.data["status"]) == (200, "unknown")
    assert retry.data["retryOf"] == lost.invocation_id
    assert scene.agent.invocation(lost.invocation_id)["retriedBy"] == retry.data["id"]
    scene.end_rule(lost.reads)
    assert scene.settled(retry.data["effectId"])["outcome"] == "succeeded"
    assert lost.usage() == (AMOUNT, 0, 0)


@story
def a_call_without_an_effect_is_resolved_by_its_invocation(scene):
    action = scene.action(urlTemplate=scene.fleet.env["SANDBOX_URL"] + "/generic/plain",
                          headers={"Idempotency-Key": "{{input.key}}"}, bodyTemplate={"a": 1})
    key = unique("plain")
    scene.sandbox.fault("drop", {"key": key})
    made = scene.agent.invoke(action, {"key": key}).data
    assert (made["status"], made["effectId"]) == ("unknown", None) and "grade" not in made
    assert made["error"] == (
        "The destination may have received this request and the outcome cannot be confirmed. "
        f"Do not retry; inspect invocation {made['id']}.")
    url = f"/api/v2/actions/invocations/{made['id']}/resolve"
    assert scene.resolver.post(url, {"outcome": "succeeded"}).status == 400
    assert scene.agent.post(url, {"outcome": "succeeded", "evidence": "x"}).status == 403
    answer = scene.resolver.post(url, {"outcome": "succeeded", "evidence": "Seen there."})
    assert (answer.status, answer.data["status"]) == (200, "succeeded")
    assert scene.resolver.post(url, {"outcome": "failed", "evidence": "x"}).status == 409
    assert scene.agent.invocation(made["id"])["status"] == "succeeded"


@story
def a_late_read_back_of_what_succeeded_changes_nothing(scene):
    lost = Lost(scene)
    assert scene.resolve(lost.id, "succeeded").status == 200
    scene.end_rule(lost.reads)
    refused = scene.reconcile(lost.id)
    assert (refused.status, refused.code) == (409, "EFFECT_SETTLED")
    effect = scene.effect(lost.id)
    assert (effect["grade"], effect["nextReadBackAt"], kinds(effect)[0]) == (
        "acknowledged", None, "dispatch")
    assert lost.usage() == (AMOUNT, 0, 0)


@pytest.fixture(scope="module")
def told(fleet):
    return story.run(Scene(fleet))


@pytest.mark.parametrize("name", story.functions)
def test_resolve(told, name):
    told[name].result()
