"""What tests of policies and approvals play on: a scene with people who decide, and short ways to say things."""

from harness import unique, wait_until
from scene import Scene

APPROVALS = "/api/v2/approvals"
POLICIES = "/api/v2/approval-policies"


class Governed(Scene):
    """A scene with a gated refund action and two people who may decide, apart from the resolver."""

    def __init__(self, fleet):
        super().__init__(fleet)
        self.first = self.person("first")
        self.second = self.person("second")

    def person(self, name):
        """Somebody who decides approvals."""
        return self.fleet.api(self.key(name, "--scopes", "approvals:decide,approvals:read,actions:read"))

    def caller(self, agent, *options):
        """Another key that may invoke."""
        return self.fleet.api(self.key(agent, "--preset", "agent", *options))

    def gated_action(self, **config):
        """A refund action that requires an approval."""
        name = self.refund_action(**config)
        self.made(self.operator.patch(f"/api/v2/actions/{name}", {"requiresApproval": True}))
        return name

    def policy(self, effect="require_approval", kind="action", action=None, **more):
        """Makes a policy and gives it as the wire shows it."""
        wanted = {"name": unique("policy"), "matchKind": kind, "effect": effect, **more}
        if action:
            wanted["matchActionName"] = action
        return self.made(self.operator.post(POLICIES, wanted))

    def pending(self, action, intent, amount=500, who=None, **more):
        """Invokes what needs an approval; gives the invocation that waits for it."""
        answer = (who or self.agent).invoke(action, {"payment_intent": intent, "amount": amount}, **more)
        assert (answer.status, answer.data["status"]) == (200, "pending_approval"), answer
        return answer.data

    def approval(self, approval_id, who=None, wait=None):
        answer = (who or self.agent).get(f"{APPROVALS}/{approval_id}" + (f"?waitSeconds={wait}" if wait else ""))
        assert answer.status == 200, answer
        return answer.data

    def decide(self, word, approval_id, who=None, key=None, **body):
        headers = {"Idempotency-Key": key or unique("decision")}
        return (who or self.first).post(f"{APPROVALS}/{approval_id}/{word}", body, headers)

    def approve(self, approval_id, who=None, **more):
        return self.decide("approve", approval_id, who, **more)

    def deny(self, approval_id, who=None, **more):
        return self.decide("deny", approval_id, who, **more)

    def cancel(self, invocation_id, who=None):
        return (who or self.agent).post(f"/api/v2/actions/invocations/{invocation_id}/cancel")

    def ended(self, invocation_id, timeout=20):
        """The invocation once it is settled or rejected."""
        return wait_until(lambda: self.if_ended(invocation_id), timeout, what=f"the end of {invocation_id}")

    def if_ended(self, invocation_id):
        found = self.agent.invocation(invocation_id)
        return found if found["status"] not in ("pending_approval", "running", "unknown") else None

    def writes(self, intent):
        return self.sandbox.counts(intent=intent)["writes"]

    def sql(self, statement, *parameters):
        return self.fleet.psql(statement, *parameters, admin=True)


def raw(prefixed):
    """The uuid that an id of the wire stands for, as text."""
    alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    number = 0
    for letter in prefixed.split("_", 1)[1]:
        number = number * 32 + alphabet.index(letter)
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
