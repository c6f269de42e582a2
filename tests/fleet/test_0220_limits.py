"""Limits through the whole fleet: who gets the last of one, and what stays held while nobody knows."""

import concurrent.futures
import re

import pytest

from harness import unique
from scene import Scene

MOST = 2 ** 53 - 1
LIMITS = "/api/v2/impact-limits"


@pytest.fixture(scope="module")
def scene(fleet):
    return Scene(fleet)


def spending_action(scene):
    """A declared action that spends what its input says; the sandbox counts its writes by action."""
    name = unique("spend")
    return scene.action(
        name=name, urlTemplate=f"{scene.fleet.env['SANDBOX_URL']}/generic/{name}", bodyTemplate={"n": "{{input.cents}}"},
        headers={"X-Holdfast-Effect": "{{effect.id}}"},
        impact={"dimension": "money", "unit": "usd", "amount": "input.cents", "bound": "exact"})


def spend(scene, action, cents, agent=None, **members):
    answer = (agent or scene.agent).invoke(action, {"cents": cents}, **members)
    assert answer.status == 200, answer
    return answer.data


def writes(scene, *invocations):
    return sum(scene.sandbox.counts(effect=i["effectId"])["writes"] for i in invocations)


def is_refused(scene, invocation):
    """Whether a call was refused in its claim, told as api.md says; gives the sentence."""
    effect = scene.effect(invocation["effectId"])
    assert (invocation["status"], invocation["grade"], invocation["responseStatus"]) == ("failed", "refused", None)
    assert (effect["outcome"], effect["stage"], effect["grade"]) == ("not_dispatched", "rejected", "refused")
    assert effect["attempts"] == effect["reservations"] == []
    assert not effect["unresolvedExposure"]
    assert writes(scene, invocation) == 0
    return invocation["error"]


# ---------------------------------------------------------------- the last of a limit


@pytest.mark.parametrize("round_number", range(5))
def test_two_agents_race_for_the_last_of_it(scene, round_number):
    action = spending_action(scene)
    limit = scene.limit(action, amount=12000)
    agents = [scene.agent, scene.fleet.api(scene.key(unique("agent"), "--preset", "agent"))]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        told = list(pool.map(lambda agent: spend(scene, action, 12000, agent), agents))
    won, lost = sorted(told, key=lambda i: i["status"] != "succeeded")
    assert won["status"] == "succeeded"
    sentence = is_refused(scene, lost)
    assert re.search(rf"limit {limit} \(.*\) has 0 of 12000 left, 12000 asked for", sentence)
    assert writes(scene, won) == 1
    assert scene.usage(limit) == (12000, 0, 0)


def test_many_race_and_exactly_what_fits_runs(scene):
    action = spending_action(scene)
    limit = scene.limit(action, amount=700)
    with concurrent.futures.ThreadPoolExecutor(30) as pool:
        told = list(pool.map(lambda _: spend(scene, action, 100), range(30)))
    won = [i for i in told if i["status"] == "succeeded"]
    assert len(won) == 7
    for lost in (i for i in told if i["status"] != "succeeded"):
        is_refused(scene, lost)
    assert writes(scene, *told) == 7
    assert scene.usage(limit) == (700, 0, 0)


def test_what_failed_gives_back_what_it_held(scene):
    action = scene.refund_action()
    limit = scene.limit(action, amount=12000)
    failed = scene.refund(action, unique("pi_402"), 12000)
    assert (failed["status"], scene.usage(limit)) == ("failed", (0, 0, 0))
    assert scene.refund(action, unique("pi"), 12000)["status"] == "succeeded"
    assert scene.usage(limit) == (12000, 0, 0)


def test_pending_at_the_provider_is_held_and_no_exposure(scene):
    action = scene.refund_action()
    limit = scene.limit(action, amount=20000)
    pending = scene.refund(action, unique("pi_pending"), 12000)
    assert pending["status"] == "running"
    assert scene.usage(limit) == (0, 12000, 0)
    is_refused(scene, scene.refund(action, unique("pi"), 8001))
    effect = scene.effect(pending["effectId"])
    assert (effect["outcome"], effect["stage"], effect["unresolvedExposure"]) == ("pending", "reconciling", False)


def test_a_varied_retry_of_an_unknown_is_refused_by_the_limit(scene):
    """Case 18: 12,000 of 20,000 unknown, and the agent tries 12,001 under a new key."""
    action, intent = scene.lossy_refund_action(), unique("pi")
    limit = scene.limit(action, amount=20000)
    scene.block_reads(intent)
    unknown = scene.refund(action, intent, 12000)
    assert (unknown["status"], scene.usage(limit)) == ("unknown", (0, 12000, 12000))
    sentence = is_refused(scene, scene.refund(action, intent, 12001))
    assert "has 8000 of 20000 left, 12001 asked for" in sentence
    retry = scene.agent.invoke(action, {"payment_intent": intent, "amount": 12001}, retryOf=unknown["id"])
    assert (retry.status, retry.code) == (409, "RETRY_REFUSED")
    assert scene.usage(limit) == (0, 12000, 12000)
    assert len([r for r in scene.requests(intent) if r["write"]]) == 1
    scene.sandbox.control("DELETE", "/faults")


def test_no_quantity_is_refused_by_a_limit_that_applies(scene):
    action = scene.refund_action()
    everything = {"payment_intent": unique("pi")}
    limit = scene.limit(action, amount=MOST)
    sentence = is_refused(scene, scene.agent.invoke(action, everything).data)
    assert "no quantity" in sentence and limit in sentence


def test_limits_of_another_kind_do_not_apply(scene):
    action = spending_action(scene)
    others = [scene.limit(action, amount=0, unit="eur"), scene.limit(spending_action(scene), amount=0),
              scene.limit(action, amount=0, resourcePrefix="api.example.com/")]
    applies = scene.limit(action, amount=100, period="total", resourcePrefix="127.0.0.1")
    assert spend(scene, action, 100)["status"] == "succeeded"
    assert [scene.usage(limit) for limit in others] == [(0, 0, 0)] * 3
    assert scene.usage(applies) == (100, 0, 0)


def test_the_narrowest_of_several_limits_decides_and_none_is_left_holding(scene):
    action = spending_action(scene)
    wide, narrow = scene.limit(action, amount=10000, period="month"), scene.limit(action, amount=50)
    assert narrow in is_refused(scene, spend(scene, action, 51))
    assert scene.usage(wide) == scene.usage(narrow) == (0, 0, 0)
    spend(scene, action, 50)
    assert scene.usage(wide) == scene.usage(narrow) == (50, 0, 0)


# ---------------------------------------------------------------- limits that change


@pytest.fixture
def exposed(scene):
    """An unknown refund of 12,000 under a limit of 20,000, and how to let its read-back find it."""
    action, intent = scene.lossy_refund_action(), unique("pi")
    limit = scene.limit(action, amount=20000)
    rule = scene.block_reads(intent)
    unknown = scene.refund(action, intent, 12000)
    assert unknown["status"] == "unknown"

    def found():
        scene.end_rule(rule)
        return scene.settled(unknown["effectId"])

    yield action, limit, found
    scene.sandbox.control("DELETE", "/faults")


def test_an_archived_limit_applies_no_more_and_settles_what_it_holds(scene, exposed):
    action, limit, found = exposed
    archived = scene.operator.delete(f"{LIMITS}/{limit}")
    assert archived.status in (200, 204), archived
    assert limit not in [x["id"] for x in scene.operator.get(LIMITS).data]
    assert limit in [x["id"] for x in scene.operator.get(f"{LIMITS}?includeArchived=true").data]
    assert scene.usage(limit) == (0, 12000, 12000)
    other = scene.refund_action()
    assert scene.refund(other, unique("pi"), 30000)["status"] == "succeeded"
    assert found()["grade"] == "confirmed"
    assert scene.usage(limit) == (12000, 0, 0)
    assert scene.operator.get(f"{LIMITS}/{limit}").data["archived"] is True


def test_a_limit_lowered_below_its_exposure_refuses_and_settles(scene, exposed):
    action, limit, found = exposed
    lowered = scene.operator.patch(f"{LIMITS}/{limit}", {"amount": 5000})
    assert (lowered.status, lowered.data["amount"], lowered.data["available"]) == (200, 5000, 0), lowered
    assert "has 0 of 5000 left" in is_refused(scene, scene.refund(action, unique("pi"), 1))
    assert scene.usage(limit) == (0, 12000, 12000)
    found()
    assert scene.usage(limit) == (12000, 0, 0)
    scene.made(scene.operator.patch(f"{LIMITS}/{limit}", {"amount": 12001}))
    assert is_refused(scene, scene.refund(action, unique("pi"), 2))


def test_a_raised_limit_lets_the_next_one_run(scene):
    action = spending_action(scene)
    limit = scene.limit(action, amount=10)
    is_refused(scene, spend(scene, action, 11))
    scene.made(scene.operator.patch(f"{LIMITS}/{limit}", {"amount": 11}))
    assert spend(scene, action, 11)["status"] == "succeeded"


# ---------------------------------------------------------------- the edges of numbers


def test_the_largest_amount_and_nothing_beyond(scene):
    action = spending_action(scene)
    limit = scene.limit(action, amount=MOST)
    assert spend(scene, action, MOST)["status"] == "succeeded"
    assert scene.usage(limit) == (MOST, 0, 0)
    assert "has 0 of" in is_refused(scene, spend(scene, action, MOST))
    assert spend(scene, action, 0)["status"] == "succeeded"
    assert scene.operator.get(f"{LIMITS}/{limit}").data["available"] == 0


def test_sums_past_the_largest_amount_are_refused_never_wrapped(scene):
    """Holds that each fit and together do not, at once."""
    action = spending_action(scene)
    limit = scene.limit(action, amount=MOST)
    part = MOST // 2 + 1
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        told = list(pool.map(lambda _: spend(scene, action, part), range(6)))
    assert sorted(i["status"] for i in told) == ["failed"] * 5 + ["succeeded"]
    assert scene.usage(limit) == (part, 0, 0)


@pytest.mark.parametrize("amount", ["-1", "1.0", "1e2", '"100"', str(MOST + 1), str(2 ** 63), "null", "true"])
def test_a_limit_has_a_whole_amount(scene, amount):
    before = len(scene.operator.get(f"{LIMITS}?includeArchived=true").data)
    body = ('{"name":"x","dimension":"money","currency":"usd","period":"day","amount":%s}' % amount).encode()
    made = scene.operator.call("POST", LIMITS, body)
    assert (made.status, made.code) == (400, "VALIDATION_ERROR"), made
    limit = scene.limit(spending_action(scene), amount=7)
    changed = scene.operator.call("PATCH", f"{LIMITS}/{limit}", ('{"amount":%s}' % amount).encode())
    assert (changed.status, changed.code) == (400, "VALIDATION_ERROR"), changed
    assert scene.operator.get(f"{LIMITS}/{limit}").data["amount"] == 7
    assert len(scene.operator.get(f"{LIMITS}?includeArchived=true").data) == before + 1


# ---------------------------------------------------------------- restarts, and the end of a day


def test_unknown_stays_held_across_restarts_and_the_end_of_a_day(make_fleet):
    fleet = make_fleet("day")
    scene = Scene(fleet)
    action, intent = scene.lossy_refund_action(), unique("pi")
    limit, month = scene.limit(action, amount=20000), scene.limit(action, amount=100000, period="total")
    rule = scene.block_reads(intent)
    unknown = scene.refund(action, intent, 12000)
    assert unknown["status"] == "unknown"

    fleet.restart()
    assert scene.usage(limit) == scene.usage(month) == (0, 12000, 12000)
    assert "has 8000 of 20000 left" in is_refused(scene, scene.refund(action, unique("pi"), 8001))

    yesterday = scene.operator.get(f"{LIMITS}/{limit}").data["periodStart"]
    fleet.psql("alter database holdfast set holdfast.clock_offset = '1 day'", admin=True)
    fleet.restart()
    state = scene.operator.get(f"{LIMITS}/{limit}").data
    assert state["periodStart"] > yesterday
    assert (scene.usage(limit), state["available"]) == ((0, 12000, 12000), 8000)
    assert "has 8000 of 20000 left" in is_refused(scene, scene.refund(action, unique("pi"), 8001))
    plain = scene.refund(action, unique("pi"), 8000)
    scene.settled(plain["effectId"])
    assert scene.usage(limit) == (8000, 12000, 12000)

    # Found at last: it is consumed in the day it was made, and today has room again.
    scene.end_rule(rule)
    assert scene.settled(unknown["effectId"])["grade"] == "confirmed"
    assert (scene.usage(limit), scene.usage(month)) == ((8000, 0, 0), (20000, 0, 0))
    assert fleet.psql("select consumed from limit_usage where period_start = %s", yesterday) == [{"consumed": 12000}]
    assert len([r for r in scene.requests(intent) if r["write"]]) == 1
