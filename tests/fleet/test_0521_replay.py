"""Replays through the fleet: who may ask, what leaves, what its answer means, and who dies meanwhile."""

import os
import signal
import time

import pytest

from governed import Governed
from harness import Fleet, unique, wait_until
from scene import Stories, effect_url, kinds, texts

AMOUNT = 12000
story = Stories()


class Lost:
    """An unknown refund whose answer was lost, with reads that get no usable answer."""

    def __init__(self, scene, applied=True, who=None, action=None):
        self.scene = scene
        self.intent = unique("pi")
        self.reads = scene.block_reads(self.intent)
        scene.sandbox.fault("drop", {"intent": self.intent, "kind": "write"}, apply=applied)
        self.action = action or scene.refund_action()
        self.limit = scene.limit(self.action)
        made = (who or scene.agent).invoke(self.action, {"payment_intent": self.intent, "amount": AMOUNT})
        assert made.status == 200 and made.data["status"] == "unknown", made
        self.id, self.invocation_id = made.data["effectId"], made.data["id"]

    def replay(self, who=None, body=None, key=None):
        return (who or self.scene.resolver).post(effect_url(self.id, "replay"), body,
                                                 {"Idempotency-Key": key or unique("replay")})

    def refused(self, reason, who=None):
        answer = self.replay(who)
        assert (answer.status, answer.code, answer.error["details"]) == (
            409, "REPLAY_REFUSED", {"reason": reason}), answer

    def when(self, condition):
        return self.scene.effect_when(self.id, condition)

    def counts(self):
        return self.scene.sandbox.counts(intent=self.intent)

    def ended(self, seq=2):
        """When the end of the replay was reported."""
        return self.when(lambda e: [a for a in e["attempts"] if a["kind"] == "replay" and a["result"] != "in_flight"])


def audits(scene, target):
    return [row["act"] for row in scene.fleet.psql("select act from audit where target = %s order by n", target)]


@story
def the_same_request_with_the_same_key_settles_it(scene):
    lost = Lost(scene)
    before = scene.effect(lost.id)
    assert before["replayableUntil"] > before["createdAt"]
    answer = lost.replay(body={"reason": "The provider says that it never came."})
    assert answer.status == 200, answer
    effect = scene.settled(lost.id)
    assert (effect["outcome"], effect["grade"]) == ("succeeded", "acknowledged")
    assert kinds(effect)[:1] == ["dispatch"] and kinds(effect).count("replay") == 1
    assert effect["replayableUntil"] is None and effect["pendingReplay"] is None
    assert lost.counts()["writes"] == 2 and lost.counts()["applied"] == 1
    first, second = [r for r in scene.requests(lost.intent) if r["write"]]
    assert (first["key"], first["body"], first["target"]) == (second["key"], second["body"], second["target"])
    assert scene.usage(lost.limit) == (AMOUNT, 0, 0)
    assert "Replay 2 was asked for: The provider says that it never came." in texts(effect, "note")
    assert audits(scene, lost.id) == ["effect.replay"]
    scene.end_rule(lost.reads)
    assert lost.when(lambda e: e["grade"] == "confirmed")


@story
def what_never_came_is_done_now(scene):
    lost = Lost(scene, applied=False)
    assert lost.replay().status == 200
    assert scene.settled(lost.id)["outcome"] == "succeeded"
    assert lost.counts()["writes"] == 2 and lost.counts()["applied"] == 1


@story
def a_client_asks_for_it(scene):
    lost = Lost(scene)
    told = scene.fleet.client(scene.resolver.key).actions.replay_effect(lost.id)
    assert told.data["id"] == lost.id
    assert scene.settled(lost.id)["outcome"] == "succeeded"


@story
def not_by_who_called(scene):
    scopes = ("--scopes", "actions:read,actions:invoke,actions:resolve")
    agent = unique("agent")
    caller, colleague = (scene.fleet.api(scene.key(agent, *scopes)) for _ in range(2))
    lost = Lost(scene, who=caller)
    for who in (caller, colleague):
        refused = lost.replay(who)
        assert (refused.status, refused.code) == (403, "SELF_REPLAY_REFUSED")
    for who in (scene.agent, scene.operator):
        refused = lost.replay(who)
        assert (refused.status, refused.code) == (403, "AUTHORIZATION_ERROR")
    assert lost.counts()["writes"] == 1 and audits(scene, lost.id) == []
    assert lost.replay().status == 200


@story
def an_answer_that_is_no_success_settles_nothing(scene):
    for status in (400, 402, 409, 408, 500, 302):
        lost = Lost(scene)
        scene.sandbox.fault("status", {"intent": lost.intent, "kind": "write"}, status=status)
        assert lost.replay().status == 200
        effect = lost.ended()
        assert (effect["stage"], effect["outcome"], effect["conflict"]) == ("reconciling", "unknown", False), status
        assert lost.counts()["writes"] == 2
        assert scene.usage(lost.limit) == (0, AMOUNT, AMOUNT)
        scene.end_rule(lost.reads)
        assert scene.settled(lost.id)["outcome"] == "succeeded"


@story
def no_answer_settles_nothing(scene):
    lost = Lost(scene)
    scene.sandbox.fault("hang", {"intent": lost.intent, "kind": "write"})
    assert lost.replay().status == 200
    lost.when(lambda e: kinds(e).count("replay") == 1)
    lost.refused("in_flight")
    resolved = scene.resolve(lost.id, "failed")
    assert (resolved.status, resolved.code) == (409, "EFFECT_IN_FLIGHT")
    effect = lost.ended()
    assert effect["outcome"] == "unknown"
    assert lost.replay().status == 200  # and once more
    assert scene.settled(lost.id)["outcome"] == "succeeded"
    assert lost.counts()["writes"] == 3 and lost.counts()["applied"] == 1


@story
def asked_twice_with_one_key_is_one_replay(scene):
    lost = Lost(scene)
    key = unique("replay")
    first, again = lost.replay(key=key), lost.replay(key=key)
    assert (first.status, again.status) == (200, 200) and first.data["id"] == again.data["id"]
    scene.settled(lost.id)
    assert lost.replay(key=key).status == 200
    assert lost.counts()["writes"] == 2 and audits(scene, lost.id) == ["effect.replay"]


@story
def what_is_not_unknown_is_not_replayed(scene):
    lost = Lost(scene)
    scene.resolve(lost.id, "succeeded")
    lost.refused("not_unknown")
    assert lost.counts()["writes"] == 1


@story
def a_declared_action_promises_nothing(scene):
    action = scene.action(urlTemplate=scene.fleet.env["SANDBOX_URL"] + "/generic/orders", method="POST",
                          headers={"Idempotency-Key": "{{input.key}}"}, bodyTemplate={"a": 1}, governed=True)
    key = unique("key")
    scene.sandbox.fault("drop", {"key": key})
    made = scene.agent.invoke(action, {"key": key}).data
    assert made["status"] == "unknown" and scene.effect(made["effectId"])["replayableUntil"] is None
    refused = scene.resolver.post(effect_url(made["effectId"], "replay"))
    assert (refused.status, refused.error["details"]) == (409, {"reason": "replay_unsupported"})


@story
def a_changed_secret_refuses_it(scene):
    scene.secret("ROTATED", "sk_test_1")
    action = scene.action(adapter={"type": "stripe.refund", "credentialSecret": "ROTATED", "config": {
        "account": "acct_1", "mode": "test", "currency": "usd", "baseUrl": scene.fleet.env["SANDBOX_URL"]}})
    lost = Lost(scene, action=action)
    scene.secret("ROTATED", "sk_test_2")
    lost.refused("credential_changed")
    assert lost.counts()["writes"] == 1


@story
def an_approval_that_is_over_refuses_it(scene):
    action = scene.gated_action()
    intent = unique("pi")
    scene.block_reads(intent)
    scene.sandbox.fault("drop", {"intent": intent, "kind": "write"})
    waiting = scene.pending(action, intent)
    assert scene.approve(waiting["approvalId"]).status == 200
    effect = scene.effect_when(waiting["effectId"], lambda e: e["outcome"] == "unknown")
    url = effect_url(effect["id"], "replay")
    scene.fleet.psql("alter table approvals disable trigger user", admin=True)
    try:
        scene.fleet.psql("update approvals set expires_at = hf_now() where prefixed('apr', id) = %s",
                         waiting["approvalId"], admin=True)
    finally:
        scene.fleet.psql("alter table approvals enable trigger user", admin=True)
    refused = scene.resolver.post(url)
    assert (refused.status, refused.error["details"]) == (409, {"reason": "approval_not_valid"})
    assert scene.sandbox.counts(intent=intent)["writes"] == 1


@story
def an_approval_that_holds_lets_it(scene):
    action = scene.gated_action()
    intent = unique("pi")
    scene.sandbox.fault("drop", {"intent": intent, "kind": "write"})
    scene.block_reads(intent)
    waiting = scene.pending(action, intent)
    assert scene.approve(waiting["approvalId"]).status == 200
    scene.effect_when(waiting["effectId"], lambda e: e["outcome"] == "unknown")
    assert scene.resolver.post(effect_url(waiting["effectId"], "replay")).status == 200
    assert scene.settled(waiting["effectId"])["outcome"] == "succeeded"
    assert scene.sandbox.counts(intent=intent)["writes"] == 2


@story
def a_body_is_checked(scene):
    lost = Lost(scene)
    for body in ({"reason": 1}, {"reason": ""}, {"why": "x"}):
        assert lost.replay(body=body).status == 400
    missing = scene.resolver.post(effect_url("eff_01ARZ3NDEKTSV4RRFFQ69G5FAV", "replay"))
    assert missing.status == 404
    assert lost.counts()["writes"] == 1


@pytest.fixture(scope="module")
def told(fleet):
    return story.run(Governed(fleet))


@pytest.mark.parametrize("name", sorted(story.functions))
def test_story(told, name):
    told[name].result()


# ---------------------------------------------------------------- a fleet of its own, whose parts end

SETTINGS = {"HOLDFAST_SEND_LEASE_MS": "1500", "HOLDFAST_PROVIDER_TIMEOUT_MS": "1500",
            "HOLDFAST_READBACK_SCHEDULE": "60s", "HOLDFAST_REPLAY_EXPIRES_S": "6",
            "HOLDFAST_REPUBLISH_AFTER_MS": "500"}


@pytest.fixture(scope="module")
def own(request):
    failed_before = request.session.testsfailed
    private = Fleet("replay", broker="embedded", settings=SETTINGS)
    try:
        yield private.up()
    finally:
        private.end(keep=request.session.testsfailed > failed_before)


@pytest.fixture
def scene(own):
    yield Governed(own)
    for name in own.names("dispatcher"):
        own.restart(name)
    own.sandbox.control("DELETE", "/faults")


def test_a_halt_holds_it_and_a_resume_lets_it_go(own, scene):
    lost = Lost(scene)
    assert scene.operator.post("/api/v2/environment/halt", {"reason": "x"}).status == 200
    lost.refused("halted")
    assert scene.operator.post("/api/v2/environment/resume").status == 200
    own.pause("dispatcher-1")
    assert lost.replay().status == 200
    halted = scene.operator.post("/api/v2/environment/halt", {"reason": "x"})
    assert halted.data["inFlight"] == 0
    own.resume("dispatcher-1")
    time.sleep(1)
    assert lost.counts()["writes"] == 1 and scene.effect(lost.id)["pendingReplay"]["seq"] == 2
    assert scene.operator.post("/api/v2/environment/resume").status == 200
    assert scene.settled(lost.id)["outcome"] == "succeeded"
    assert lost.counts()["writes"] == 2


def test_a_message_that_is_lost_is_sent_again(own, scene):
    lost = Lost(scene)
    own.kill("dispatcher-1")
    assert lost.replay().status == 200
    own.psql("update open_replays set publish_count = 0, published_at = hf_now()", admin=True)
    own.restart("dispatcher-1")
    assert scene.settled(lost.id)["outcome"] == "succeeded"
    assert lost.counts()["writes"] == 2 and lost.counts()["applied"] == 1


def test_nobody_claims_it_in_time(own, scene):
    lost = Lost(scene)
    own.kill("dispatcher-1")
    assert lost.replay().status == 200
    effect = lost.when(lambda e: e["pendingReplay"] is None)
    assert "Replay 2 was not sent: nobody sent it in time." in texts(effect, "note")
    own.restart("dispatcher-1")
    time.sleep(2)
    effect = scene.effect(lost.id)
    assert (effect["outcome"], kinds(effect)) == ("unknown", ["dispatch"]) and lost.counts()["writes"] == 1


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGSTOP])
def test_the_dispatcher_ends_while_the_provider_works(own, scene, sig):
    """Whatever of it comes back, the effect stays unknown, and the write is made once for the attempt."""
    lost = Lost(scene)
    scene.sandbox.fault("hang", {"intent": lost.intent, "kind": "write"})
    assert lost.replay().status == 200
    wait_until(lambda: lost.counts()["writes"] == 2)
    own.kill("dispatcher-1", sig)
    effect = lost.ended()
    assert (effect["stage"], effect["outcome"]) == ("reconciling", "unknown")
    if sig == signal.SIGSTOP:
        own.resume("dispatcher-1")
    else:
        own.restart("dispatcher-1")
    time.sleep(2)
    assert scene.effect(lost.id)["outcome"] == "unknown" and lost.counts()["writes"] == 2
    assert scene.usage(lost.limit) == (0, AMOUNT, AMOUNT)


def test_a_dispatcher_that_is_killed_before_the_gate_says_nothing_of_the_first_write(own, scene):
    """Its journal proves that the replay never left: evidence, as the first write may have been applied."""
    lost = Lost(scene)
    own.pause("sandbox")
    try:
        assert lost.replay().status == 200
        lost.when(lambda e: kinds(e).count("replay") == 1)
        own.kill("dispatcher-1")
        own.restart("dispatcher-1")
        effect = lost.ended()
    finally:
        own.resume("sandbox")
    assert (effect["stage"], effect["outcome"]) == ("reconciling", "unknown")
    assert lost.replay().status == 200
    assert scene.settled(lost.id)["outcome"] == "succeeded"
    assert lost.counts()["applied"] == 1


@pytest.mark.parametrize("part", ["ingest-1", "scheduler-1"])
def test_others_that_are_killed_lose_no_replay(own, scene, part):
    lost = Lost(scene)
    assert lost.replay().status == 200
    own.kill(part)
    own.restart(part)
    assert scene.settled(lost.id)["outcome"] == "succeeded"
    assert lost.counts()["writes"] == 2 and lost.counts()["applied"] == 1
    assert os.path.exists(own.dir)


def test_settled_while_the_replay_is_on_its_way(own, scene):
    """The late end of the replay is evidence; a halt knows until when it may have left."""
    lost = Lost(scene)
    scene.sandbox.fault("delay_ms", {"intent": lost.intent, "kind": "write"}, ms=1200)
    assert lost.replay().status == 200
    wait_until(lambda: lost.counts()["writes"] == 2)
    own.psql("update reads_due set due_at = hf_now()", admin=True)
    scene.end_rule(lost.reads)
    effect = scene.settled(lost.id)
    assert effect["outcome"] == "succeeded" and effect["conflict"] is False
    time.sleep(2)
    assert scene.effect(lost.id)["conflict"] is False
    assert scene.usage(lost.limit) == (AMOUNT, 0, 0) and lost.counts()["applied"] == 1
