"""Reading the provider back: what it finds, what it does not, and what must not settle."""

import concurrent.futures

import pytest

from harness import unique, wait_until
from scene import NOT_FOUND, Scene, Stories, effect_url, kinds, texts

AMOUNT = 12000

story = Stories()


class Tale:
    """One refund with a limit of its own; its answer counts as lost unless `lossy` is False."""

    def __init__(self, scene, write=None, reads=None, lossy=True, currency="usd", amount=AMOUNT):
        """`write` and `reads` are faults of the sandbox that the write and its reads meet."""
        self.scene = scene
        self.intent = unique("pi")
        self.amount = amount
        scene.sandbox.control("POST", "/intents", {"id": self.intent, "currency": currency})
        for kind, fault in (("write", write), ("read", reads)):
            if fault:
                self.rule = scene.sandbox.fault(match={"intent": self.intent, "kind": kind}, **fault)
        action = scene.lossy_refund_action(currency) if lossy else scene.refund_action(currency)
        self.limit = scene.limit(action, unit=currency)
        self.made = scene.refund(action, self.intent, amount)
        self.id = self.made["effectId"]
        if lossy:
            assert self.made["status"] == "unknown", self.made

    def effect(self):
        return self.scene.effect(self.id)

    def when(self, condition, timeout=30):
        return self.scene.effect_when(self.id, condition, timeout)

    def usage(self):
        return self.scene.usage(self.limit)

    def counts(self):
        return self.scene.sandbox.counts(intent=self.intent)

    def reads(self):
        """The reads that the sandbox got, oldest first; ours among them."""
        return [r for r in self.scene.requests(self.intent) if not r["write"]]

    def change(self, **members):
        """The provider's record of the refund changes."""
        listed = self.scene.sandbox.read(f"/v1/refunds?payment_intent={self.intent}")[2]["data"]
        assert len(listed) == 1
        self.scene.sandbox.control("POST", f"/refunds/{listed[0]['id']}", members)

    def check_unknown(self):
        effect = self.effect()
        assert (effect["stage"], effect["outcome"], effect["grade"], effect["verification"]) == (
            "reconciling", "unknown", "unknown", "unverified")
        assert self.usage() == (0, self.amount, self.amount)
        return effect

    def check_confirmed(self):
        effect = self.scene.settled(self.id)
        assert (effect["outcome"], effect["grade"], effect["verification"]) == (
            "succeeded", "confirmed", "provider")
        assert kinds(effect)[0] == "dispatch" and kinds(effect)[-1] == "reconcile"
        assert self.usage() == (self.amount, 0, 0)
        assert (self.counts()["writes"], self.counts()["applied"]) == (1, 1)
        return effect

    def check_conflict(self, sentence):
        """Marked for a person to see; nothing else settles it, and the money stays held."""
        effect = self.when(lambda e: e["conflict"])
        assert sentence in texts(effect, "conflict")[0]
        assert (effect["stage"], effect["outcome"]) == ("reconciling", "unknown")
        assert effect["nextReadBackAt"] is None
        assert self.usage() == (0, self.amount, self.amount)
        asked = self.scene.reconcile(self.id)  # on demand it may be read, and that settles nothing
        assert (asked.status, asked.data["stage"], asked.data["conflict"]) == (
            200, "reconciling", True)
        assert self.usage() == (0, self.amount, self.amount)


# Nothing found, and found late

@story
def nothing_found_stays_unknown(scene):
    tale = Tale(scene, write={"do": "drop", "apply": False})
    effect = tale.when(lambda e: len(texts(e, "reconcile")) >= 3)
    assert set(texts(effect, "reconcile")) == {NOT_FOUND}
    assert kinds(effect)[:4] == ["dispatch", "reconcile", "reconcile", "reconcile"]
    assert {attempt["result"] for attempt in effect["attempts"]} == {"unknown"}
    assert effect["nextReadBackAt"] is not None
    tale.check_unknown()
    assert tale.counts()["writes"] == 1


@story
def empty_then_found(scene):
    tale = Tale(scene, write={"do": "lag", "reads": 2})
    effect = tale.check_confirmed()
    assert texts(effect, "reconcile")[:2] == [NOT_FOUND, NOT_FOUND]
    assert kinds(effect) == ["dispatch", "reconcile", "reconcile", "reconcile"]


@story
def found_on_the_second_page(scene):
    tale = Tale(scene, reads={"do": "status", "status": 503, "times": -1})
    for _ in range(120):  # newer ones, which push ours past the first page
        scene.sandbox.control("POST", "/refunds", {
            "payment_intent": tale.intent, "amount": AMOUNT, "currency": "usd"})
    scene.end_rule(tale.rule)
    effect = scene.settled(tale.id)
    assert (effect["grade"], tale.usage()) == ("confirmed", (AMOUNT, 0, 0))
    first, second = [r["target"] for r in tale.reads()[-2:]]
    assert "starting_after" not in first and "&starting_after=re_" in second


@story
def a_refund_of_another_effect_is_not_ours(scene):
    tale = Tale(scene, write={"do": "drop", "apply": False})
    scene.sandbox.control("POST", "/refunds", {
        "payment_intent": tale.intent, "amount": AMOUNT, "currency": "usd",
        "metadata": {"holdfast_effect": "eff_01JZZZZZZZZZZZZZZZZZZZZZZZ"}})
    effect = tale.when(lambda e: len(texts(e, "reconcile")) >= 2)
    assert set(texts(effect, "reconcile")) == {NOT_FOUND}
    tale.check_unknown()


# Reads that give no usable answer

def unusable(scene, sentence, **fault):
    """Two reads go so and prove nothing; the third finds it. Gives the three requests."""
    tale = Tale(scene, reads={"times": 2, **fault})
    tale.when(lambda e: texts(e, "reconcile"))
    effect = tale.check_confirmed()
    assert sentence in texts(effect, "reconcile")[0]
    reads = tale.reads()
    assert [r["method"] for r in reads] == ["GET"] * 3
    return reads


@story
def read_401(scene):
    unusable(scene, "HTTP 401", do="status", status=401)


@story
def read_404(scene):
    unusable(scene, NOT_FOUND, do="status", status=404)


@story
def read_500(scene):
    unusable(scene, "HTTP 500", do="status", status=500)


@story
def read_redirect(scene):
    unusable(scene, "HTTP 302", do="status", status=302, headers={"Location": "/v1/refunds"})


@story
def read_html(scene):
    unusable(scene, "HTML", do="html")


@story
def read_other_json(scene):
    unusable(scene, "shape", do="body_raw", body_base64="eyJkYXRhIjp7fX0=")


@story
def read_hangs(scene):
    unusable(scene, "no answer", do="hang")


@story
def read_is_cut_off(scene):
    unusable(scene, "answer", do="truncate_body")


@story
def read_429_waits_as_long_as_it_is_told(scene):
    tale = Tale(scene, reads={"do": "status", "status": 429, "headers": {"Retry-After": "3"}})
    effect = tale.check_confirmed()
    assert "HTTP 429" in texts(effect, "reconcile")[0]
    first, second = tale.reads()
    assert second["atUs"] - first["atUs"] > 2_900_000


# What contradicts the request is for a person

@story
def another_amount_is_a_conflict(scene):
    Tale(scene, write={"do": "wrong_amount", "amount": AMOUNT + 1}).check_conflict("amount")


@story
def a_conflict_outlives_a_record_that_agrees(scene):
    tale = Tale(scene, write={"do": "wrong_amount", "amount": AMOUNT + 1})
    tale.check_conflict("amount")
    tale.change(amount=AMOUNT)
    wait_over_a_second(tale)
    asked = scene.reconcile(tale.id)
    assert (asked.status, asked.data["stage"], asked.data["conflict"]) == (200, "reconciling", True)
    assert "agrees" in texts(asked.data, "reconcile")[-1]
    assert tale.usage() == (0, AMOUNT, AMOUNT)


@story
def another_currency_is_a_conflict(scene):
    Tale(scene, write={"do": "wrong_currency", "value": "eur"}).check_conflict("currency")


@story
def two_records_are_a_conflict(scene):
    tale = Tale(scene, write={"do": "double"})
    tale.check_conflict("two refunds")
    assert tale.counts()["writes"] == 1  # somebody between us and the provider doubled it


@story
def a_person_settles_a_conflict(scene):
    tale = Tale(scene, write={"do": "double"})
    tale.check_conflict("two refunds")
    resolved = scene.resolve(tale.id, "succeeded", actualImpact=[
        {"dimension": "money", "unit": "usd", "amount": 2 * AMOUNT}])
    assert (resolved.status, resolved.data["verification"]) == (200, "manual")
    assert tale.usage() == (2 * AMOUNT, 0, 0)


@story
def an_acknowledged_one_is_marked_too(scene):
    tale = Tale(scene, write={"do": "double"}, lossy=False)
    assert (tale.made["status"], tale.made["grade"]) == ("succeeded", "acknowledged")
    effect = tale.when(lambda e: e["conflict"])
    assert (effect["stage"], effect["grade"], effect["verification"]) == (
        "settled", "acknowledged", "unverified")
    assert tale.usage() == (AMOUNT, 0, 0)
    assert effect["nextReadBackAt"] is None


@story
def yen_have_no_cents(scene):
    tale = Tale(scene, currency="jpy", amount=500)
    tale.check_confirmed()
    write = next(r for r in scene.requests(tale.intent) if r["write"])
    assert "amount=500&" in write["body"]
    assert tale.effect()["impact"]["unit"] == "jpy"


@story
def yen_are_not_cents(scene):
    Tale(scene, currency="jpy", amount=500,
         write={"do": "wrong_currency", "value": "usd"}).check_conflict("currency")


# Not final yet

def pending_tale(scene, status, lossy=False):
    """A refund that the provider has not finished: held, and no unknown exposure."""
    tale = Tale(scene, write={"do": "status_field", "value": status}, lossy=lossy)
    if not lossy:
        assert (tale.made["status"], tale.made["grade"]) == ("running", "pending")
        assert tale.made["error"] == (f"The request for effect {tale.id} is still running. Do not send "
                                      f"it again; read invocation {tale.made['id']}.")
    effect = tale.when(lambda e: e["outcome"] == "pending" and len(kinds(e)) >= 3)  # two reads later
    assert (effect["stage"], effect["grade"], effect["unresolvedExposure"]) == (
        "reconciling", "pending", False)
    assert tale.usage() == (0, AMOUNT, 0)
    return tale


def ends(scene, first, last, outcome, usage, lossy=False):
    tale = pending_tale(scene, first, lossy)
    tale.change(status=last)
    effect = scene.settled(tale.id)
    assert (effect["outcome"], effect["verification"]) == (outcome, "provider")
    assert tale.usage() == usage
    assert tale.counts()["writes"] == 1
    return effect


@story
def pending_then_succeeded(scene):
    effect = ends(scene, "pending", "succeeded", "succeeded", (AMOUNT, 0, 0))
    assert effect["grade"] == "confirmed"


@story
def pending_then_failed(scene):
    effect = ends(scene, "pending", "failed", "failed", (0, 0, 0))
    assert (effect["grade"], effect["reservations"][0]["state"]) == ("failed", "released")
    assert "record says" in effect["error"]


@story
def requires_action_then_canceled(scene):
    ends(scene, "requires_action", "canceled", "failed", (0, 0, 0))


@story
def no_status_then_succeeded(scene):
    ends(scene, None, "succeeded", "succeeded", (AMOUNT, 0, 0))


@story
def unknown_then_pending_then_succeeded(scene):
    ends(scene, "pending", "succeeded", "succeeded", (AMOUNT, 0, 0), lossy=True)


@story
def failed_at_once(scene):
    tale = Tale(scene, write={"do": "status_field", "value": "failed"}, lossy=False)
    assert (tale.made["status"], tale.made["grade"]) == ("failed", "failed")
    assert tale.usage() == (0, 0, 0)


# On demand

@story
def on_demand_it_is_read_at_once(scene):
    tale = Tale(scene, reads={"do": "status", "status": 429, "headers": {"Retry-After": "600"}})
    tale.when(lambda e: texts(e, "reconcile"))
    wait_over_a_second(tale)
    answer = scene.reconcile(tale.id)
    assert (answer.status, answer.data["stage"], answer.data["grade"]) == (200, "settled", "confirmed")
    assert tale.usage() == (AMOUNT, 0, 0)
    again = scene.reconcile(tale.id)
    assert (again.status, again.code) == (409, "EFFECT_SETTLED")


def wait_over_a_second(tale):
    """At most one read a second is made of an effect: within it, the answer is that of the last."""
    last = tale.reads()[-1]["atUs"]
    wait_until(lambda: tale.scene.fleet.psql(
        "select now() > to_timestamp(%s::bigint / 1e6) + interval '1.2 seconds' as over",
        last)[0]["over"])


@story
def in_flight_it_is_not_read(scene):
    intent = unique("pi")
    scene.sandbox.fault("hang", {"intent": intent, "kind": "write"})
    action = scene.refund_action()
    made = scene.refund(action, intent, wait=0)
    assert made["status"] == "running"
    scene.effect_when(made["effectId"], lambda e: e["stage"] == "dispatching")
    answer = scene.reconcile(made["effectId"])
    assert (answer.status, answer.code) == (409, "EFFECT_IN_FLIGHT")
    assert scene.sandbox.counts(intent=intent)["reads"] == 0
    assert scene.settled(made["effectId"])["grade"] == "confirmed"


@story
def of_an_effect_that_is_not_there(scene):
    missing = scene.reconcile("eff_01JZZZZZZZZZZZZZZZZZZZZZZZ")
    assert (missing.status, missing.code) == (404, "NOT_FOUND")
    stranger = Scene(scene.fleet)
    tale = Tale(scene, write={"do": "drop", "apply": False})
    assert stranger.reconcile(tale.id).status == 404  # another environment's
    assert stranger.agent.get(effect_url(tale.id)).status == 404


@story
def while_halted_it_is_read(scene):
    scene = Scene(scene.fleet)  # an environment of its own
    tale = Tale(scene, reads={"do": "status", "status": 429, "headers": {"Retry-After": "600"}})
    tale.when(lambda e: texts(e, "reconcile"))
    halted = scene.operator.post("/api/v2/environment/halt", {"reason": "a test"})
    assert halted.status == 200, halted
    wait_over_a_second(tale)
    answer = scene.reconcile(tale.id)
    assert (answer.status, answer.data["grade"]) == (200, "confirmed")
    refused = scene.agent.invoke(scene.refund_action(), {"payment_intent": "pi_1", "amount": 1})
    assert (refused.status, refused.code) == (409, "ENVIRONMENT_HALTED")


@story
def parallel_reconciles_and_a_resolve_settle_once(scene):
    tale = Tale(scene, reads={"do": "status", "status": 429, "headers": {"Retry-After": "600"}})
    tale.when(lambda e: texts(e, "reconcile"))
    wait_over_a_second(tale)
    with concurrent.futures.ThreadPoolExecutor(21) as pool:
        asked = [pool.submit(scene.reconcile, tale.id) for _ in range(20)]
        asked.append(pool.submit(scene.resolve, tale.id, "succeeded"))
        answers = [future.result() for future in asked]
    assert sorted(a.status for a in answers) == [200] + [409] * 20, answers
    assert {a.code for a in answers if a.status == 409} == {"EFFECT_SETTLED"}
    effect = tale.effect()
    assert (effect["stage"], effect["outcome"], effect["conflict"]) == ("settled", "succeeded", False)
    assert tale.usage() == (AMOUNT, 0, 0)
    assert tale.counts()["writes"] == 1


@pytest.fixture(scope="module")
def told(fleet):
    return story.run(Scene(fleet))


@pytest.mark.parametrize("name", story.functions)
def test_read_back(told, name):
    told[name].result()
