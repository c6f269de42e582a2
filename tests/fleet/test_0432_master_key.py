"""The wrong master key refuses the start; the right one is exchanged while the fleet works."""

import os
import pathlib
import subprocess
import threading
import time

from harness import process_gone, unique, wait_until
from scene import Scene

BIN = pathlib.Path(os.environ["HOLDFAST_BIN"])


def write_keys(path, *keys):
    path.write_text("\n".join(keys) + "\n")
    path.chmod(0o600)
    return str(path)


def holdfast(fleet, keys, *arguments):
    """`holdfast` with a key file, as the database's owner."""
    env = {"PATH": os.environ["PATH"], "HOLDFAST_DATABASE_URL": fleet.env["HOLDFAST_DATABASE_URL"],
           "HOLDFAST_MASTER_KEY_FILE": keys}
    return subprocess.run([BIN / "holdfast", *arguments], env=env, capture_output=True, text=True, timeout=60)


def refused_start(fleet, part, keys):
    env = {"PATH": os.environ["PATH"], "HOLDFAST_DATABASE_URL": fleet.env["HOLDFAST_DATABASE_URL"],
           "HOLDFAST_MASTER_KEY_FILE": keys, "HOLDFAST_ADMIN_LISTEN": "127.0.0.1:0",
           "HOLDFAST_HTTP_LISTEN": "127.0.0.1:0", "HOLDFAST_JOURNAL_DIR": str(fleet.dir),
           "HOLDFAST_NAME": "stranger", "HOLDFAST_KAFKA_BROKERS": fleet.env["HOLDFAST_KAFKA_BROKERS"],
           "HOLDFAST_REDIS_URL": fleet.env["HOLDFAST_REDIS_URL"]}
    return subprocess.run([BIN / f"holdfast-{part}", ], env=env, capture_output=True, text=True, timeout=20)


class Traffic:
    """Refunds one after the other, and a secret that is put again and again, until it is stopped."""

    def __init__(self, scene):
        self.scene, self.done, self.failures = scene, 0, []
        self.name = scene.refund_action()
        self.running = True
        self.threads = [threading.Thread(target=self.invoke), threading.Thread(target=self.put)]
        for thread in self.threads:
            thread.start()

    def invoke(self):
        while self.running:
            try:
                told = self.scene.agent.invoke(self.name, {"payment_intent": unique("pi"), "amount": 5}, wait=5)
            except OSError:  # an ingest restarts
                time.sleep(0.05)
                continue
            if told.status == 503:
                continue
            if told.data is None or told.data["status"] in ("failed", "unknown"):
                self.failures.append(told)
            else:
                self.done += 1

    def put(self):
        while self.running:
            try:
                told = self.scene.operator.put("/api/v2/secrets/TURNING", {"value": unique("value")})
            except OSError:
                continue
            if told.status not in (200, 503):
                self.failures.append(told)
            time.sleep(0.02)

    def stop(self):
        self.running = False
        for thread in self.threads:
            thread.join()


def test_another_key_refuses_the_start_and_rotation_needs_no_stop(make_fleet):
    fleet = make_fleet("rotation", broker="embedded")
    scene = Scene(fleet)
    file = fleet.dir / "master.key"
    old, new, third = file.read_text().strip(), "ab" * 32, "cd" * 32
    strange = write_keys(fleet.dir / "strange.key", new)

    # No plain digest of the key is kept, and another key is told from it.
    (row,) = fleet.psql("select encode(check_value, 'hex') as value from master_keys")
    import hashlib
    assert row["value"] not in (hashlib.sha256(bytes.fromhex(old)).hexdigest(), old)
    for part in ("ingest", "dispatcher", "reconciler"):
        refused = refused_start(fleet, part, strange)
        assert refused.returncode == 1, refused
        assert "lacks a master key" in refused.stderr + refused.stdout, refused
    assert holdfast(fleet, strange, "secrets", "rotate-master").returncode == 1

    traffic = Traffic(scene)
    wait_until(lambda: traffic.done >= 3, 30, what="traffic")
    services = ("dispatcher-1", "reconciler-1", "ingest-1")
    # 1. Everybody learns to open with the new key. 2. Then seals with it. 3. What is stored follows.
    write_keys(file, old, new)
    for name in services:
        fleet.restart(name)
    write_keys(file, new, old)
    for name in services:
        fleet.restart(name)
    wait_until(lambda: len(fleet.psql("select 1 as n from master_keys")) == 2, what="both keys")
    rotated = holdfast(fleet, str(file), "secrets", "rotate-master")
    assert rotated.returncode == 0, rotated
    assert int(rotated.stdout.split()[0]) >= 1, rotated
    before = traffic.done
    wait_until(lambda: traffic.done > before + 3, 30, what="traffic after the rotation")
    # 4. The old key may go.
    write_keys(file, new)
    for name in services:
        fleet.restart(name)
    before = traffic.done
    wait_until(lambda: traffic.done > before + 3, 30, what="traffic without the old key")
    traffic.stop()
    assert not traffic.failures, traffic.failures[:3]
    assert len(fleet.psql("select 1 as n from master_keys")) == 1
    assert "lacks a master key" in refused_start(fleet, "ingest", write_keys(fleet.dir / "old.key", old)).stderr

    # Whoever still seals with a key that was rotated out may not store what nobody can open.
    rolled = write_keys(fleet.dir / "third.key", third, new)
    assert holdfast(fleet, rolled, "secrets", "rotate-master").returncode == 0
    late = scene.operator.put("/api/v2/secrets/LATE", {"value": "late-value"})
    assert late.status == 503, late

    # A dispatcher that lacks the key ends, rather than failing every effect.
    pid = fleet.pid("dispatcher-1")
    def asked():
        scene.agent.invoke(traffic.name, {"payment_intent": unique("pi"), "amount": 5}, wait=1)
        return process_gone(pid)
    wait_until(asked, 20, every=0.5, what="the dispatcher to end")
    assert "master_key_missing" in fleet.log("dispatcher-1")


def test_a_recorded_write_is_no_oracle_for_a_secret(fleet):
    """Its request hash can't be made from the body, and the reply is found again all the same."""
    scene = Scene(fleet)
    key = {"Idempotency-Key": unique("put")}
    first = scene.operator.put("/api/v2/secrets/ORACLE", {"value": "guess-me"}, key)
    again = scene.operator.put("/api/v2/secrets/ORACLE", {"value": "guess-me"}, key)
    assert (first.status, again.status) == (200, 200) and again.headers["X-Idempotent-Replay"] == "recorded"
    assert scene.operator.put("/api/v2/secrets/ORACLE", {"value": "guess-ma"}, key).code == "idempotency_key_reuse"
    identity = scene.operator.get("/api/v2/auth/identity").data
    rows = fleet.psql("select encode(request_hash, 'hex') as hash from write_replies")
    plain = plain_hash(identity["keyId"], "PUT", "/api/v2/secrets/ORACLE", '{"value":"guess-me"}')
    assert rows and plain not in {row["hash"] for row in rows}


def plain_hash(key_id, method, path, body):
    import hashlib
    from governed import raw
    import uuid
    parts = [uuid.UUID(raw(key_id)).bytes, method.encode(), path.encode(), body.encode()]
    return hashlib.sha256(b"".join(len(p).to_bytes(8, "big") + p for p in parts)).hexdigest()
