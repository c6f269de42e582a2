"""What the database itself refuses, whoever asks: the services' role and the owner, on the tables and
directly on their partitions. Needs Postgres only."""

import itertools
import time
import uuid

import psycopg
import pytest

from harness import wait_until
from protocol import Background, Database, blocked, finished, new_id

FACTS = ["keys", "operations", "effects", "attempts", "settlements", "confirmations", "conflicts",
         "retries", "evidence", "audit", "action_versions"]
PARTITIONED = ["effects", "attempts", "settlements", "confirmations", "conflicts", "evidence"]
OPEN_STAGES = ["awaiting_approval", "ready", "dispatching", "reconciling"]
STAGES = [*OPEN_STAGES, "settled", "rejected"]
MOVES = {
    ("awaiting_approval", "ready"), ("awaiting_approval", "rejected"),
    ("ready", "dispatching"), ("ready", "rejected"),
    ("dispatching", "reconciling"), ("dispatching", "settled"),
    ("reconciling", "settled"),
}
MOST = 2 ** 53 - 1
MOVE_REFUSED, SETTLEMENT_REFUSED, FACT_REFUSED = "HF001", "HF002", "HF003"


@pytest.fixture
def empty_database(servers):
    made = Database(servers, migrated=False)
    yield made
    made.end()


@pytest.fixture(scope="module")
def service(db):
    return db


@pytest.fixture(scope="module")
def owner(database):
    return database.caller("owner")


@pytest.fixture(scope="module", params=["service", "owner"])
def caller(request, service, owner):
    return service if request.param == "service" else owner


def refused(caller, sqlstate, sql, *parameters):
    """Runs what has to fail, and asks that it failed for that reason."""
    with pytest.raises(psycopg.Error) as caught:
        caller.run(sql, *parameters)
    states = {sqlstate} if isinstance(sqlstate, str) else sqlstate
    assert caught.value.sqlstate in states, caught.value


# ---------------------------------------------------------------- migrations


def versions(database):
    return database.caller("owner").run("select version from schema_migrations order by version")


def test_four_migrations_at_once_make_one_schema(empty_database):
    started = [empty_database.migrate(wait=False) for _ in range(4)]
    done = [finished(process) for process in started]
    assert [d.returncode for d in done] == [0] * 4, done
    ran = [line for d in done for line in d.stdout.splitlines() if line.startswith("ran migration")]
    assert len(ran) == len(set(ran)) == len(versions(empty_database)) > 0


def test_a_second_migration_runs_nothing(database):
    again = database.migrate()
    assert again.returncode == 0
    assert "ran migration" not in again.stdout
    assert database.migrate("--check").returncode == 0


def test_an_empty_database_fails_the_check(empty_database):
    checked = empty_database.migrate("--check")
    assert checked.returncode == 1
    assert "run `holdfast migrate`" in checked.stderr


@pytest.mark.parametrize("version", [9999, -1])
def test_a_migration_that_this_program_does_not_know_is_refused(empty_database, version):
    assert empty_database.migrate().returncode == 0
    empty_database.caller("owner").run(
        "insert into schema_migrations (version, name, digest) values (%s, 'another', 'x')", version)
    refusal = empty_database.migrate()
    assert refusal.returncode == 1
    assert f"migration {version}" in refusal.stderr and "newer or another" in refusal.stderr
    if version > 0:
        assert empty_database.migrate("--check").returncode == 1


def test_a_migration_with_another_content_is_refused(empty_database):
    assert empty_database.migrate().returncode == 0
    empty_database.caller("owner").run("update schema_migrations set digest = 'x' where version = 1")
    refusal = empty_database.migrate()
    assert refusal.returncode == 1
    assert "migration 1" in refusal.stderr and "another content" in refusal.stderr


def test_a_migration_that_fails_leaves_nothing_of_itself(empty_database):
    owner = empty_database.caller("owner")
    owner.run("create table evidence (in_the_way int)")
    failed = empty_database.migrate()
    assert failed.returncode == 1
    assert "evidence" in failed.stderr
    assert not owner.run("select 1 from pg_type where typname = 'effect_stage'")
    owner.run("drop table evidence")
    assert empty_database.migrate().returncode == 0


def functions_of(owner):
    return {r["name"] for r in owner.run("select oid::regprocedure::text as name from pg_proc"
                                         " where pronamespace = 'public'::regnamespace")}


def test_functions_that_differ_are_made_anew_and_what_is_gone_goes(empty_database):
    assert empty_database.migrate().returncode == 0
    owner = empty_database.caller("owner")
    made = functions_of(owner)
    owner.run("create function retired(a int) returns int language sql as 'select 1'")
    owner.run("create function others() returns int language sql as 'select 1'")
    owner.run("update schema_functions set digest = 'of an earlier program',"
              " kinds = kinds || 'function'::text, identities = identities || 'retired(integer)'::text")
    checked = empty_database.migrate("--check")
    assert checked.returncode == 1 and "functions of another program" in checked.stderr
    again = empty_database.migrate()
    assert again.returncode == 0 and "made the functions" in again.stdout, again
    assert functions_of(owner) == made | {"others()"}
    assert empty_database.migrate("--check").returncode == 0


def test_a_database_that_ran_a_retired_migration_goes_on(empty_database):
    """0002 once held functions; what was recorded for it then is another content than today's."""
    assert empty_database.migrate().returncode == 0
    owner = empty_database.caller("owner")
    owner.run("update schema_migrations set digest = 'of what it held' where version in (2, 3, 5)")
    assert empty_database.migrate().returncode == 0


# ---------------------------------------------------------------- the state table


def test_the_database_has_the_moves_and_no_other(owner):
    for a, b in itertools.product(STAGES, STAGES):
        assert owner.one("select stage_may_move(%s, %s)", a, b) == ((a, b) in MOVES), (a, b)


def put_at(owner, environment, stage):
    """An effect whose open row was brought to the stage the way the protocol does, or made there."""
    if stage == "awaiting_approval":
        effect = new_id()
        owner.run("insert into open_effects (id, environment_id, stage, destination, dispatch_before, published_at)"
                  " values (%s, %s, 'awaiting_approval', 'x:1', now() + '1 hour', now())", effect, environment)
        return effect
    effect = owner.accepted(environment)
    if stage != "ready":
        owner.claim(effect)
    if stage == "reconciling":
        owner.settle(effect, "unknown")
    return effect


@pytest.mark.parametrize("was", OPEN_STAGES)
def test_an_open_row_makes_only_moves_of_the_table(caller, owner, was):
    environment = owner.environment()
    for to in OPEN_STAGES:
        if to == was:
            continue
        effect = put_at(owner, environment, was)
        move = ("update open_effects set stage = %s, outcome = 'pending', answer_by = now() where id = %s", to, effect)
        if (was, to) in MOVES:
            caller.run(*move)
        else:
            refused(caller, MOVE_REFUSED, *move)
    refused(caller, {MOVE_REFUSED, "23514"}, "update open_effects set stage = 'settled' where stage = %s", was)


SETTLEMENT = ("insert into {} (effect_id, outcome, reason, verification, evidence, settled_by, settled_at)"
              " values (%s, %s, %s, 'unverified', 'told', 'test', now())")


@pytest.mark.parametrize("was", OPEN_STAGES)
@pytest.mark.parametrize("outcome, reason", [("succeeded", "provider_2xx"), ("failed", "provider_4xx"),
                                             ("not_dispatched", "cancelled")])
@pytest.mark.parametrize("table", ["settlements", "partition"])
def test_a_settlement_fits_the_stage_or_is_refused(owner, was, outcome, reason, table):
    effect = put_at(owner, owner.environment(), was)
    name = "settlements" if table == "settlements" else partition_of("settlements", effect)
    insert = (SETTLEMENT.format(name), effect, outcome, reason)
    to = "rejected" if outcome == "not_dispatched" else "settled"
    if (was, to) in MOVES:
        owner.run(*insert)
        assert not owner.run("select 1 from open_effects where id = %s", effect)
    else:
        refused(owner, SETTLEMENT_REFUSED, *insert)
        assert owner.run("select 1 from open_effects where id = %s", effect)


@pytest.mark.parametrize("outcome, reason", [
    ("succeeded", "provider_4xx"), ("succeeded", "never_left"), ("failed", "provider_2xx"), ("failed", "refused"),
    ("not_dispatched", "never_left"), ("unknown", "manual"), ("pending", "manual")])
def test_a_settlement_has_a_reason_that_fits(caller, owner, outcome, reason):
    effect = put_at(owner, owner.environment(), "dispatching")
    refused(caller, "23514", SETTLEMENT.format("settlements"), effect, outcome, reason)


def test_a_settlement_of_no_effect_is_refused(caller):
    refused(caller, SETTLEMENT_REFUSED, SETTLEMENT.format("settlements"), new_id(), "failed", "manual")


def test_one_settlement_too_many_refuses_the_whole_statement(caller, owner):
    environment = owner.environment()
    ready, claimed = put_at(owner, environment, "ready"), put_at(owner, environment, "dispatching")
    refused(caller, SETTLEMENT_REFUSED, SETTLEMENT.format("settlements") + ", (%s, 'failed', 'manual', "
            "'unverified', 'told', 'test', now())", claimed, "failed", "manual", ready)
    assert owner.state(claimed)["stage"] == "dispatching"


def test_a_second_settlement_is_refused(caller, owner):
    effect = put_at(owner, owner.environment(), "dispatching")
    owner.settle(effect, "succeeded")
    for outcome, reason in [("succeeded", "provider_2xx"), ("failed", "manual"), ("not_dispatched", "cancelled")]:
        refused(caller, {"23505", SETTLEMENT_REFUSED}, SETTLEMENT.format("settlements"), effect, outcome, reason)
    refused(owner, {"23505", SETTLEMENT_REFUSED},
            SETTLEMENT.format(partition_of("settlements", effect)), effect, "failed", "manual")


def test_a_second_settlement_is_refused_even_when_the_effect_is_opened_again(caller, owner):
    effect = put_at(owner, owner.environment(), "dispatching")
    owner.settle(effect, "succeeded")
    refused(caller, {"23505", MOVE_REFUSED, SETTLEMENT_REFUSED},
            "with opened as (insert into open_effects (id, environment_id, stage, destination, dispatch_before,"
            " published_at) select id, environment_id, 'reconciling', 'x:1', now(), now() from effects where id = %s)"
            " " + SETTLEMENT.format("settlements"), effect, effect, "failed", "manual")


# ---------------------------------------------------------------- one dispatch


ATTEMPT = ("insert into {} (effect_id, seq, kind, claim_id, worker, incarnation, claimed_at, send_by, answer_by)"
           " values (%s, %s, %s, %s, 'w', %s, now(), now() + '1 s', now() + '2 s')")


def attempt(table, effect, seq, kind):
    return (ATTEMPT.format(table), effect, seq, kind, uuid.uuid4(), uuid.uuid4())


def partition_of(parent, effect):
    """The partition that holds a kind of facts about an effect: the one of the month in its id."""
    return time.strftime(f"{parent}_%Y_%m", time.gmtime((effect.int >> 80) / 1000))


def test_a_second_dispatch_is_refused(caller, owner):
    effect = put_at(owner, owner.environment(), "dispatching")
    partition = partition_of("attempts", effect)
    refused(caller, "23505", *attempt("attempts", effect, 1, "dispatch"))
    refused(caller, "23514", *attempt("attempts", effect, 2, "dispatch"))
    refused(caller, "23514", *attempt("attempts", effect, 1, "replay"))
    refused(caller, "23514", *attempt("attempts", effect, 0, "dispatch"))
    refused(owner, "23505", *attempt(partition, effect, 1, "dispatch"))
    refused(owner, "23514", *attempt(partition, effect, 2, "dispatch"))
    caller.run(*attempt("attempts", effect, 2, "replay"))
    refused(caller, "23505", *attempt("attempts", effect, 2, "replay"))


@pytest.mark.parametrize("hold", ["-1", "9223372036854775808"])
def test_an_attempt_holds_no_impossible_amount(caller, owner, hold):
    effect = put_at(owner, owner.environment(), "ready")
    sql = ATTEMPT.format("attempts").replace("answer_by)", "answer_by, hold_amount)").replace(
        "'2 s')", f"'2 s', {hold})")
    refused(caller, {"23514", "22003"}, sql, effect, 1, "dispatch", uuid.uuid4(), uuid.uuid4())


# ---------------------------------------------------------------- facts stay


def all_fact_tables(owner):
    partitions = owner.run("select inhrelid::regclass::text as name from pg_inherits"
                           " where inhparent::regclass::text = any (%s)", PARTITIONED)
    return FACTS + [row["name"] for row in partitions]


@pytest.fixture(scope="module")
def facts(owner):
    """At least one row in every kind of fact."""
    environment = owner.environment()
    failed = owner.claimed(environment, operation="op:1")
    owner.settle(failed, "failed")
    owner.accepted(environment, operation="op:1", retry_of=failed, input='{"amount":501}')
    owner.unknown(environment)
    confirmed = owner.claimed(environment)
    owner.settle(confirmed, "succeeded")
    owner.run("select * from confirm_batch(array[%s]::uuid[], array['match'], array['re_1'], array['r'])", confirmed)
    owner.run("select conflict_mark(%s, 'two records', 'r')", confirmed)
    owner.run("insert into audit (environment_id, act) values (%s, 'test')", environment)
    action = new_id()
    owner.run("insert into actions (id, environment_id, name, version) values (%s, %s, 'a', 1)", action, environment)
    owner.run("insert into action_versions (action_id, version, definition) values (%s, 1, '{}')", action)
    for table in FACTS:
        assert owner.one(f"select count(*) from {table}") > 0, table


def some_column(owner, table):
    return owner.one("select attname from pg_attribute where attrelid = %s::regclass and attnum = 2", table)


def test_facts_are_never_changed_nor_removed(facts, owner, service):
    for table in all_fact_tables(owner):
        column = some_column(owner, table)
        for sql in [f"update {table} set {column} = {column}", f"delete from {table}", f"truncate {table}",
                    f"update {table} set {column} = {column} where false", f"delete from {table} where false"]:
            refused(owner, FACT_REFUSED, sql)
            refused(service, {FACT_REFUSED, "42501"}, sql)
        refused(owner, FACT_REFUSED, f"truncate {table} cascade")
        refused(owner, FACT_REFUSED, f"with gone as (delete from {table} returning 1) select count(*) from gone")


def test_an_upsert_changes_no_fact(facts, caller):
    refused(caller, {FACT_REFUSED, "42501"},
            "insert into keys select * from keys on conflict (environment_id, key_hash) do update set effect_id = %s",
            new_id())


def test_partitions_to_come_are_guarded_too(owner, service):
    before = set(all_fact_tables(owner))
    service.run("select partitions_ensure(5)")
    made = sorted(set(all_fact_tables(owner)) - before)
    assert len(made) == 2 * len(PARTITIONED)
    for table in made:
        refused(owner, FACT_REFUSED, f"delete from {table}")
        refused(owner, FACT_REFUSED, f"truncate {table}")
        refused(service, "42501", f"select 1 from {table}")
    closes = owner.run("select tgrelid::regclass::text as t from pg_trigger where tgname = 'settlement_closes'")
    assert {"settlements", *(t for t in made if t.startswith("settlements"))} <= {row["t"] for row in closes}


def test_two_sessions_may_make_partitions_at_once(database, owner):
    one, two = database.caller(), database.caller()
    one.run("begin")
    one.run("select partitions_ensure(6)")
    waiting = Background(two.run, "select partitions_ensure(6)")
    wait_until(lambda: blocked(owner, two))
    one.run("commit")
    waiting.value()


# ---------------------------------------------------------------- open rows, limits, rights


def test_an_open_row_is_not_removed_but_by_its_settlement(caller, owner):
    effect = put_at(owner, owner.environment(), "reconciling")
    refused(caller, MOVE_REFUSED, "delete from open_effects where id = %s", effect)
    refused(caller, {MOVE_REFUSED, "42501"}, "truncate open_effects")
    refused(caller, MOVE_REFUSED, "with gone as (delete from open_effects returning 1) select count(*) from gone")
    refused(caller, MOVE_REFUSED, "update open_effects set id = %s where id = %s", new_id(), effect)
    refused(caller, MOVE_REFUSED, "update open_effects set environment_id = environment_id + 1 where id = %s", effect)
    assert owner.state(effect)["stage"] == "reconciling"


@pytest.mark.parametrize("change", [
    "amount = -1", f"amount = {MOST + 1}", "reserved = -1", "unknown_exposure = -1", "unknown_exposure = reserved + 1",
    "reserved = 9223372036854775807, amount = reserved + 9223372036854775807 + 1",
    "reserved = reserved + 9223372036854775807 + 9223372036854775807"])
def test_no_negative_nor_overflowing_limit(caller, owner, change):
    limit = owner.limit(owner.environment(), 1000)
    refused(caller, {"23514", "22003"}, f"update limits set {change} where id = %s", limit)


@pytest.mark.parametrize("amount", [-1, MOST + 1, 2 ** 63])
def test_no_limit_is_made_with_an_impossible_amount(caller, owner, amount):
    environment = owner.environment()
    with pytest.raises(psycopg.Error) as caught:
        caller.limit(environment, amount)
    assert caught.value.sqlstate in {"23514", "22003"}


def test_no_negative_nor_overflowing_consumption(caller, owner):
    limit = owner.limit(owner.environment(), 1000)
    insert = "insert into limit_usage values (%s, '2026-01-01', {})"
    refused(caller, "23514", insert.format(-1), limit)
    caller.run(insert.format(2 ** 63 - 1), limit)
    refused(caller, "22003", "update limit_usage set consumed = consumed + 1 where limit_id = %s", limit)
    refused(caller, "23514", "update limit_usage set consumed = -1 where limit_id = %s", limit)


def test_the_services_have_no_right_on_partitions(owner, service):
    partitions = sorted(set(all_fact_tables(owner)) - set(FACTS))
    assert len(partitions) >= 5 * len(PARTITIONED)
    for table in partitions:
        for right in ["select", "insert", "update", "delete", "truncate", "references", "trigger"]:
            assert not owner.one("select has_table_privilege('holdfast_service', %s, %s)", table, right), (table, right)
        refused(service, "42501", f"select 1 from {table}")
    refused(service, "42501", f"alter table {partitions[0]} disable trigger all")
    refused(service, "42501", "alter table keys disable trigger all")
    refused(service, "42501", "create table here (x int)")
