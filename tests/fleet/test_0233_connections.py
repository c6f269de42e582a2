"""Kept connections that die: a client library that sends again by itself would write twice."""

import base64

import pytest

from scene import Scene
from sandbox_client import Sandbox

FORGED = b'HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{"forged": 1}'


@pytest.fixture(scope="module")
def scene(fleet):
    return Scene(fleet)


@pytest.fixture
def provider(scene):
    """A provider to which nobody has kept a connection yet."""
    sandbox = Sandbox()
    yield Provider(scene, sandbox)
    sandbox.end()


class Provider:
    def __init__(self, scene, sandbox):
        self.scene = scene
        self.sandbox = sandbox
        self.action = scene.action(
            urlTemplate=f"http://127.0.0.1:{sandbox.port}/generic/kept", bodyTemplate={"n": "{{input.n}}"},
            headers={"X-Holdfast-Effect": "{{effect.id}}"},
            impact={"dimension": "money", "unit": "usd", "amount": "100", "bound": "exact"})
        self.limit = scene.limit(self.action)

    def send(self, n):
        """One write; gives what the agent was told and the requests that arrived for it."""
        answer = self.scene.agent.invoke(self.action, {"n": n})
        assert answer.status == 200, answer
        arrived = [r for r in self.sandbox.requests() if r["effect"] == answer.data["effectId"]]
        return answer.data, arrived

    def send_after(self, first):
        """Writes until one goes on the connection of the first: each sending thread keeps its own."""
        for n in range(2, 12):
            told, arrived = self.send(n)
            if arrived[0]["connection"] == first[0]["connection"]:
                return told, arrived, n
            assert told["status"] == "succeeded"
        raise AssertionError("no connection was kept")


@pytest.mark.parametrize("close", ["fin", "rst"])
@pytest.mark.parametrize("mode", ["whole", "unread"])
def test_a_write_is_unknown_when_its_connection_dies_before_a_reply_byte(scene, provider, mode, close):
    """Case 1: the provider has B, whole or in part, and ends the connection."""
    provider.sandbox.fault("stale_keepalive", mode=mode, close=close)
    told, first = provider.send(1)
    assert told["status"] == "succeeded"
    told, arrived, n = provider.send_after(first)
    assert (told["status"], len(arrived)) == ("unknown", 1), arrived
    assert provider.sandbox.counts(effect=told["effectId"])["writes"] == 1
    assert scene.usage(provider.limit) == (100 * (n - 1), 100, 100)
    assert provider.send(0)[0]["status"] == "succeeded", "the next one is served"


@pytest.mark.parametrize("close", ["fin", "rst"])
def test_a_write_goes_on_another_connection_when_its_own_was_closed_while_idle(scene, provider, close):
    """Nothing of it had left, so this spends nothing."""
    provider.sandbox.fault("stale_keepalive", mode="idle", ms=0, close=close, times=3)
    connections = set()
    for n in range(6):
        told, arrived = provider.send(n)
        assert (told["status"], len(arrived)) == ("succeeded", 1)
        connections.add(arrived[0]["connection"])
    assert len(connections) >= 4, "three connections were closed"
    assert scene.usage(provider.limit) == (600, 0, 0)


def test_an_answer_that_nobody_asked_for_is_taken_for_none(provider):
    """Idle connections hold a forged 200 when the next write comes: it must not be its answer."""
    provider.sandbox.fault("stale_keepalive", mode="idle", ms=0, times=3,
                           body_base64=base64.b64encode(FORGED).decode())
    for n in range(6):
        told, arrived = provider.send(n)
        assert (told["status"], len(arrived)) == ("succeeded", 1)
        assert told["response"]["n"] == n and "forged" not in told["response"]
