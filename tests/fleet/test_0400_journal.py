"""The send journal: what a killed dispatcher had claimed and not let go settles as never left; the rest becomes
unknown. A journal that is lost or is not to be believed only means more unknowns."""

import concurrent.futures
import socket
import subprocess
import time

import pytest

from harness import Fleet, unique, wait_until
from scene import NEVER_LEFT, Scene, texts

# Long leases: nothing here may be the sweep's doing.
SETTINGS = {"HOLDFAST_SEND_LEASE_MS": "20000", "HOLDFAST_PROVIDER_TIMEOUT_MS": "20000",
            "HOLDFAST_CONNECT_TIMEOUT_MS": "20000", "HOLDFAST_READBACK_SCHEDULE": "60s",
            "HOLDFAST_DEV_DESTINATIONS": "127.0.0.1", "HOLDFAST_KAFKA_SESSION_TIMEOUT_MS": "3000"}


@pytest.fixture(scope="module")
def own(request):
    failed_before = request.session.testsfailed
    private = Fleet("journal", settings=SETTINGS)
    try:
        yield private.up()
    finally:
        private.end(keep=request.session.testsfailed > failed_before)


@pytest.fixture(scope="module")
def scene(own):
    return Scene(own)


@pytest.fixture
def deaf():
    """An address whose connections are never accepted: the gate is not reached."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    full = []
    for _ in range(4):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(listener.getsockname())
        full.append(filler)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    for one in [*full, listener]:
        one.close()


def held_effect(scene, base):
    """An effect that is claimed and waits for a connection; with its limit."""
    action = scene.refund_action(base=base)
    limit = scene.limit(action)
    told = scene.refund(action, unique("pi"), wait=0)
    scene.effect_when(told["effectId"], lambda e: e["stage"] == "dispatching")
    return told["effectId"], limit


def sent_effect(scene):
    """An effect whose write the provider has, and does not answer; with its limit."""
    intent = unique("pi")
    scene.block_reads(intent)
    scene.sandbox.fault("hang", {"intent": intent, "kind": "write"}, ms=60000)
    action = scene.refund_action()
    limit = scene.limit(action)
    told = scene.refund(action, intent, wait=0)
    wait_until(lambda: scene.sandbox.counts(effect=told["effectId"])["writes"] == 1)
    return told["effectId"], limit


def kill_and_restart(fleet, between=None):
    fleet.kill("dispatcher-1")
    if between:
        between()
    fleet.restart("dispatcher-1")


def test_what_was_not_let_go_never_left(scene, deaf):
    effect, limit = held_effect(scene, deaf)
    assert scene.usage(limit) == (0, 12000, 0)
    kill_and_restart(scene.fleet)
    settled = scene.settled(effect, timeout=15)
    assert (settled["outcome"], settled["grade"]) == ("failed", "failed")
    assert settled["error"] == NEVER_LEFT.format(effect)
    assert "its journal has no entry for it" in texts(settled)[-1]
    assert scene.usage(limit) == (0, 0, 0)


def test_what_was_let_go_becomes_unknown_at_once(scene):
    effect, limit = sent_effect(scene)
    kill_and_restart(scene.fleet)
    unknown = scene.effect_when(effect, lambda e: e["outcome"] == "unknown", timeout=15)
    assert "after the request was let go" in texts(unknown)[0]
    assert scene.usage(limit) == (0, 12000, 12000)
    assert scene.sandbox.counts(effect=effect)["writes"] == 1


def test_holdfast_journal_shows_a_journal(scene):
    effect, _ = sent_effect(scene)
    journal = scene.fleet.dir / "journal" / "dispatcher-1.journal"
    program = f"{scene.fleet.env['FLEET_BIN']}/holdfast"
    living = subprocess.run([program, "journal", journal], capture_output=True, text=True, env={}, check=True)
    assert effect in living.stdout and "its process is running" in living.stdout
    scene.fleet.kill("dispatcher-1")
    dead = subprocess.run([program, "journal", journal], capture_output=True, text=True, env={}, check=True)
    assert effect in dead.stdout and "never left, or is settled" in dead.stdout
    scene.fleet.restart("dispatcher-1")


@pytest.mark.parametrize("spoil", ["lost", "copied", "emptied"])
def test_a_journal_that_is_not_to_be_believed_makes_unknowns(scene, deaf, spoil):
    """No journal of that process: the sweep would make it unknown past answer_by, and nothing fails it."""
    effect, limit = held_effect(scene, deaf)
    journal = scene.fleet.dir / "journal" / "dispatcher-1.journal"

    def between():
        content = journal.read_bytes()
        journal.unlink()
        if spoil == "copied":
            journal.write_bytes(content)
        if spoil == "emptied":
            journal.write_bytes(b"")

    kill_and_restart(scene.fleet, between)
    if spoil == "copied":
        unknown = scene.effect_when(effect, lambda e: e["outcome"] == "unknown", timeout=15)
        assert "can't tell" in texts(unknown)[0]
        assert scene.usage(limit) == (0, 12000, 12000)
        return
    time.sleep(1)  # long enough for a recovery that believed it
    assert scene.effect(effect)["stage"] == "dispatching"
    assert scene.usage(limit) == (0, 12000, 0)


def test_a_second_process_of_the_same_name_does_not_start(scene):
    log = scene.fleet.dir / "log" / "dispatcher-1.log"
    (scene.fleet.dir / "journal" / "dispatcher-1.journal").stat()
    command = open(f"/proc/{scene.fleet.pid('dispatcher-1')}/environ", "rb").read().split(b"\0")
    env = dict(item.decode().split("=", 1) for item in command if b"=" in item)
    env["HOLDFAST_ADMIN_LISTEN"] = "127.0.0.1:0"
    second = subprocess.run([f"{scene.fleet.env['FLEET_BIN']}/holdfast-dispatcher"], env=env,
                            capture_output=True, text=True, timeout=30)
    assert second.returncode == 1
    assert "another process named dispatcher-1 is running" in second.stderr
    assert log.exists()


def test_killed_at_full_load(scene):
    """Nothing that the provider got is failed, and of what it never got at least 95 % is not unknown."""
    action = scene.refund_action()
    intents = [unique("pi") for _ in range(600)]

    def invoke(intent):
        answer = scene.agent.invoke(action, {"payment_intent": intent, "amount": 100}, wait=0)
        assert answer.status in (200, 202), answer
        return answer.data["effectId"]

    for intent in intents[::3]:
        scene.sandbox.fault("delay_ms", {"intent": intent, "kind": "write"}, ms=300)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        futures = [pool.submit(invoke, intent) for intent in intents]
        for _ in range(4):
            time.sleep(0.4)
            kill_and_restart(scene.fleet)
        effects = [future.result() for future in futures]
    wait_until(lambda: not scene.fleet.psql(
        "select 1 from open_effects o join environments e on e.id = o.environment_id "
        "where e.name = %s and o.stage in ('ready', 'dispatching') limit 1", scene.environment), 60)
    lost = unknown_lost = 0
    for effect in effects:
        counts = scene.sandbox.counts(effect=effect)
        told = scene.effect(effect)
        assert counts["writes"] <= 1, effect
        if counts["writes"] == 1:
            assert told["outcome"] in ("succeeded", "unknown"), told
        else:
            lost += 1
            unknown_lost += told["outcome"] == "unknown"
    assert unknown_lost <= 0.05 * lost
