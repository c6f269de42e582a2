"""Approvals with the public client, unmodified: asking, waiting, gating a function, deciding, the inbox."""

import asyncio
import concurrent.futures
import time

import anlyon
import pytest
from anlyon.errors import AnlyonError, ApprovalDeniedError, ApprovalPendingError

from governed import Governed
from harness import unique


@pytest.fixture(scope="module")
def scene(fleet):
    return Governed(fleet)


@pytest.fixture(scope="module")
def agent(scene):
    return scene.fleet.client(scene.agent.key)


@pytest.fixture(scope="module")
def boss(scene):
    return scene.fleet.client(scene.first.key)


def later(call, *arguments, after=0.4, **named):
    """Runs a call a little later, in another thread."""
    def run():
        time.sleep(after)
        return call(*arguments, **named)

    return concurrent.futures.ThreadPoolExecutor(1).submit(run)


def the_newest(boss, title):
    """The undecided approval of that title, once it is in the inbox."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        for approval in boss.approvals.list(status="pending", limit=200):
            if approval["title"] == title:
                return approval["id"]
        time.sleep(0.05)
    raise AssertionError(f"nobody asked for {title}")


def test_a_gated_action_runs_once_it_is_approved(scene, agent, boss):
    action, intent = scene.gated_action(), unique("pi")
    parked = agent.actions.invoke(action, {"payment_intent": intent, "amount": 700})
    assert parked["pendingApproval"] and parked["status"] == "pending_approval"
    deciding = later(boss.approvals.approve, parked["approvalId"], note="ok")
    decided = agent.approvals.wait_for_decision(parked["approvalId"], timeout_seconds=20)
    assert (decided["status"], decided["note"], decided["invocationId"]) == ("approved", "ok", parked["id"])
    deciding.result()
    assert scene.ended(parked["id"])["status"] == "succeeded" and scene.writes(intent) == 1


def test_a_gated_action_that_is_denied(scene, agent, boss):
    action, intent = scene.gated_action(), unique("pi")
    parked = agent.actions.invoke(action, {"payment_intent": intent, "amount": 700})
    boss.approvals.deny(parked["approvalId"], note="no")
    again = agent.actions.invocation(parked["id"])
    assert (again["status"], again["grade"]) == ("denied", "denied") and scene.writes(intent) == 0


def test_a_policy_gates_what_the_action_does_not(scene, agent, boss):
    operator = scene.fleet.client(scene.operator.key)
    action, intent = scene.refund_action(), unique("pi")
    operator.approval_policies.create(name=unique("large"), match_kind="action", match_action_name=action,
                                      min_amount=1000, effect="require_approval", required_approvals=2)
    small = agent.actions.invoke(action, {"payment_intent": unique("pi"), "amount": 999})
    assert small["status"] == "succeeded"
    large = agent.actions.invoke(action, {"payment_intent": intent, "amount": 1000})
    assert large["pendingApproval"]
    assert boss.approvals.approve(large["approvalId"])["status"] == "pending"
    chief = scene.fleet.client(scene.second.key)
    assert chief.approvals.approve(large["approvalId"])["status"] == "approved"
    assert scene.ended(large["id"])["status"] == "succeeded" and scene.writes(intent) == 1


def test_gating_a_function(agent, boss):
    ran, title = [], unique("title")

    @agent.approvals.gate(title=title, timeout_seconds=20)
    def write(order, amount):
        ran.append((order, amount))
        return "done"

    deciding = later(lambda: boss.approvals.approve(the_newest(boss, title)))
    assert write("ord_42", 129.99) == "done" and ran == [("ord_42", 129.99)]
    payload = deciding.result()["payload"]
    assert payload == {"function": "write", "args": ["ord_42", 129.99], "kwargs": {}}


def test_a_gated_function_that_is_denied_or_not_decided(agent, boss):
    title = unique("title")

    @agent.approvals.gate(title=title, timeout_seconds=20)
    def denied():
        raise AssertionError("it ran")

    @agent.approvals.gate(title=unique("title"), timeout_seconds=1)
    def undecided():
        raise AssertionError("it ran")

    deciding = later(lambda: boss.approvals.deny(the_newest(boss, title)))
    with pytest.raises(ApprovalDeniedError) as refused:
        denied()
    assert refused.value.approval["status"] == "denied"
    deciding.result()
    with pytest.raises(ApprovalPendingError):
        undecided()


def test_nobody_decides_its_own(scene):
    both = scene.fleet.client(scene.key("both", "--scopes", "approvals:decide,approvals:read,approvals:request"))
    asked = both.approvals.request(title="May I?", payload={"a": 1}, expires_in_seconds=60)
    with pytest.raises(AnlyonError) as refused:
        both.approvals.approve(asked["id"])
    assert (refused.value.status, refused.value.code) == (403, "SELF_APPROVAL_REFUSED")


def test_the_inbox(fleet):
    scene = Governed(fleet)
    agent, boss = fleet.client(scene.agent.key), fleet.client(scene.first.key)
    asked = [agent.approvals.request(title=f"No. {i}")["id"] for i in range(3)]
    boss.approvals.approve(asked[0])
    assert [a["id"] for a in boss.approvals.list(status="pending")] == [asked[2], asked[1]]
    assert [a["id"] for a in boss.approvals.list(decision_origin="human")] == [asked[0]]
    assert [a["id"] for a in boss.approvals.list(limit=1, offset=1)] == [asked[1]]
    assert boss.approvals.list(decision_origin="automated").data == []
    assert agent.approvals.get(asked[0])["status"] == "approved"


def test_asynchronously(scene, boss):
    async def run():
        client = anlyon.AsyncClient(api_key=scene.agent.key, base_url=scene.fleet.url)
        asked = await client.approvals.request(title=unique("title"))
        deciding = later(boss.approvals.approve, asked["id"])
        decided = await client.approvals.wait_for_decision(asked["id"], timeout_seconds=20)
        deciding.result()
        return decided["status"]

    assert asyncio.run(run()) == "approved"
