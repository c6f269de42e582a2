"""A thousand approvals, denials, cancellations and repeated invokes at once, on a hundred gated calls: each ends in
exactly one of the allowed ways, and nothing is sent without a valid approval."""

import concurrent.futures
import random

import pytest

from governed import Governed
from harness import unique

CALLS, ACTS = 100, 1000


@pytest.fixture(scope="module")
def scene(fleet):
    return Governed(fleet)


@pytest.mark.parametrize("seed", [1, 2])
def test_each_call_ends_in_one_way_and_nothing_is_sent_unapproved(scene, seed):
    chance = random.Random(seed)
    limit_action = scene.gated_action()
    limit = scene.limit(limit_action, amount=10 ** 9)
    calls = []
    for _ in range(CALLS):
        intent, key = unique("pi"), unique("key")
        made = scene.pending(limit_action, intent, key=key)
        calls.append({"intent": intent, "key": key, "id": made["id"], "approval": made["approvalId"],
                      "effect": made["effectId"]})

    def act(n):
        call, what = chance_of[n]
        if what == "approve":
            return what, call, scene.approve(call["approval"], who=scene.first if n % 2 else scene.second)
        if what == "deny":
            return what, call, scene.deny(call["approval"], who=scene.second if n % 2 else scene.first)
        if what == "cancel":
            return what, call, scene.cancel(call["id"])
        return what, call, scene.agent.invoke(limit_action, {"payment_intent": call["intent"], "amount": 500},
                                              key=call["key"], wait=0)

    words = ["approve", "deny", "cancel", "invoke"]
    chance_of = [(calls[n % CALLS], chance.choice(words)) for n in range(ACTS)]
    chance.shuffle(chance_of)
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        done = list(pool.map(act, range(ACTS)))

    for what, call, answer in done:
        allowed = {"approve": (200, 409), "deny": (200, 409), "cancel": (200, 409), "invoke": (200, 202, 409)}[what]
        assert answer.status in allowed, (what, answer)
    consumed = 0
    for call in calls:
        first = [(what, answer) for what, c, answer in done if c is call and what != "invoke" and answer.status == 200]
        found = scene.agent.invocation(call["id"])
        writes = scene.writes(call["intent"])
        if not first: # nobody decided it
            assert found["status"] == "pending_approval" and writes == 0
            continue
        approval = scene.approval(call["approval"])
        ended = scene.ended(call["id"])
        assert (ended["status"], approval["status"], scene.writes(call["intent"])) in {
            ("succeeded", "approved", 1), ("denied", "denied", 0), ("expired", "approved", 0),
            ("expired", "expired", 0)}, (ended, approval, first)
        said = {what for what, _ in first}
        if ended["status"] == "succeeded":
            assert "approve" in said and "deny" not in said
            consumed += 500
        elif ended["status"] == "denied":
            assert "deny" in said and "approve" not in said
        else:
            assert "cancel" in said
    assert scene.usage(limit) == (consumed, 0, 0)
    assert 0 < consumed < CALLS * 500
