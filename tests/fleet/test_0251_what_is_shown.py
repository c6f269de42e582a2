"""What whoever has to settle or mend something is shown: answers of unknowns, causes, conflicts, figures."""

import pytest

from harness import unique, wait_until
from scene import Scene, effect_url


@pytest.fixture(scope="module")
def scene(fleet):
    return Scene(fleet)


def listed(scene, query):
    answer = scene.operator.get(f"/api/v2/actions/effects?limit=200&{query}")
    assert answer.status == 200, answer
    return [effect["id"] for effect in answer.data]


@pytest.mark.parametrize("body, shown", [
    ('{"error": {"message": "try \\u0000 later"}}', {"error": {"message": "try \0 later"}}),
    ("<h1>Bad gateway</h1>", "<h1>Bad gateway</h1>"),
    ("[1, 2", "[1, 2")])
def test_the_answer_of_an_unknown_is_shown(scene, body, shown):
    intent, action = unique("pi"), scene.refund_action()
    scene.block_reads(intent)
    scene.sandbox.fault("status", {"intent": intent, "kind": "write"}, status=500, body=body)
    made = scene.refund(action, intent)
    assert (made["status"], made["responseStatus"]) == ("unknown", 500)
    assert made["response"] == shown
    assert scene.agent.invocation(made["id"])["response"] == shown


@pytest.mark.parametrize("governed", [True, False])
def test_the_cause_of_what_never_left_is_shown(scene, governed):
    more = {"impact": {"dimension": "resource_mutations", "amount": 1, "bound": "exact"}} if governed else {}
    name = scene.action(urlTemplate="http://127.0.0.1:9/x", **more) # nobody listens there
    made = scene.agent.invoke(name, {})
    assert made.data["status"] == "failed" and made.data["cause"], made
    assert "never left" in made.data["error"] and "127.0.0.1" in made.data["cause"]


def test_what_the_provider_refused_shows_its_cause_and_a_success_shows_none(scene):
    action = scene.refund_action()
    assert scene.refund(action, f"pi_402_{unique('x')}")["cause"]
    assert scene.refund(action, unique("pi"))["cause"] is None


def test_conflicts_are_listed_whether_open_or_settled(scene):
    """The provider has the refund in another amount: a person said failed, and then it was found."""
    intent, action = unique("pi"), scene.lossy_refund_action()
    rule = scene.block_reads(intent)
    made = scene.refund(action, intent)
    assert scene.resolve(made["effectId"], "failed").status == 200
    assert made["effectId"] not in listed(scene, "conflict=true")
    scene.end_rule(rule)
    scene.fleet.psql("update reads_due set due_at = now() where effect_id = (select id from effects"
                     " where prefixed('eff', id) = %s)", made["effectId"], admin=True)
    scene.effect_when(made["effectId"], lambda e: e["conflict"])
    assert made["effectId"] in listed(scene, "conflict=true")
    assert made["effectId"] not in listed(scene, "conflict=false")
    other = scene.refund(scene.refund_action(), unique("pi"))
    assert other["effectId"] in listed(scene, "conflict=false") and other["effectId"] not in listed(scene, "conflict=true")
    assert scene.operator.get("/api/v2/actions/effects?conflict=maybe").status == 400


def test_the_scheduler_measures_what_is_open(scene, fleet):
    intent = unique("pi")
    scene.block_reads(intent)
    made = scene.refund(scene.lossy_refund_action(), intent)
    assert made["status"] == "unknown"

    def measured():
        return (fleet.metric("scheduler-1", 'holdfast_open_effects{state="unknown"}') or 0) >= 1 and (
            fleet.metric("scheduler-1", "holdfast_oldest_unknown_seconds") or 0) >= 1

    wait_until(measured, 15, what="the figures of the scheduler")
    assert fleet.metric("scheduler-1", "holdfast_open_conflicts") is not None


def test_only_a_conflict_is_logged_as_one(scene, fleet):
    made = scene.refund(scene.refund_action(), unique("pi"))
    assert made["status"] == "succeeded"
    scene.effect_when(made["effectId"], lambda e: e["grade"] == "confirmed")
    for name in ("dispatcher-1", "reconciler-1"):
        lines = [line for line in fleet.log(name).splitlines() if made["effectId"] in line]
        assert not [line for line in lines if "effect_conflict" in line], lines
