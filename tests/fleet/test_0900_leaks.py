"""Ten thousand effects through services that were built with the address sanitizer: none leaks.

Runs where HOLDFAST_BIN is such a build, or HOLDFAST_ASAN_BIN names one.
"""

import http.client
import json
import os
import pathlib
import subprocess
import threading
import urllib.parse

import pytest

from harness import unique, wait_until
from scene import Scene

EFFECTS = 10_000
AGENTS = 8
SERVICES = ["ingest-1", "dispatcher-1", "reconciler-1", "scheduler-1"]


def instrumented_programs():
    for name in ("HOLDFAST_ASAN_BIN", "HOLDFAST_BIN"):
        folder = os.environ.get(name)
        if folder and b"__asan_init" in (pathlib.Path(folder) / "holdfast-ingest").read_bytes():
            return folder
    return None


pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(instrumented_programs() is None, reason="no build with the address sanitizer"),
]


def test_a_leak_would_be_seen(tmp_path):
    """Where the checker can't work (it traces its process), the other test would prove nothing."""
    source = tmp_path / "leak.c"
    source.write_text("#include <stdlib.h>\nint main(void) { volatile char *p = malloc(7); p = NULL; return p != NULL; }\n")
    subprocess.run(["cc", "-fsanitize=address", "-o", tmp_path / "leak", source], check=True)
    told = subprocess.run([tmp_path / "leak"], capture_output=True, text=True)
    assert "ERROR: LeakSanitizer" in told.stderr, told.stderr


class Agent(threading.Thread):
    """Sends its part of the calls, one after the other on one connection."""

    def __init__(self, scene, calls):
        super().__init__(daemon=True)
        self.scene = scene
        self.calls = calls
        self.seen = {}
        self.start()

    def run(self):
        url = urllib.parse.urlsplit(self.scene.fleet.url)
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
        for action, body in self.calls:
            headers = {"Authorization": f"Bearer {self.scene.agent.key}", "Content-Type": "application/json",
                       "Idempotency-Key": unique("key"), "Prefer": "wait=20"}
            connection.request("POST", f"/api/v2/actions/{action}/invoke", json.dumps(body), headers)
            answer = connection.getresponse()
            data = json.loads(answer.read()).get("data") or {}
            word = data.get("status", answer.status)
            self.seen[word] = self.seen.get(word, 0) + 1
        connection.close()


def calls_of(scene):
    """Every kind of ending, in a fixed mixture."""
    refund, lossy, poor = scene.refund_action(), scene.lossy_refund_action(), scene.refund_action()
    scene.limit(poor, amount=0)
    generic = scene.action(
        urlTemplate=scene.fleet.env["SANDBOX_URL"] + "/generic/many", bodyTemplate={"e": "{{effect.id}}", "n": "{{input.n}}"},
        inputSchema={"type": "object", "properties": {"n": {"type": "integer", "maximum": 10 ** 6}}},
        verify={"url": scene.fleet.env["SANDBOX_URL"] + "/generic/many/{{response.id}}", "status": 200,
                "match": [{"path": "e", "equals": "{{effect.id}}"}]},
        impact={"dimension": "money", "unit": "usd", "amount": "input.n", "bound": "exact"})
    scene.limit(generic, amount=10 ** 12)
    for n in range(EFFECTS):
        kind = n % 50
        if kind == 0:
            yield lossy, {"input": {"payment_intent": f"pi_lossy_{n}", "amount": 1}}
        elif kind == 1:
            yield refund, {"input": {"payment_intent": f"pi_402_{n}", "amount": 1}}
        elif kind == 2:
            yield poor, {"input": {"payment_intent": f"pi_poor_{n}", "amount": 1}}
        elif kind == 3:
            yield refund, {"input": {"payment_intent": f"pi_500_{n}", "amount": 1}}
        elif kind == 4:
            yield refund, {"input": {"payment_intent": f"pi_drop_{n}", "amount": 1}, "operationKey": f"op:{n // 100}"}
        elif kind < 20:
            yield refund, {"input": {"payment_intent": f"pi_{n}", "amount": n + 1}, "runId": f"run-{n}"}
        else:
            yield generic, {"input": {"n": n}}
            if kind == 49:
                yield generic, {"input": {"n": "no number"}}


def test_ten_thousand_effects_leak_nothing(make_fleet):
    fleet = make_fleet("leaks", settings={"HOLDFAST_BIN": instrumented_programs(), "HOLDFAST_READBACK_SCHEDULE": "1s,5s,60s"})
    scene = Scene(fleet)
    calls = list(calls_of(scene))
    agents = [Agent(scene, calls[i::AGENTS]) for i in range(AGENTS)]
    for agent in agents:
        agent.join(800)
        assert not agent.is_alive()
    seen = {word: sum(agent.seen.get(word, 0) for agent in agents) for agent in agents for word in agent.seen}
    assert sum(seen.values()) == len(calls)
    assert seen[400] == EFFECTS // 50 and {"succeeded", "failed", "unknown"} <= set(seen), seen
    wait_until(lambda: fleet.psql("select count(*) as n from evidence where kind = 'reconcile'")[0]["n"] > 50, 60)
    for name in SERVICES:
        fleet.kill(name, 15)
    assert fleet.sanitizer_reports() == []
    for name in SERVICES:
        log = fleet.log(name)
        assert "LeakSanitizer has encountered" not in log and "kafka_left_behind" not in log, log[-2000:]
