"""What may be seen of a service from outside: no dump, no secret in its memory or its logs, and room for slow clients."""

import os
import pathlib
import re
import resource
import socket
import time
import urllib.parse

import pytest
import redis

from harness import unique, wait_until
from scene import Scene

SECRET = "sk_test_" + "memory_marker_7f3a9c"


@pytest.fixture(scope="module")
def scene(fleet):
    return Scene(fleet)


def instrumented(pid):
    return "asan" in pathlib.Path(f"/proc/{pid}/maps").read_text() if os.geteuid() == 0 else False


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees who owns /proc/PID of another user's process")
def test_a_service_can_not_be_dumped(fleet):
    for name in ("ingest-1", "dispatcher-1", "reconciler-1", "scheduler-1"):
        pid = fleet.pid(name)
        if instrumented(pid):
            pytest.skip("the leak checker attaches to its own process")
        limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
        assert re.search(r"Max core file size\s+0\s+0\s", limits), (name, limits)
        smaps = os.stat(f"/proc/{pid}/mem")
        assert smaps.st_uid == 0, name


def memory_holds(pid, text):
    """Where readable memory of a process holds the text."""
    found = []
    with open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights = line.split()[:2]
            if rights[0] != "r" or "[v" in line:
                continue
            start, end = (int(at, 16) for at in span.split("-"))
            if end - start > 1 << 28:
                continue
            try:
                memory.seek(start)
                data = memory.read(end - start)
            except (OSError, ValueError, OverflowError):
                continue
            found += [line for _ in range(data.count(text))]
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads the memory of a process that can't be dumped")
def test_a_secret_is_gone_after_the_send(scene, fleet):
    scene.secret("STRIPE_KEY", SECRET)
    name, intent = scene.refund_action(), unique("pi")
    done = scene.refund(name, intent)
    assert done["status"] == "succeeded", done
    scene.effect_when(done["effectId"], lambda e: e["grade"] == "confirmed")
    for part in ("dispatcher-1", "reconciler-1"):
        pid = fleet.pid(part)
        if instrumented(pid):
            pytest.skip("freed memory is kept by the sanitizer")
        wait_until(lambda: not memory_holds(pid, SECRET.encode()), 10, every=0.5, what=f"no secret in {part}")
    assert scene.sandbox.counts(intent=intent)["writes"] == 1


def test_logs_hold_no_secret_input_or_key(make_fleet):
    """A scene with marked values at the level debug; the sandbox and the servers are not ours."""
    fleet = make_fleet("logs", broker="embedded", settings={"HOLDFAST_LOG_LEVEL": "debug"})
    scene = Scene(fleet)
    scene.secret("MARKED", "marked_secret_value_1")
    name = scene.action(urlTemplate=fleet.env["SANDBOX_URL"] + "/generic/logs", governed=True,
                        headers={"X-Key": "{{secret:MARKED}}"}, bodyTemplate={"to": "{{input.to}}"})
    for how in ("ok", "status", "drop"):
        if how != "ok":
            scene.sandbox.fault(how, {"path_prefix": "/generic/logs"}, **({"status": 401} if how == "status" else {}))
        assert scene.agent.invoke(name, {"to": "marked_input_value"}, key="marked_idempotency_key_" + how).status == 200
    assert scene.agent.invoke(name, {"to": 7, "bad": "marked_input_value"}).status in (200, 400)
    keys = [api.key for api in (scene.operator, scene.agent, scene.resolver)]
    hidden = ["marked_secret_value_1", "marked_input_value", *keys, (fleet.dir / "master.key").read_text().strip()]
    for path in (fleet.dir / "log").glob("*-*.log"):
        text = path.read_text(errors="replace")
        assert not [value for value in hidden if value in text], path
    # Nor the secret and the keys in Redis.
    cache = redis.Redis.from_url(fleet.env["HOLDFAST_REDIS_URL"])
    kept = b"".join(cache.dump(key) for key in cache.scan_iter())
    assert not [value for value in hidden[:1] + hidden[2:] if value.encode() in kept]


def test_slow_and_idle_clients_do_not_stop_an_honest_one(make_fleet):
    """As many as the limit of open files lets the test have, at most 10,000: idle, and half a head each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(10000, hard - 500, 25000)
    fleet = make_fleet("slow", broker="embedded", settings={
        "HOLDFAST_HTTP_IDLE_S": "8", "HOLDFAST_HTTP_CONNECTIONS": str(count + 100)})
    url = urllib.parse.urlsplit(fleet.url)
    api = fleet.api("operator")
    pid = fleet.pid("ingest-1")

    def resident_kib():
        return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1])

    before = resident_kib()
    clients = []
    try:
        for number in range(count):
            client = socket.create_connection((url.hostname, url.port), timeout=10)
            if number % 2:
                client.sendall(b"POST /api/v2/actions HTTP/1.1\r\nHost: x\r\nX-Slow: ")
            clients.append(client)
        began = time.monotonic()
        assert api.get("/api/v2/auth/identity").status == 200
        assert time.monotonic() - began < 2
        assert resident_kib() - before < count * 48 + 65536, "at most 48 KiB a connection"
        # They are let go after HOLDFAST_HTTP_IDLE_S without a byte.
        time.sleep(10)
        alive = 0
        for client in clients[::50]:
            client.settimeout(0.5)
            try:
                alive += client.recv(1) != b""
            except TimeoutError:
                alive += 1
            except OSError:
                pass
        assert alive == 0
        assert api.get("/api/v2/auth/identity").status == 200
    finally:
        for client in clients:
            client.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
