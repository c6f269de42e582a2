"""What tests play on: an environment of their own in a shared fleet, and functions run side by side."""

import concurrent.futures
import os
import pathlib
import subprocess

from harness import unique, wait_until

ACTIONS = "/api/v2/actions"
EFFECTS = "/api/v2/actions/effects"

NOT_FOUND = ("The read-back did not find this operation. That does not prove the write failed, so the "
             "outcome stays unknown.")
UNKNOWN = ("The provider may have applied effect {}; Holdfast is reconciling it. Do not retry; "
           "inspect the effect.")
NEVER_LEFT = "The request for effect {} never left. Fix the cause before sending it again."
REFUSED = "The provider refused effect {} with HTTP {}. Fix the cause before sending it again."


def effect_url(effect_id, act=None):
    return f"{EFFECTS}/{effect_id}/{act}" if act else f"{EFFECTS}/{effect_id}"


class Scene:
    """One environment of a fleet with its keys, so that limits and halts of tests do not meet."""

    def __init__(self, fleet):
        self.fleet = fleet
        self.sandbox = fleet.sandbox
        self.environment = unique("env")
        self.operator = fleet.api(self.key("operator", "--preset", "operator"))
        self.agent = fleet.api(self.key("agent", "--preset", "agent"))
        self.resolver = fleet.api(self.key("resolver", "--preset", "resolver"))
        self.secret("STRIPE_KEY", "sk_test_1")

    def key(self, agent, *options):
        """Makes a key of an agent of this environment; returns when it is known."""
        program = pathlib.Path(self.fleet.env["FLEET_BIN"]) / "holdfast"
        settings = {"HOLDFAST_DATABASE_URL": self.fleet.env["HOLDFAST_DATABASE_URL"]}
        made = subprocess.run(
            [program, "keys", "create", "--env", self.environment, "--agent", agent, *options],
            env={"PATH": os.environ["PATH"], **settings}, capture_output=True, text=True, timeout=30)
        assert made.returncode == 0, made.stderr
        key = made.stdout.strip()
        identity = self.fleet.api(key)
        wait_until(lambda: identity.get("/api/v2/auth/identity").status == 200, what="the key")
        return key

    def made(self, answer):
        assert answer.status in (200, 201), answer
        return answer.data

    def secret(self, name, value, **restrictions):
        self.made(self.operator.put(f"/api/v2/secrets/{name}", {"value": value, **restrictions}))

    def action(self, **definition):
        """Creates an action and gives its name."""
        name = definition.setdefault("name", unique("action"))
        self.made(self.operator.post(ACTIONS, definition))
        return name

    def refund_action(self, currency="usd", base=None, **config):
        config = {"account": "acct_1", "mode": "test", "currency": currency,
                  "baseUrl": base or self.fleet.env["SANDBOX_URL"], **config}
        return self.action(adapter={"type": "stripe.refund", "config": config,
                                    "credentialSecret": "STRIPE_KEY"})

    def lossy_refund_action(self, currency="usd"):
        """Each answer to a write counts as lost, whatever the sandbox did with the write."""
        return self.refund_action(currency, faultDrill="drop_response_after_send")

    def limit(self, action, amount=20000, unit="usd", **more):
        """A limit on what one action spends."""
        wanted = {"name": unique("limit"), "dimension": "money", "currency": unit, "period": "day",
                  "amount": amount, "actionName": action, **more}
        return self.made(self.operator.post("/api/v2/impact-limits", wanted))["id"]

    def usage(self, limit):
        """What a limit has (consumed, reserved, of that exposed by unknowns)."""
        data = self.operator.get(f"/api/v2/impact-limits/{limit}").data
        return data["consumed"], data["reserved"], data["unknownExposure"]

    def refund(self, action, intent, amount=12000, **more):
        """Invokes a refund and gives what the agent was told."""
        answer = self.agent.invoke(action, {"payment_intent": intent, "amount": amount}, **more)
        assert answer.status in (200, 202), answer
        return answer.data

    def effect(self, effect_id):
        answer = self.operator.get(effect_url(effect_id))
        assert answer.status == 200, answer
        return answer.data

    def effect_when(self, effect_id, condition, timeout=30):
        """Waits until the effect is so; gives it."""
        seen = {}

        def look():
            seen["effect"] = self.effect(effect_id)
            return condition(seen["effect"])

        wait_until(look, timeout, what=f"{effect_id} in {seen}")
        return seen["effect"]

    def settled(self, effect_id, timeout=30):
        return self.effect_when(effect_id, lambda e: e["stage"] == "settled", timeout)

    def reconcile(self, effect_id, who=None):
        return (who or self.agent).post(effect_url(effect_id, "reconcile"))

    def resolve(self, effect_id, outcome="failed", reason="Looked it up.", who=None, **more):
        return (who or self.resolver).post(effect_url(effect_id, "resolve"),
                                           {"outcome": outcome, "reason": reason, **more})

    def block_reads(self, intent):
        """Reads of the intent get no usable answer until the rule that is given ends."""
        return self.sandbox.fault("status", {"intent": intent, "kind": "read"}, status=503, times=-1)

    def end_rule(self, rule):
        self.sandbox.control("DELETE", f"/faults/{rule}")

    def requests(self, intent):
        """What the sandbox got about a payment intent, oldest first."""
        return [r for r in self.sandbox.requests() if r["intent"] == intent]


def kinds(effect):
    return [attempt["kind"] for attempt in effect["attempts"]]


def texts(effect, kind=None):
    """The sentences of an effect's evidence."""
    return [e["text"] for e in effect["evidence"] if kind in (None, e["kind"])]


class Stories:
    """Functions that run side by side and are reported as a test each.

    They wait most of their time, and a fleet is there for many callers at once.
    """

    def __init__(self):
        self.functions = {}

    def __call__(self, function):
        self.functions[function.__name__] = function
        return function

    def run(self, *arguments, at_once=None):
        """Runs all of them to their ends; gives a future each."""
        with concurrent.futures.ThreadPoolExecutor(at_once or len(self.functions)) as pool:
            return {name: pool.submit(function, *arguments)
                    for name, function in self.functions.items()}
