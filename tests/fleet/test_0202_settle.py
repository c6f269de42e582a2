"""Settle, sweep and read-backs in the database: what each result is, and where the held amounts go. Needs
Postgres only; every caller works under the services' role."""

import itertools

import pytest

from harness import wait_until
from protocol import Background, blocked, new_id

MOST = 2 ** 53 - 1


def kinds(db, effect):
    return [row["kind"] for row in db.evidence(effect)]


# ---------------------------------------------------------------- the first word


@pytest.mark.parametrize("outcome, figures, grade, outcome_after", [
    ("succeeded", (500, 0, 0), "acknowledged", "succeeded"),
    ("failed", (0, 0, 0), "failed", "failed"),
    ("unknown", (0, 500, 500), "unknown", "unknown"),
    ("pending", (0, 500, 0), "pending", "pending"),
])
def test_where_a_hold_goes(db, env, outcome, figures, grade, outcome_after):
    limit = db.limit(env, 1000)
    effect = db.claimed(env, amount=500)
    assert db.figures(limit) == (0, 500, 0)
    result = db.settle(effect, outcome)
    assert result == ("settled" if outcome in ("succeeded", "failed") else outcome)
    assert db.figures(limit) == figures
    state = db.state(effect)
    assert (state["outcome"], state["grade"]) == (outcome_after, grade)
    assert state["stage"] == ("settled" if result == "settled" else "reconciling")
    held = {"succeeded": "consumed", "failed": "released"}.get(outcome, "held")
    assert [r["state"] for r in db.effect(effect)["reservations"]] == [held]


@pytest.mark.parametrize("first", ["unknown", "pending"])
@pytest.mark.parametrize("then, figures", [("succeeded", (500, 0, 0)), ("failed", (0, 0, 0))])
@pytest.mark.parametrize("kind", ["reconcile", "manual", "dispatch"])
def test_what_is_open_is_settled_later(db, env, first, then, figures, kind):
    limit = db.limit(env, 1000)
    effect = db.claimed(env, amount=500)
    db.settle(effect, first)
    assert db.settle(effect, then, kind=kind) == "settled"
    assert db.figures(limit) == figures
    grade = {"failed": "failed", "succeeded": "confirmed" if kind == "reconcile" else "acknowledged"}[then]
    assert db.state(effect)["grade"] == grade


def test_unknown_that_the_provider_calls_pending_is_no_exposure(db, env):
    limit = db.limit(env, 1000)
    effect = db.unknown(env, amount=500)
    assert db.figures(limit) == (0, 500, 500)
    assert db.settle(effect, "pending", kind="reconcile") == "pending"
    assert db.figures(limit) == (0, 500, 0)
    # It stays pending whatever is not found afterwards, and moves nothing twice.
    assert db.settle(effect, "pending", kind="reconcile") == "evidence"
    assert db.settle(effect, "unknown", kind="reconcile") == "evidence"
    assert db.figures(limit) == (0, 500, 0)
    assert db.state(effect)["outcome"] == "pending"
    assert db.settle(effect, "failed", kind="reconcile") == "settled"
    assert db.figures(limit) == (0, 0, 0)


def test_what_a_person_says_it_came_to_is_consumed(db, env):
    limit = db.limit(env, 1000)
    effect = db.unknown(env, amount=500)
    assert db.settle(effect, "succeeded", kind="manual", consumed=120) == "settled"
    assert db.figures(limit) == (120, 0, 0)
    assert [r["amount"] for r in db.effect(effect)["reservations"]] == [120]


def test_a_batch_moves_a_limit_by_the_sum(db, env):
    limit = db.limit(env, 1000)
    effects = [db.claimed(env, amount=amount) for amount in (1, 20, 300, 400)]
    results = db.settle_all(*({"id": e, "outcome": o, "kind": "dispatch"} for e, o in zip(
        effects, ("succeeded", "failed", "unknown", "succeeded"))))
    assert [results[e] for e in effects] == ["settled", "settled", "unknown", "settled"]
    assert db.figures(limit) == (401, 300, 300)


def test_no_declared_read_back_means_no_read_is_due(db, env):
    effect = db.unknown(env, has_read_back=False)
    assert db.run("select 1 from reads_due where effect_id = %s", effect) == []
    assert db.one("select reconcile_ask(%s, %s, 1000)", effect, env) == "impossible"


@pytest.mark.parametrize("outcome, kind, purpose", [
    ("unknown", "dispatch", "unknown"), ("pending", "dispatch", "unknown"), ("succeeded", "dispatch", "confirm"),
    ("failed", "dispatch", None), ("failed", "manual", "watch"), ("succeeded", "manual", None),
    ("succeeded", "reconcile", None), ("failed", "reconcile", None)])
def test_which_reads_are_due(db, env, outcome, kind, purpose):
    effect = db.claimed(env)
    if kind != "dispatch":
        db.settle(effect, "unknown")
    db.settle(effect, outcome, kind=kind)
    assert [r["purpose"] for r in db.run("select purpose from reads_due where effect_id = %s", effect)] == (
        [purpose] if purpose else [])


# ---------------------------------------------------------------- the second word


def test_who_comes_late_is_evidence(db, env):
    limit = db.limit(env, 1000)
    effect = db.claimed(env, amount=500)
    db.settle(effect, "succeeded")
    for outcome in ("succeeded", "unknown", "pending"):
        for kind in ("dispatch", "reconcile"):
            assert db.settle(effect, outcome, kind=kind) == "late"
    assert kinds(db, effect) == ["late"] * 6
    assert db.figures(limit) == (500, 0, 0)
    assert not db.state(effect)["conflict"]


@pytest.mark.parametrize("first, then", [("succeeded", "failed"), ("failed", "succeeded")])
def test_who_comes_late_and_contradicts_is_a_conflict(db, env, first, then):
    limit = db.limit(env, 1000)
    effect = db.claimed(env, amount=500)
    db.settle(effect, first)
    assert db.settle(effect, then, kind="reconcile") == "conflict"
    assert db.settle(effect, then, kind="reconcile") == "conflict"
    state = db.state(effect)
    assert (state["conflict"], state["outcome"]) == (True, first)
    assert kinds(db, effect) == ["conflict"] * 2
    assert db.one("select count(*) from conflicts where effect_id = %s", effect) == 1
    # What was released may have happened after all, so it counts again; what was consumed stays consumed.
    assert db.figures(limit) == ((500, 0, 0) if first == "succeeded" else (0, 500, 500))


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
def test_a_person_settles_only_what_is_open(db, env, outcome):
    effect = db.claimed(env)
    db.settle(effect, "succeeded")
    assert db.settle(effect, outcome, kind="manual") == "wrong_stage"
    assert kinds(db, effect) == [] and not db.state(effect)["conflict"]


def test_a_person_waits_for_a_write_in_flight(db, env):
    effect = db.claimed(env)
    assert db.settle(effect, "failed", kind="manual") == "in_flight"
    assert db.state(effect)["stage"] == "dispatching"


def test_a_person_may_settle_what_no_worker_reported_in_time(db, env, clock):
    limit = db.limit(env, 1000)
    effect = db.claimed(env, lease_ms=1000, provider_ms=1000)
    clock("3 seconds")
    assert db.settle(effect, "failed", kind="manual") == "settled"
    assert db.figures(limit) == (0, 0, 0)


@pytest.mark.parametrize("kind, outcome", [("dispatch", "succeeded"), ("dispatch", "unknown"), ("reconcile", "failed"),
                                           ("manual", "succeeded")])
def test_what_was_never_claimed_is_not_settled(db, env, kind, outcome):
    effect = db.accepted(env)
    assert db.settle(effect, outcome, kind=kind) == "wrong_stage"
    assert db.state(effect)["stage"] == "ready" and kinds(db, effect) == []


@pytest.mark.parametrize("outcome", ["dispatching", "unknown"])
def test_what_was_claimed_is_not_cancelled(db, env, outcome):
    effect = db.claimed(env)
    if outcome == "unknown":
        db.settle(effect, "unknown")
    assert db.reject(effect) == "wrong_stage"
    assert db.state(effect)["stage"] in ("dispatching", "reconciling")


def test_what_was_cancelled_is_not_claimed(db, env):
    limit = db.limit(env, 1000)
    effect = db.accepted(env)
    assert db.reject(effect) == "settled"
    assert db.claim(effect) == {}
    assert db.reject(effect) == "wrong_stage"
    assert db.figures(limit) == (0, 0, 0)
    assert db.state(effect)["status"] == "expired"
    assert "was cancelled" in db.effect(effect)["error"]


def test_no_effect_is_missing(db):
    assert db.settle(new_id(), "succeeded") == "missing"


# ---------------------------------------------------------------- replays


def replayed(db, effect, seq=2):
    """A replay's attempt, as its claim makes it."""
    db.run("insert into attempts (effect_id, seq, kind, claim_id, worker, incarnation, claimed_at, send_by, answer_by)"
           " values (%s, %s, 'replay', gen_random_uuid(), 'w', gen_random_uuid(), hf_now(), hf_now() + '1 min',"
           " hf_now() + '2 min')", effect, seq)
    db.run("update open_effects set last_seq = %s, send_by = hf_now() + '1 min', answer_by = hf_now() + '2 min'"
           " where id = %s", seq, effect)


@pytest.mark.parametrize("reason", ["never_left", "provider_4xx"])
@pytest.mark.parametrize("seq", [1, 2])
def test_after_a_replay_no_attempt_proves_a_failure(db, env, reason, seq):
    limit = db.limit(env, 1000)
    effect = db.unknown(env, amount=500)
    replayed(db, effect)
    assert db.settle(effect, "failed", seq=seq, reason=reason) == "evidence"
    assert kinds(db, effect) == ["dispatch", "dispatch"]
    assert db.figures(limit) == (0, 500, 500)
    in_flight = db.one("select answer_by > hf_now() from open_effects where id = %s", effect)
    assert in_flight == (True if seq == 1 else None), "only the end of the newest attempt ends the flight"


@pytest.mark.parametrize("kind, reason", [("dispatch", "provider_2xx"), ("reconcile", "provider_record")])
def test_after_a_replay_a_success_or_the_record_settles(db, env, kind, reason):
    limit = db.limit(env, 1000)
    effect = db.unknown(env, amount=500)
    replayed(db, effect)
    assert db.settle(effect, "succeeded", kind=kind, reason=reason, seq=2) == "settled"
    assert db.figures(limit) == (500, 0, 0)


def test_a_replay_that_nobody_reported_is_swept_and_stays_unknown(db, env, clock):
    limit = db.limit(env, 1000)
    effect = db.unknown(env, amount=500)
    replayed(db, effect)
    assert effect not in db.sweep()
    clock("1 hour")
    assert db.sweep()[effect] == "evidence"
    assert db.figures(limit) == (0, 500, 500)
    assert effect not in db.sweep()
    assert db.settle(effect, "failed", kind="manual") == "settled"


@pytest.mark.parametrize("kind", ["dispatch", "reconcile"])
def test_what_is_not_final_does_not_end_the_flight_of_a_replay(db, env, kind):
    """A late answer to the first attempt, or a read that began before the replay was claimed."""
    effect = db.unknown(env)
    replayed(db, effect)
    assert db.settle(effect, "pending", kind=kind, seq=1 if kind == "dispatch" else None) == "pending"
    assert db.one("select send_by > hf_now() and answer_by > hf_now() from open_effects where id = %s", effect)
    assert db.settle(effect, "failed", kind="manual") == "in_flight"
    assert db.settle(effect, "pending", seq=2) == "evidence"
    assert db.settle(effect, "failed", kind="manual") == "settled"


# ---------------------------------------------------------------- sweep, and time


def test_the_sweep_makes_unknown_what_nobody_reported(db, env, clock):
    limit = db.limit(env, 1000)
    late, in_flight, ready = (db.claimed(env, lease_ms=1000, provider_ms=1000, amount=300),
                              db.claimed(env, lease_ms=60000, amount=200), db.accepted(env))
    assert late not in db.sweep()
    clock("5 seconds")
    swept = db.sweep()
    assert swept[late] == "unknown" and in_flight not in swept and ready not in swept
    assert db.figures(limit) == (0, 500, 300)
    assert db.one("select purpose from reads_due where effect_id = %s", late) == "unknown"
    assert kinds(db, late) == ["sweep"]
    assert late not in db.sweep()


@pytest.mark.parametrize("first", ["sweep", "dispatch"])
def test_what_a_read_found_in_conflict_before_the_sweep_becomes_unknown_once(db, env, clock, first):
    """Past answer_by a read may be asked for before the sweep has come, and find what contradicts the request."""
    limit = db.limit(env, 1000)
    effect = db.claimed(env, lease_ms=1000, provider_ms=1000, amount=300)
    clock("5 seconds")
    assert db.one("select reconcile_ask(%s, %s, 5000)", effect, env) == "lead"
    db.run("select conflict_mark(%s, 'two records', 'reconciler-1')", effect)
    if first == "sweep":
        assert db.sweep()[effect] == "unknown"
    else:  # a late answer settles nothing that is in conflict
        assert db.settle(effect, "succeeded") == "unknown"
    state = db.state(effect)
    assert (state["stage"], state["outcome"], state["conflict"]) == ("reconciling", "unknown", True)
    assert db.figures(limit) == (0, 300, 300)
    assert effect not in db.sweep(), "one line of evidence, not one a tick"
    assert kinds(db, effect) == ["conflict", first]
    assert db.one("select due_at = 'infinity' from reads_due where effect_id = %s", effect)
    assert db.settle(effect, "failed", kind="manual") == "settled"
    assert db.figures(limit) == (0, 0, 0)


def test_what_was_read_as_unknown_is_confirmed_in_as_many_looks_as_others(db, env):
    effect = db.unknown(env)
    for _ in range(2):
        db.run("select read_ended(%s::uuid[], '{not_found}', '{nothing}', '{200}', '{1000}', '{r}')", [effect])
    db.settle(effect, "succeeded")
    assert db.one("select purpose, reads from reads_due where effect_id = %s", effect) == {
        "purpose": "confirm", "reads": 0}


@pytest.mark.parametrize("outcome, figures", [("succeeded", (300, 0, 0)), ("failed", (0, 0, 0)), ("unknown", (0, 300, 300))])
def test_a_late_answer_may_settle_what_was_swept(db, env, clock, outcome, figures):
    limit = db.limit(env, 1000)
    effect = db.claimed(env, lease_ms=1000, provider_ms=1000, amount=300)
    clock("5 seconds")
    db.sweep()
    assert db.settle(effect, outcome) == ("evidence" if outcome == "unknown" else "settled")
    assert db.figures(limit) == figures


def move_to(db, clock, moment):
    """Moves the database's time to a moment."""
    clock(db.one("select (%s::timestamptz - now())::text", moment))


def consumed_by_period(db, limit):
    return {str(row["period_start"]): row["consumed"] for row in db.run(
        "select period_start, consumed from limit_usage where limit_id = %s", limit)}


@pytest.mark.parametrize("period, own, spent_after, left_after", [
    ("day", "2026-03-31", 0, 400), ("month", "2026-03-01", 0, 400), ("total", "1970-01-01", 400, 0)])
def test_a_hold_crosses_the_end_of_its_period(db, env, clock, period, own, spent_after, left_after):
    move_to(db, clock, "2026-03-31 23:59:00+00")
    limit = db.limit(env, 1000, period=period)
    spent, unknown = db.claimed(env, amount=400), db.unknown(env, amount=600)
    db.settle(spent, "succeeded")
    assert db.figures(limit) == (400, 600, 600)

    # The new period starts unspent, but what may have happened is still held.
    move_to(db, clock, "2026-04-01 00:01:00+00")
    assert db.figures(limit) == (spent_after, 600, 600)
    assert db.limit_state(limit)["available"] == left_after
    too_much = db.accepted(env, amount=left_after + 1)
    assert db.claim(too_much)[too_much]["verdict"] == "refused"

    # It is consumed where it was made: the new period has everything.
    assert db.settle(unknown, "succeeded", kind="reconcile") == "settled"
    assert consumed_by_period(db, limit) == {own: 1000}
    all_of_it = db.accepted(env, amount=1000)
    assert db.claim(all_of_it)[all_of_it]["verdict"] == ("refused" if period == "total" else "claimed")


def test_a_day_ends_at_midnight_utc_whatever_the_session_thinks(database, db, env, clock):
    elsewhere = database.caller()
    elsewhere.run("set timezone = 'Pacific/Auckland'")
    limit = db.limit(env, 1000)
    move_to(db, clock, "2026-03-31 23:30:00+00")
    first = elsewhere.claimed(env, amount=1000)
    elsewhere.settle(first, "succeeded")
    assert consumed_by_period(db, limit) == {"2026-03-31": 1000}
    move_to(db, clock, "2026-04-01 00:30:00+00")
    elsewhere.settle(elsewhere.claimed(env, amount=1000), "succeeded")
    assert consumed_by_period(db, limit) == {"2026-03-31": 1000, "2026-04-01": 1000}


# ---------------------------------------------------------------- many at once


@pytest.mark.parametrize("round_number", range(5))
def test_many_settle_one_effect_and_one_does(database, db, env, round_number):
    """Reads that found it and ones that did not, and people who know better: case 13."""
    limit = db.limit(env, 1000)
    effect = db.unknown(env, amount=500)
    words = [("reconcile", "succeeded"), ("reconcile", "failed"), ("manual", "failed"), ("manual", "succeeded"),
             ("dispatch", "unknown"), ("reconcile", "pending")]
    callers = [database.caller() for _ in range(12)]
    db.run("begin")
    db.run("select 1 from open_effects where id = %s for update", effect)
    tries = [Background(caller.settle, effect, outcome, kind=kind)
             for caller, (kind, outcome) in zip(callers, itertools.cycle(words))]
    wait_until(lambda: all(blocked(db, caller) for caller in callers))
    db.run("commit")
    results = [tried.value() for tried in tries]
    assert results.count("settled") == 1, results
    state = db.state(effect)
    counted = 500 if state["conflict"] else 0  # what was released and found counts again
    assert db.figures(limit) == ((500, 0, 0) if state["outcome"] == "succeeded" else (0, counted, counted))


def test_claims_and_settlements_of_the_same_limits_do_not_deadlock(database, env):
    limits = [database.callers[0].limit(env, MOST, resource_prefix=prefix) for prefix in ("", "a", "ab", "abc")]

    def go_round(caller, turn):
        for n in range(25):
            effects = [caller.accepted(env, amount=1, resource="abc"[:(i + turn) % 4]) for i in range(4)]
            claimed = [e for e, row in caller.claim(*effects).items() if row["verdict"] == "claimed"]
            caller.settle_all(*({"id": e, "outcome": "succeeded", "kind": "dispatch"} for e in claimed))
        return True

    assert all(thread.value(60) for thread in [Background(go_round, database.caller(), turn) for turn in range(6)])
    reader = database.callers[0]
    assert [reader.figures(limit)[1:] for limit in limits] == [(0, 0)] * 4
    assert reader.figures(limits[0])[0] == 6 * 25 * 4
