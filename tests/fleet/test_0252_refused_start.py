"""A service that can't start says why and ends by itself with status 1, whatever it had begun."""

import pathlib
import socket
import subprocess

import pytest

TIMES = 20 # what goes wrong here does so only when threads are where they should not be


@pytest.fixture(scope="module")
def taken():
    """A port that somebody else listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def settings_of(fleet, name):
    """The settings that a running service of the fleet was started with."""
    pairs = pathlib.Path(f"/proc/{fleet.pid(name)}/environ").read_bytes().split(b"\0")
    return dict(pair.decode().split("=", 1) for pair in pairs if b"=" in pair)


@pytest.mark.parametrize("part, setting, wrong, said", [
    ("ingest", "HOLDFAST_HTTP_LISTEN", None, "in use"),
    ("ingest", "HOLDFAST_REDIS_URL", "redis://", "HOLDFAST_REDIS_URL"),
    ("dispatcher", "HOLDFAST_JOURNAL_DIR", "/proc/nowhere", "/proc/nowhere"),
    ("dispatcher", "HOLDFAST_ADMIN_LISTEN", "nowhere", "HOLDFAST_ADMIN_LISTEN"),
    ("reconciler", "HOLDFAST_MASTER_KEY_FILE", "/proc/nowhere", "/proc/nowhere"),
    ("scheduler", "HOLDFAST_NONSENSE", "1", "HOLDFAST_NONSENSE")])
def test_a_refused_start_ends_cleanly(fleet, taken, part, setting, wrong, said):
    settings = {**settings_of(fleet, f"{part}-1"), "HOLDFAST_ADMIN_LISTEN": "127.0.0.1:0", "HOLDFAST_NAME": f"{part}-refused",
                setting: wrong or taken}
    program = pathlib.Path(fleet.env["FLEET_BIN"]) / f"holdfast-{part}"
    for _ in range(TIMES if wrong is None else 2):
        done = subprocess.run([program], env=settings, capture_output=True, text=True, timeout=30)
        assert done.returncode == 1, (done.returncode, done.stdout[-500:], done.stderr[-500:])
        assert "start_refused" in done.stdout + done.stderr and said in done.stdout + done.stderr
