"""The development fleet itself: it starts, is reached, restarts what died, and ends without a trace."""

import os

import pytest

from harness import process_gone, wait_until

SERVERS = ["postgres", "redis", "kafka", "sandbox"]
SERVICES = ["ingest-1", "dispatcher-1", "reconciler-1", "scheduler-1"]


def pids(fleet):
    return {name: fleet.pid(name) for name in SERVERS + SERVICES}


def test_every_service_is_ready(fleet):
    for name in SERVICES:
        assert fleet.admin(name).get("/livez").status == 200
        assert fleet.admin(name).get("/readyz").status == 200
        assert b"# TYPE" in fleet.admin(name).get("/metrics").body


@pytest.mark.parametrize("who", ["operator", "agent", "resolver"])
def test_each_key_is_known(fleet, who):
    identity = fleet.api(who).get("/api/v2/auth/identity")
    assert identity.status == 200, identity
    assert identity.data["agentId"] == who
    may_resolve = {"actions:resolve", "approvals:decide"} <= set(identity.data["scopes"])
    assert may_resolve == (who == "resolver")


def test_no_key_is_refused(fleet):
    refused = fleet.api("nobody").get("/api/v2/auth/identity")
    assert (refused.status, refused.code) == (401, "AUTHENTICATION_FAILED")


def test_up_again_changes_nothing_that_runs(fleet):
    before, env = pids(fleet), dict(fleet.env)
    fleet.up()
    assert (pids(fleet), fleet.env) == (before, env)


@pytest.mark.parametrize("name", SERVICES + ["redis"])
def test_restart_brings_back_what_was_killed(fleet, name):
    before = pids(fleet)
    fleet.kill(name)
    fleet.restart(name)
    after = pids(fleet)
    assert {n for n in after if after[n] != before[n]} == {name}


def test_restart_without_a_name_keeps_the_servers(fleet):
    before = pids(fleet)
    fleet.restart()
    after = pids(fleet)
    assert {n for n in after if after[n] != before[n]} == set(SERVICES)


def test_services_come_back_by_themselves_after_postgres(fleet):
    fleet.kill("postgres")
    fleet.restart("postgres")
    for name in SERVICES:
        wait_until(lambda: fleet.admin(name).get("/readyz").status == 200, 30, what=f"{name} ready")


@pytest.mark.slow
def test_two_fleets_and_their_end(fleet, make_fleet):
    other = make_fleet("other", broker="embedded", ingests=2)
    assert other.names("ingest") == ["ingest-1", "ingest-2"]
    assert other.api().get("/api/v2/auth/identity").status == 200
    theirs = [other.pid(name) for name in SERVERS + SERVICES]
    other.down()
    assert all(process_gone(pid) for pid in theirs)
    assert not any(os.path.exists(other.dir / "run" / f"{name}.pid") for name in SERVERS + SERVICES)
    assert fleet.api().get("/api/v2/auth/identity").status == 200
