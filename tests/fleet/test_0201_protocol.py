"""Accept, claim, settle, sweep and halt in the database: what each decides, and what it moves. Needs
Postgres only; every caller works under the services' role."""

import threading
import uuid

import pytest

from harness import wait_until
from protocol import Background, blocked, digest, new_id

MOST = 2 ** 53 - 1


def verdicts(rows):
    return [row["verdict"] for row in rows]


# ---------------------------------------------------------------- accept: keys


def test_what_is_accepted_is_whole(db, env):
    effect = db.accepted(env, key="k-1", operation="refund:1", input='{"amount":7}', amount=7)
    assert db.state(effect) == {"stage": "ready", "outcome": "pending", "grade": "pending", "status": "running",
                                "conflict": False}
    stored = db.one("select * from effects where id = %s", effect)
    assert (stored["idempotency_key"], stored["operation_key"], stored["input"]) == ("k-1", "refund:1", '{"amount":7}')
    assert db.one("select effect_id from keys where environment_id = %s", env) == effect
    assert db.one("select generation from operations where effect_id = %s", effect) == 0


def test_a_key_belongs_to_its_call(db, env):
    effect = db.accepted(env, key="k-1", input='{"amount":1}')
    same, other = (db.accept({"environment": env, "key": "k-1", "input": text})[0]
                   for text in ('{"amount":1}', '{"amount":2}'))
    assert (same["verdict"], same["effect_id"]) == ("key_same", effect)
    assert (other["verdict"], other["effect_id"]) == ("key_reuse", effect)
    assert db.one("select count(*) from effects where environment_id = %s", env) == 1


def test_a_key_belongs_to_its_environment(db, env):
    first = db.accepted(env, key="k-1")
    other = db.accepted(db.environment(), key="k-1", input='{"amount":2}')
    assert first != other


def test_a_key_still_answers_after_its_call_was_settled(db, env):
    effect = db.claimed(env, key="k-1")
    db.settle(effect, "succeeded")
    (again,) = db.accept({"environment": env, "key": "k-1"})
    assert (again["verdict"], again["effect_id"]) == ("key_same", effect)


def test_a_batch_answers_each_call_for_itself(db, env):
    known = db.accepted(env, key="k-1")
    rows = db.accept({"environment": env, "key": "k-1"}, {"environment": env, "key": "k-2"},
                     {"environment": env, "key": "k-1b", "retry_of": known},
                     {"environment": env, "key": "k-3"})
    assert verdicts(rows) == ["key_same", "accepted", "retry_refused", "accepted"]
    assert db.one("select count(*) from open_effects where environment_id = %s", env) == 3
    assert db.one("select count(*) from keys where environment_id = %s", env) == 3


def test_two_batches_at_once_make_one_call_of_a_key(database, db, env):
    first, second = database.caller(), database.caller()
    first.run("begin")
    effect = first.accepted(env, key="k-1")
    waiting = Background(second.accept, {"environment": env, "key": "k-1"}, {"environment": env, "key": "k-2"})
    wait_until(lambda: blocked(db, second))
    first.run("commit")
    rows = waiting.value()
    assert verdicts(rows) == ["key_same", "accepted"]
    assert rows[0]["effect_id"] == effect


def test_a_key_is_free_again_when_its_batch_was_rolled_back(database, db, env):
    first, second = database.caller(), database.caller()
    first.run("begin")
    first.accepted(env, key="k-1")
    waiting = Background(second.accept, {"environment": env, "key": "k-1", "input": '{"amount":2}'})
    wait_until(lambda: blocked(db, second))
    first.run("rollback")
    assert verdicts(waiting.value()) == ["accepted"]


@pytest.mark.parametrize("named", [False, True])
def test_batches_with_the_same_keys_and_operations_do_not_deadlock(database, env, named):
    """Each thread's batches name the same keys (and operations) in an order of its own."""
    count, rounds, sessions = 400, 5, 6
    together = threading.Barrier(sessions)

    def accept_all(caller, turn):
        made = 0
        for n in range(rounds):
            calls = [{"environment": env, "key": f"k-{n}-{(i + turn) % count}",
                      "operation": f"op-{n}-{(i * 7 + turn) % count}" if named else None} for i in range(count)]
            together.wait(20)
            made += verdicts(caller.accept(*calls)).count("accepted")
        return made

    threads = [Background(accept_all, database.caller(), turn) for turn in range(sessions)]
    assert sum(thread.value(60) for thread in threads) == rounds * count


# ---------------------------------------------------------------- accept: operations


def settled_as(db, effect, outcome):
    """Brings an accepted effect to an end (or to unknown, or leaves it)."""
    if outcome in ("expired", "cancelled", "denied"):
        assert db.reject(effect, outcome) == "settled"
    elif outcome == "refused":
        db.run("update api_keys set revoked_at = now() where id = (select requested_by from effects where id = %s)",
               effect)
        assert db.claim(effect)[effect]["verdict"] == "refused"
    elif outcome != "ready":
        db.claim(effect)
        if outcome != "dispatching":
            db.settle(effect, outcome)


def revocable_key(db, env):
    key = new_id()
    db.run("insert into api_keys (id, environment_id, name, agent_id, scopes, secret_hash)"
           " values (%s, %s, 'k', 'a', '{}', %s)", key, env, digest(str(key)))
    return key


@pytest.mark.parametrize("holder, known", [
    ("ready", "pending"), ("dispatching", "pending"), ("pending", "pending"), ("unknown", "unknown"),
    ("succeeded", "succeeded"), ("failed", "failed"), ("denied", "not_dispatched")])
def test_an_operation_is_held(db, env, holder, known):
    effect = db.accepted(env, operation="op", input='{"a":1}')
    settled_as(db, effect, holder)
    (same,) = db.accept({"environment": env, "key": "k-2", "operation": "op", "input": '{"a":1}'})
    assert (same["verdict"], same["effect_id"]) == ("operation_same", effect)
    # The key is bound to it now.
    (again,) = db.accept({"environment": env, "key": "k-2", "operation": "op", "input": '{"a":1}'})
    assert (again["verdict"], again["effect_id"]) == ("key_same", effect)
    (other,) = db.accept({"environment": env, "key": "k-3", "operation": "op", "input": '{"a":2}'})
    assert (other["verdict"], other["effect_id"], other["detail"]) == ("operation_reuse", effect, known)
    # It bound no key: that one may still be used for something else.
    assert db.accepted(env, key="k-3", input='{"a":3}')


@pytest.mark.parametrize("ended", ["refused", "expired", "cancelled"])
@pytest.mark.parametrize("text", ['{"a":1}', '{"a":2}'])
def test_an_operation_that_was_never_sent_is_free_again(db, env, ended, text):
    key = revocable_key(db, env)
    first = db.accepted(env, operation="op", input='{"a":1}', requested_by=key)
    settled_as(db, first, ended)
    second = db.accepted(env, operation="op", input=text)
    assert db.run("select generation, effect_id from operations where environment_id = %s order by 1", env) == [
        {"generation": 0, "effect_id": first}, {"generation": 1, "effect_id": second}]
    (third,) = db.accept({"environment": env, "operation": "op", "input": text})
    assert (third["verdict"], third["effect_id"]) == ("operation_same", second)


def test_two_at_once_make_one_effect_of_an_operation(database, db, env):
    first, second = database.caller(), database.caller()
    first.run("begin")
    effect = first.accepted(env, operation="op")
    waiting = Background(second.accept, {"environment": env, "operation": "op"},
                         {"environment": env, "operation": "op-2"})
    wait_until(lambda: blocked(db, second))
    first.run("commit")
    rows = waiting.value()
    assert verdicts(rows) == ["operation_same", "accepted"]
    assert rows[0]["effect_id"] == effect


# ---------------------------------------------------------------- accept: retries


def retry(db, env, original, **more):
    (row,) = db.accept({"environment": env, "retry_of": original, **more})
    return row


@pytest.mark.parametrize("outcome, reason", [
    ("ready", "not settled"), ("dispatching", "not settled"), ("pending", "not settled"), ("unknown", "unknown"),
    ("succeeded", "outcome is succeeded"), ("cancelled", "outcome is not_dispatched")])
def test_only_what_failed_is_retried(db, env, outcome, reason):
    effect = db.accepted(env)
    settled_as(db, effect, outcome)
    row = retry(db, env, effect, key="k-r")
    assert row["verdict"] == "retry_refused" and reason in row["detail"]
    assert db.accepted(env, key="k-r"), "a refusal stores nothing"


def test_a_failed_original_is_retried_once(db, env):
    original = db.claimed(env)
    db.settle(original, "failed")
    second = retry(db, env, original)
    assert second["verdict"] == "accepted"
    third = retry(db, env, original)
    assert third["verdict"] == "retry_refused"
    assert db.one("select prefixed('inv', %s)", second["effect_id"]) in third["detail"]
    assert db.one("select retried_by from effect_states where id = %s", original) == second["effect_id"]


def test_what_was_refused_before_leaving_counts_as_no_failure(db, env):
    key = revocable_key(db, env)
    effect = db.accepted(env, requested_by=key)
    settled_as(db, effect, "refused")
    assert retry(db, env, effect)["verdict"] == "retry_refused"


def test_a_retry_is_of_the_same_action_and_environment(db, env):
    original = db.claimed(env)
    db.settle(original, "failed")
    assert "another action" in retry(db, env, original, action=uuid.UUID(int=9))["detail"]
    assert "no invocation" in retry(db, db.environment(), original)["detail"]
    assert "no invocation" in retry(db, env, new_id())["detail"]


def test_what_is_in_conflict_is_not_retried(db, env):
    original = db.claimed(env)
    db.settle(original, "failed")
    assert db.settle(original, "succeeded", kind="reconcile") == "conflict"
    assert "conflict" in retry(db, env, original)["detail"]


def test_a_retry_whose_original_came_into_conflict_is_refused_in_its_claim(db, env):
    original = db.claimed(env)
    db.settle(original, "failed")
    effect = retry(db, env, original)["effect_id"]
    db.settle(original, "succeeded", kind="reconcile")
    row = db.claim(effect)[effect]
    assert (row["verdict"], row["detail"]) == (
        "refused", f"the original {db.one('select prefixed(%s, %s)', 'inv', original)} is in conflict")


@pytest.mark.parametrize("named", [None, "op"])
def test_a_retry_takes_the_next_generation_of_the_operation(db, env, named):
    original = db.claimed(env, operation="op", input='{"a":1}')
    db.settle(original, "failed")
    row = retry(db, env, original, operation=named, input='{"a":2}')
    assert row["verdict"] == "accepted"
    held = db.one("select effect_id from operations where environment_id = %s and generation = 1", env)
    assert held == row["effect_id"]
    assert db.one("select operation_key from effects where id = %s", row["effect_id"]) == "op"
    (later,) = db.accept({"environment": env, "operation": "op", "input": '{"a":2}'})
    assert (later["verdict"], later["effect_id"]) == ("operation_same", row["effect_id"])


def test_a_retry_does_not_take_an_operation_that_another_effect_holds(db, env):
    original = db.claimed(env, operation="op-1")
    db.settle(original, "failed")
    holder = db.accepted(env, operation="op-2")
    row = retry(db, env, original, operation="op-2")
    assert (row["verdict"], row["effect_id"]) == ("operation_reuse", holder)
    assert retry(db, env, original)["verdict"] == "accepted", "the refusal used up nothing"


def test_two_retries_at_once_make_one(database, db, env):
    original = db.claimed(env)
    db.settle(original, "failed")
    first, second = database.caller(), database.caller()
    first.run("begin")
    assert retry(first, env, original)["verdict"] == "accepted"
    waiting = Background(retry, second, env, original)
    wait_until(lambda: blocked(db, second))
    first.run("commit")
    assert waiting.value()["verdict"] == "retry_refused"


# ---------------------------------------------------------------- claim


def test_a_claim_is_made_once(db, env):
    effect = db.accepted(env)
    claim_id = uuid.uuid4()
    row = db.claim(effect, claim_id=claim_id, lease_ms=10000, provider_ms=20000)[effect]
    assert (row["verdict"], row["request"], row["environment_id"]) == ("claimed", b"{}", env)
    attempt = db.one("select *, send_by - claimed_at as lease, answer_by - send_by as patience from attempts"
                     " where effect_id = %s", effect)
    assert (attempt["claim_id"], attempt["seq"], attempt["kind"]) == (claim_id, 1, "dispatch")
    assert (attempt["lease"].total_seconds(), attempt["patience"].total_seconds()) == (10, 20)
    assert db.claim(effect) == {}


def test_a_claim_leaves_what_another_has_in_hand(database, db, env):
    mine, other = db.accepted(env), db.accepted(env)
    second = database.caller()
    db.run("begin")
    assert set(db.claim(mine)) == {mine}
    assert set(second.claim(mine, other)) == {other}
    db.run("commit")
    assert second.claim(mine) == {}


def test_the_last_of_a_limit_goes_to_the_first_ones(db, env):
    limit = db.limit(env, 1000)
    effects = sorted(db.accepted(env, amount=500) for _ in range(3))
    rows = db.claim(*effects)
    assert [rows[e]["verdict"] for e in effects] == ["claimed", "claimed", "refused"]
    state = db.limit_state(limit)
    assert rows[effects[2]]["detail"] == f"limit {state['id']} ({state['name']}) has 0 of 1000 left, 500 asked for"
    assert (state["consumed"], state["reserved"], state["available"]) == (0, 1000, 0)
    assert db.state(effects[2]) == {"stage": "rejected", "outcome": "not_dispatched", "grade": "refused",
                                    "status": "failed", "conflict": False}


def test_a_smaller_one_may_still_fit(db, env):
    db.limit(env, 1000)
    first, second, third = (db.accepted(env, id=i, amount=a)
                            for i, a in zip(sorted(new_id() for _ in range(3)), (600, 500, 400)))
    rows = db.claim(first, second, third)
    assert [rows[e]["verdict"] for e in (first, second, third)] == ["claimed", "refused", "claimed"]


def test_two_claims_at_once_do_not_overrun_a_limit(database, db, env):
    limit = db.limit(env, 1000)
    one, two = db.accepted(env, amount=600), db.accepted(env, amount=600)
    first, second = database.caller(), database.caller()
    first.run("begin")
    assert first.claim(one)[one]["verdict"] == "claimed"
    waiting = Background(second.claim, two)
    wait_until(lambda: blocked(db, second))
    first.run("commit")
    assert waiting.value()[two]["verdict"] == "refused"
    assert db.figures(limit) == (0, 600, 0)


def test_every_limit_that_applies_is_asked(db, env):
    wide = db.limit(env, 1000)
    narrow = db.limit(env, 300, action_name="refund", resource_prefix="pi_")
    others = [db.limit(env, 0, **more) for more in (
        {"action_name": "charge"}, {"unit": "eur"}, {"dimension": "emails"}, {"resource_prefix": "ch_"})]
    others.append(db.limit(db.environment(), 0))
    effect = db.claimed(env, amount=300, resource="pi_1")
    assert db.figures(wide) == db.figures(narrow) == (0, 300, 0)
    assert all(db.figures(limit) == (0, 0, 0) for limit in others)
    second = db.accepted(env, amount=1, resource="pi_2")
    assert db.limit_state(narrow)["id"] in db.claim(second)[second]["detail"]
    assert db.figures(wide) == (0, 300, 0), "a refusal by one limit holds nothing of another"
    assert [r["limitId"] for r in db.effect(effect)["reservations"]] == sorted(
        db.limit_state(limit)["id"] for limit in (wide, narrow))


def test_no_quantity_is_refused_where_a_limit_applies(db, env):
    free = db.accepted(env, amount=None)
    assert db.claim(free)[free]["verdict"] == "claimed"
    limit = db.limit(env, 1000)
    effect = db.accepted(env, amount=None)
    row = db.claim(effect)[effect]
    assert row["verdict"] == "refused" and "no quantity" in row["detail"]
    assert db.limit_state(limit)["id"] in row["detail"]


def test_an_undeclared_impact_asks_no_limit(db, env):
    db.limit(env, 0)
    effect = db.accepted(env, dimension=None, unit=None, amount=None, bound=None)
    assert db.claim(effect)[effect]["verdict"] == "claimed"


def test_the_largest_amounts_add_up_without_overflow(db, env):
    limit = db.limit(env, MOST)
    most, one = db.accepted(env, amount=MOST), db.accepted(env, amount=MOST)
    rows = db.claim(most, one)
    assert sorted(row["verdict"] for row in rows.values()) == ["claimed", "refused"]
    assert db.limit_state(limit)["available"] == 0
    claimed = next(e for e, row in rows.items() if row["verdict"] == "claimed")
    db.settle(claimed, "succeeded")
    assert db.figures(limit) == (MOST, 0, 0)


def test_an_archived_limit_holds_nothing_more_but_settles_what_it_held(db, env):
    limit = db.limit(env, 1000)
    held = db.claimed(env, amount=800)
    db.run("update limits set archived_at = now() where id = %s", limit)
    later = db.claimed(env, amount=5000)
    assert db.figures(limit) == (0, 800, 0)
    db.settle(later, "succeeded")
    db.settle(held, "succeeded")
    assert db.figures(limit) == (800, 0, 0)


def test_a_limit_lowered_below_what_it_holds_refuses_and_settles(db, env):
    limit = db.limit(env, 1000)
    held = db.unknown(env, amount=800)
    db.run("update limits set amount = 100 where id = %s", limit)
    effect = db.accepted(env, amount=1)
    assert "has 0 of 100 left" in db.claim(effect)[effect]["detail"]
    assert db.limit_state(limit)["available"] == 0
    assert db.settle(held, "succeeded", kind="reconcile") == "settled"
    assert db.figures(limit) == (800, 0, 0)


def test_a_claim_past_its_time_expires(db, env):
    limit = db.limit(env, 1000)
    effect = db.accepted(env, dispatch_before_s=0)
    row = db.claim(effect)[effect]
    assert row["verdict"] == "expired"
    assert (db.state(effect)["status"], db.figures(limit)) == ("expired", (0, 0, 0))


def test_a_revoked_key_and_a_missing_secret_are_refused(db, env):
    key = revocable_key(db, env)
    asked, lacking = db.accepted(env, requested_by=key), db.accepted(env, secrets="GONE")
    db.run("update api_keys set revoked_at = now() where id = %s", key)
    rows = db.claim(asked, lacking)
    assert rows[asked]["detail"] == "the key that asked was revoked"
    assert rows[lacking]["detail"] == "secret GONE does not exist"
    assert {row["verdict"] for row in rows.values()} == {"refused"}


def test_an_attempt_records_the_version_of_each_secret(db, env):
    for name, version in (("ONE", 3), ("TWO", 8)):
        db.run("insert into secrets (environment_id, name, version, sealed) values (%s, %s, %s, 'x')", env, name, version)
    effect = db.accepted(env, secrets="TWO,ONE")
    row = db.claim(effect)[effect]
    assert (row["secrets"], row["secret_versions"]) == (["TWO", "ONE"], [8, 3])


def test_an_effect_that_was_opened_again_is_not_claimed_again(db, env):
    """Nobody may open one again; if somebody did, the attempt that is there stops the second."""
    limit = db.limit(env, 1000)
    effect = db.claimed(env, amount=100)
    db.settle(effect, "failed")
    db.run("insert into open_effects (id, environment_id, stage, destination, dispatch_before, published_at)"
           " values (%s, %s, 'ready', 'x:1', now() + '1 hour', now())", effect, env)
    assert db.claim(effect)[effect]["verdict"] == "damaged"
    assert db.figures(limit) == (0, 0, 0)


def test_recovery_finds_the_attempts_of_that_try_alone(database, db, env):
    mine, theirs, nobodys = (db.accepted(env) for _ in range(3))
    claim_id = uuid.uuid4()
    db.claim(mine, claim_id=claim_id)
    db.claim(theirs)
    rows = db.run("select * from claim_recover(%s::uuid[], %s)", sorted([mine, theirs, nobodys]), claim_id)
    assert [(row["effect_id"], row["verdict"]) for row in rows] == [(mine, "claimed")]
    assert db.run("select * from claim_recover(%s::uuid[], %s)", [mine], uuid.uuid4()) == []


def test_recovery_waits_for_the_doubtful_transaction(database, db, env):
    effect, claim_id = db.accepted(env), uuid.uuid4()
    doubtful, asking = database.caller(), database.caller()
    doubtful.run("begin")
    doubtful.claim(effect, claim_id=claim_id)
    waiting = Background(asking.run, "select * from claim_recover(%s::uuid[], %s)", [effect], claim_id)
    wait_until(lambda: blocked(db, asking))
    doubtful.run("commit")
    assert [row["effect_id"] for row in waiting.value()] == [effect]


# ---------------------------------------------------------------- halt


def test_a_halt_waits_for_a_running_claim(database, db, env):
    effect, later = db.accepted(env), db.accepted(env)
    claiming, halting = database.caller(), database.caller()
    claiming.run("begin")
    assert claiming.claim(effect)[effect]["verdict"] == "claimed"
    waiting = Background(halting.one, "select * from halt(%s, 'stop', null)", env)
    wait_until(lambda: blocked(db, halting))
    claiming.run("commit")
    answer = waiting.value()
    send_by = db.one("select send_by from open_effects where id = %s", effect)
    assert (answer["in_flight"], answer["quiet_at"]) == (1, send_by)
    assert db.claim(later)[later]["verdict"] == "held"
    assert db.state(later)["stage"] == "ready"


def test_a_claim_waits_for_a_halt(database, db, env):
    limit = db.limit(env, 1000)
    effect = db.accepted(env)
    halting, claiming = database.caller(), database.caller()
    halting.run("begin")
    halting.run("select * from halt(%s, 'stop', null)", env)
    waiting = Background(claiming.claim, effect)
    wait_until(lambda: blocked(db, claiming))
    halting.run("commit")
    assert waiting.value()[effect]["verdict"] == "held"
    assert db.figures(limit) == (0, 0, 0)


def test_a_halt_stops_one_environment_and_stores_nothing_new_in_it(db, env):
    other = db.environment()
    known = db.accepted(env, key="k-1")
    db.run("select * from halt(%s, 'stop', null)", env)
    rows = db.accept({"environment": env, "key": "k-1"}, {"environment": env, "key": "k-2"}, {"environment": other})
    assert verdicts(rows) == ["key_same", "halted", "accepted"]
    assert db.one("select count(*) from keys where environment_id = %s", env) == 1
    mixed = db.claim(known, rows[2]["effect_id"])
    assert (mixed[known]["verdict"], mixed[rows[2]["effect_id"]]["verdict"]) == ("held", "claimed")
    db.run("select resume(%s)", env)
    assert db.claim(known)[known]["verdict"] == "claimed"


def test_what_was_claimed_before_a_halt_settles_during_it(db, env):
    effect = db.claimed(env)
    db.run("select * from halt(%s, 'stop', null)", env)
    assert db.settle(effect, "succeeded") == "settled"


def test_a_halted_environment_republishes_nothing(db, env):
    effect = db.accepted(env)
    db.run("select * from halt(%s, 'stop', null)", env)

    def taken():
        return {row["effect_id"] for row in db.run("select * from republish_take(10000, 0, 0, 0)")}

    assert effect not in taken()
    db.run("select resume(%s)", env)
    assert effect in taken()
