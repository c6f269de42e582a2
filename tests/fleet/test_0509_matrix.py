"""Five questions (may it run, is it to be approved, is it denied, was it done, may it have been done) asked by each
kind of asker: every cell has its own answer, and a sentence that a model can act on. Asked at the gate for workers
outside (docs/claims.md), whose answers are the same facts as an invoke's."""

import pytest

from governed import Governed
from harness import unique, wait_until

CLAIMS = "/api/v2/claims"

# What each asker is told: the status, and the code or the claim's status.
GRANTED = (201, "granted")
PENDING = (202, "pending_approval")
DENIED = (403, "EFFECT_DENIED")
DUPLICATE = (409, "DUPLICATE_EFFECT")
AMBIGUOUS = (409, "AMBIGUOUS_EFFECT")
EXPIRED = (409, "EFFECT_EXPIRED")
OTHER_INPUT = (409, "operation_key_reuse")
NO_SCOPE = (403, "AUTHORIZATION_ERROR")

MATRIX = {
    #                        allow        approve      deny         duplicate    ambiguous
    "same worker":          (GRANTED,     GRANTED,     DENIED,      DUPLICATE,   AMBIGUOUS),
    "second worker":        (GRANTED,     GRANTED,     DENIED,      DUPLICATE,   AMBIGUOUS),
    "after restart":        (GRANTED,     GRANTED,     DENIED,      DUPLICATE,   AMBIGUOUS),
    "changed arguments":    (GRANTED,     OTHER_INPUT, OTHER_INPUT, OTHER_INPUT, OTHER_INPUT),
    "expired":              (EXPIRED,     EXPIRED,     DENIED,      DUPLICATE,   AMBIGUOUS),
    "replayed approval":    (PENDING,     DUPLICATE,   DENIED,      DUPLICATE,   AMBIGUOUS),
    "wrong principal":      (NO_SCOPE,    NO_SCOPE,    NO_SCOPE,    NO_SCOPE,    NO_SCOPE),
}
QUESTIONS = ["allow", "approve", "deny", "duplicate", "ambiguous"]


@pytest.fixture(scope="module")
def scene(fleet):
    return Governed(fleet)


@pytest.fixture(scope="module")
def askers(scene):
    return {"worker": scene.agent, "second": scene.caller("second"),
            "wrong": scene.fleet.api(scene.key("reader", "--scopes", "actions:read"))}


class Cell:
    """One operation, brought to where the question is about it."""

    def __init__(self, scene, question, asker):
        self.scene, self.question, self.asker = scene, question, asker
        self.operation, self.key, self.amount = unique("op"), None, 100
        self.gated = question in ("approve", "deny")
        self.action = scene.action(adapter={"type": "external"}, requiresApproval=self.gated)
        self.made = None
        getattr(self, question)()

    def ask(self, who=None, **more):
        body = {"action": self.action, "operationKey": self.operation, "input": {"amount": self.amount}, **more}
        return (who or self.scene.agent).post(CLAIMS, body, {"Idempotency-Key": self.key} if self.key else {})

    def report(self, word, **body):
        done = self.scene.agent.post(f"{CLAIMS}/{self.made['id']}/{word}", body)
        assert done.status == 200, done

    # ---- the questions

    def allow(self):
        pass

    def approve(self):
        """Asked for, and approved unless the approval is to run out."""
        self.made = self.scene.made_or_pending(self.ask())
        if self.asker != "expired":
            assert self.scene.approve(self.made["approvalId"]).status == 200

    def deny(self):
        self.made = self.scene.made_or_pending(self.ask())
        assert self.scene.deny(self.made["approvalId"]).status == 200

    def duplicate(self):
        self.made = self.ask().data
        self.report("complete")

    def ambiguous(self):
        self.made = self.ask(leaseSeconds=1 if self.asker == "expired" else 60).data
        if self.asker == "expired":
            wait_until(lambda: self.ask().error["code"] == "AMBIGUOUS_EFFECT", 30, what="the end of the lease")
        else:
            self.report("unknown")

    # ---- the askers

    def prepare(self):
        """What has to happen between the question and its asking."""
        if self.asker == "after restart":
            self.scene.fleet.restart("ingest-1")
            wait_until(lambda: self.scene.agent.get("/api/v2/auth/identity").status == 200, what="ingest")
        elif self.asker == "changed arguments":
            self.amount += 1
        elif self.asker == "replayed approval" and self.question == "approve":
            assert self.ask().status == 201  # the approval is used up
        elif self.asker == "replayed approval" and self.question == "allow":
            # An approval of one operation is no approval of another: this one has to be asked for.
            other = Cell(self.scene, "approve", "same worker")
            self.action = other.action
        elif self.asker == "expired" and self.question in ("allow", "approve"):
            self.run_out()

    def run_out(self):
        """The request runs out before it is granted; whoever sends it again learns that."""
        self.key, self.operation = unique("key"), unique("op")
        self.scene.made(self.scene.operator.patch(f"/api/v2/actions/{self.action}", {"requiresApproval": True}))
        self.scene.made_or_pending(self.ask(dispatchBeforeSeconds=1))
        wait_until(lambda: self.ask(dispatchBeforeSeconds=1).status != 202, 30, what="the end of its time")

    def answer(self, askers):
        self.prepare()
        who = {"second worker": "second", "wrong principal": "wrong"}.get(self.asker, "worker")
        more = {"dispatchBeforeSeconds": 1} if self.key else {}
        return self.ask(askers[who], **more)


def made_or_pending(answer):
    assert answer.status in (201, 202), answer
    return answer.data


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("asker", MATRIX)
def test_each_cell_has_its_answer(scene, askers, asker, question):
    scene.made_or_pending = made_or_pending
    expected = MATRIX[asker][QUESTIONS.index(question)]
    answer = Cell(scene, question, asker).answer(askers)
    if answer.status < 300:
        assert (answer.status, answer.data["status"]) == expected, answer
        return
    assert (answer.status, answer.error["code"]) == expected, answer
    message = answer.error["message"]
    assert len(message.split()) >= 6, message
    if expected in (DENIED, DUPLICATE, AMBIGUOUS):
        assert "Do not perform" in message or "Do not" in message, message
        assert answer.error["details"]["effectId"].startswith("eff_")
