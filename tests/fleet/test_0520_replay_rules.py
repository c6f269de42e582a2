"""Replays in the database: who may ask, what the claim checks again, and what each race comes to."""

import uuid

import pytest

from harness import unique, wait_until
from protocol import Background, blocked

WINDOW = 86400
LEASE, PROVIDER = 60000, 60000


def keys(db, environment, count=2):
    """Keys of as many agents: the one that calls, and others."""
    made = []
    for i in range(count):
        key = uuid.uuid4()
        db.run("insert into api_keys (id, environment_id, name, agent_id, scopes, secret_hash)"
               " values (%s, %s, 'k', %s, '{}', sha256(%s))", key, environment, f"agent-{i}", key.bytes)
        made.append(key)
    return made


@pytest.fixture
def asker(db, env):
    return keys(db, env)[1]


def unknown(db, env, **call):
    return db.unknown(env, adapter="stripe.refund", **call)


def ask(db, effect, env, asker, window=WINDOW, wait=900, reason=None):
    """(seq, None), or (None, the reason of the refusal)."""
    row = db.one("select * from replay_ask(%s, %s, %s, 'agent-1', %s, %s, %s, %s, %s)", effect, env, asker,
                 reason, window, LEASE, PROVIDER, wait)
    return row["seq"], row["reason"]


def claim(db, effect, seq=2, claim_id=None, lease=LEASE, provider=PROVIDER):
    """The verdict, or None when nothing was asked for."""
    rows = db.run("select * from replay_claim(%s::uuid[], %s::int[], %s, 'worker-1', %s, %s, %s)", [effect], [seq],
                  claim_id or uuid.uuid4(), uuid.uuid4(), lease, provider)
    return (rows[0]["verdict"], rows[0]["detail"]) if rows else None


def published(db, env, after_ms=0):
    """Which replays of an environment the scheduler would publish again."""
    rows = db.run("select effect_id, environment_id from replays_take(1000, %s, 300000, 0)", after_ms)
    return [row["effect_id"] for row in rows if row["environment_id"] == env]


def expired(db):
    return [row["id"] for row in db.run("select x as id from replays_expire(1000, 'scheduler-1') x")]


def attempts(db, effect):
    return [(r["seq"], r["kind"]) for r in db.run(
        "select seq, kind::text from attempts where effect_id = %s order by seq", effect)]


def texts(db, effect):
    return [row["text"] for row in db.evidence(effect) if row["kind"] == "note"]


def test_a_replay_is_an_attempt_of_its_own(db, env, asker):
    limit = db.limit(env, 1000)
    effect = unknown(db, env, amount=500)
    assert ask(db, effect, env, asker, reason="They say it never came.") == (2, None)
    assert attempts(db, effect) == [(1, "dispatch")]
    assert claim(db, effect) == ("claimed", None)
    assert attempts(db, effect) == [(1, "dispatch"), (2, "replay")]
    state = db.state(effect)
    assert (state["stage"], state["outcome"]) == ("reconciling", "unknown")
    assert db.figures(limit) == (0, 500, 500)
    assert db.settle(effect, "succeeded", seq=2) == "settled"
    assert db.figures(limit) == (500, 0, 0)


def test_the_same_bytes_and_key_are_claimed(db, env, asker):
    effect = unknown(db, env, provider_key="pk-1", request=b"{\"a\":1}", request_hash=b"\0" * 32)
    ask(db, effect, env, asker)
    row, = db.run("select * from replay_claim(%s::uuid[], '{2}', %s, 'w', %s, 1000, 1000)", [effect], uuid.uuid4(),
                  uuid.uuid4())
    assert (row["provider_key"], row["request"], row["seq"]) == ("pk-1", b"{\"a\":1}", 2)


def test_asked_twice_is_one_replay(db, env, asker):
    effect = unknown(db, env)
    assert ask(db, effect, env, asker) == (2, None)
    assert ask(db, effect, env, asker) == (None, "in_flight")
    assert claim(db, effect)[0] == "claimed"
    assert ask(db, effect, env, asker) == (None, "in_flight")
    db.settle(effect, "unknown", seq=2)
    assert ask(db, effect, env, asker) == (3, None)


def test_two_who_ask_at_once(database, db, env, asker):
    effect = unknown(db, env)
    first, second = database.caller(), database.caller()
    first.run("begin")
    assert ask(first, effect, env, asker) == (2, None)
    waiting = Background(ask, second, effect, env, asker)
    wait_until(lambda: blocked(db, second))
    first.run("commit")
    assert waiting.value() == (None, "in_flight")


def test_a_message_delivered_twice_is_claimed_once(database, db, env, asker):
    effect = unknown(db, env)
    ask(db, effect, env, asker)
    first, second = database.caller(), database.caller()
    first.run("begin")
    assert claim(first, effect)[0] == "claimed"
    waiting = Background(claim, second, effect)
    wait_until(lambda: blocked(db, second))
    first.run("commit")
    assert waiting.value() is None
    assert claim(db, effect) is None
    assert attempts(db, effect) == [(1, "dispatch"), (2, "replay")]


def test_after_a_lost_commit_answer_the_claim_is_known_by_its_id(db, env, asker):
    effect, ours = unknown(db, env), uuid.uuid4()
    ask(db, effect, env, asker)
    assert claim(db, effect, claim_id=ours)[0] == "claimed"
    found = db.run("select effect_id, verdict, seq from claim_recover(%s::uuid[], %s)", [effect], ours)
    assert found == [{"effect_id": effect, "verdict": "claimed", "seq": 2}]
    assert db.run("select * from claim_recover(%s::uuid[], %s)", [effect], uuid.uuid4()) == []


def test_a_message_of_another_replay_claims_nothing(db, env, asker, clock):
    effect = unknown(db, env)
    assert ask(db, effect, env, asker, wait=10) == (2, None)
    assert claim(db, effect, seq=3) is None and claim(db, effect, seq=1) is None
    clock("11 seconds")
    assert effect in expired(db)
    assert ask(db, effect, env, asker) == (3, None)
    assert claim(db, effect, seq=2) is None
    assert claim(db, effect, seq=3)[0] == "claimed"
    assert attempts(db, effect) == [(1, "dispatch"), (3, "replay")]


# ---------------------------------------------------------------- what refuses it

def halt(db, env, effect):
    db.run("select * from halt(%s, 'x', %s)", env, uuid.uuid4())


def halt_action(db, env, effect):
    db.run("select * from halt_part(%s, 'action', 'refund', 'x', %s)", env, uuid.uuid4())


def halt_host(db, env, effect):
    db.run("select * from halt_part(%s, 'destination', '127.0.0.1', 'x', %s)", env, uuid.uuid4())


def settle(db, env, effect):
    db.settle(effect, "succeeded", kind="reconcile")


def not_final(db, env, effect):
    db.settle(effect, "pending", kind="reconcile")


def contradict(db, env, effect):
    db.run("select conflict_mark(%s, 'two records', 'reconciler-1')", effect)


def rotate(db, env, effect):
    db.run("update secrets set version = version + 1 where environment_id = %s", env)


def remove(db, env, effect):
    db.run("update secrets set sealed = null where environment_id = %s", env)


def revoke(db, env, effect):
    db.run("update api_keys set revoked_at = hf_now() where id = (select requested_by from effects where id = %s)",
           effect)


REFUSALS = [(halt, "halted"), (halt_action, "halted"), (halt_host, "halted"), (settle, "not_unknown"),
            (not_final, "not_unknown"), (contradict, "conflict"), (rotate, "credential_changed"),
            (remove, "credential_changed"), (revoke, "key_revoked")]


def ready_to_replay(db, env):
    caller, asker = keys(db, env)
    db.run("insert into secrets (environment_id, name, version, sealed) values (%s, 'S', 1, 'x')", env)
    return unknown(db, env, secrets="S", requested_by=caller), asker


@pytest.mark.parametrize("change, reason", REFUSALS)
def test_every_control_is_checked_when_it_is_asked_for(db, env, change, reason):
    effect, asker = ready_to_replay(db, env)
    change(db, env, effect)
    assert ask(db, effect, env, asker) == (None, reason)
    assert db.run("select 1 from replays where effect_id = %s", effect) == []


@pytest.mark.parametrize("change, reason", REFUSALS)
def test_every_control_is_checked_again_in_the_claim(db, env, change, reason):
    effect, asker = ready_to_replay(db, env)
    assert ask(db, effect, env, asker) == (2, None)
    change(db, env, effect)
    verdict, why = claim(db, effect)
    assert attempts(db, effect) == [(1, "dispatch")]
    if reason == "halted":
        assert verdict == "held" and len(texts(db, effect)) == 1
    else:
        assert verdict == "not_sent"
        assert texts(db, effect)[1] == f"Replay 2 was not sent: {why}."
        assert db.run("select 1 from open_replays where effect_id = %s", effect) == []
        assert claim(db, effect) is None


def test_the_key_of_the_one_who_asked_must_not_be_revoked(db, env):
    effect, asker = ready_to_replay(db, env)
    ask(db, effect, env, asker)
    db.run("update api_keys set revoked_at = hf_now() where id = %s", asker)
    assert claim(db, effect)[0] == "not_sent"


def test_what_was_held_by_a_halt_is_claimed_after_it(db, env, asker):
    effect = unknown(db, env)
    ask(db, effect, env, asker)
    halt(db, env, effect)
    assert claim(db, effect)[0] == "held"
    assert published(db, env) == []
    db.run("select resume(%s)", env)
    assert published(db, env, after_ms=60000) == [effect]
    assert claim(db, effect)[0] == "claimed"


def test_only_what_a_provider_promises_to_recognise(db, env, asker):
    effect = unknown(db, env)
    assert ask(db, effect, env, asker, window=0) == (None, "replay_unsupported")


def test_nothing_before_the_first_write_has_ended(db, env, asker, clock):
    effect = db.claimed(env, adapter="stripe.refund", lease_ms=1000, provider_ms=1000)
    assert ask(db, effect, env, asker) == (None, "in_flight")
    clock("3 seconds")
    assert ask(db, effect, env, asker) == (None, "not_unknown")  # not swept yet
    db.sweep()
    assert ask(db, effect, env, asker) == (2, None)


def test_the_window_is_the_databases_and_leaves_time_for_the_answer(db, env, asker, clock):
    early, late = unknown(db, env), unknown(db, env)
    clock("23 hours 57 minutes")
    assert ask(db, early, env, asker, wait=86400) == (2, None)
    assert db.effect(early)["replayableUntil"] is not None
    clock("23 hours 58 minutes 30 seconds")  # two minutes of flight do not fit any more
    assert ask(db, late, env, asker) == (None, "window_closed")
    assert claim(db, early)[0] == "not_sent"
    clock("25 hours")
    assert db.effect(late)["replayableUntil"] is None


def test_the_claim_looks_at_its_own_flight(db, env, asker, clock):
    effect = unknown(db, env)
    assert ask(db, effect, env, asker) == (2, None)
    verdict, why = claim(db, effect, lease=43200000, provider=43200001)
    assert verdict == "not_sent" and "forgotten" in why


def test_what_nobody_claims_in_time_ends_as_not_sent(db, env, asker, clock):
    effect = unknown(db, env)
    ask(db, effect, env, asker, wait=10)
    assert effect not in expired(db)
    clock("11 seconds")
    assert claim(db, effect) == ("not_sent", "nobody sent it in time")
    other = unknown(db, env)
    ask(db, other, env, asker, wait=10)
    clock("30 seconds")
    assert other in expired(db)
    assert texts(db, other)[1] == "Replay 2 was not sent: nobody sent it in time."
    assert claim(db, other) is None and db.state(other)["outcome"] == "unknown"


def test_what_settled_meanwhile_ends_its_replay(db, env, asker):
    effect = unknown(db, env)
    ask(db, effect, env, asker)
    settle(db, env, effect)
    assert effect in expired(db)
    assert texts(db, effect)[1] == "Replay 2 was not sent: the effect is settled."


def test_a_person_settles_before_the_claim_or_after_the_flight(db, env, asker):
    before, during = unknown(db, env), unknown(db, env)
    ask(db, before, env, asker)
    assert db.settle(before, "failed", kind="manual") == "settled"
    assert claim(db, before)[0] == "not_sent"
    ask(db, during, env, asker)
    claim(db, during)
    assert db.settle(during, "failed", kind="manual") == "in_flight"
    db.settle(during, "unknown", seq=2)
    assert db.settle(during, "failed", kind="manual") == "settled"


# ---------------------------------------------------------------- what its answer means

@pytest.mark.parametrize("reason", ["provider_4xx", "never_left", "provider_record"])
@pytest.mark.parametrize("seq", [1, 2])
def test_no_end_of_a_write_settles_failed_any_more(db, env, asker, reason, seq):
    effect = unknown(db, env)
    ask(db, effect, env, asker)
    claim(db, effect)
    assert db.settle(effect, "failed", reason=reason, seq=seq) == "evidence"
    assert db.state(effect)["outcome"] == "unknown"


@pytest.mark.parametrize("reason", ["provider_4xx", "never_left"])
@pytest.mark.parametrize("seq", [1, 2])
def test_nor_contradicts_a_success(db, env, asker, reason, seq):
    limit = db.limit(env, 1000)
    effect = unknown(db, env, amount=500)
    ask(db, effect, env, asker)
    claim(db, effect)
    assert db.settle(effect, "succeeded", kind="reconcile") == "settled"
    assert db.settle(effect, "failed", reason=reason, seq=seq) == "late"
    assert db.state(effect)["conflict"] is False and db.figures(limit) == (500, 0, 0)


def test_a_success_of_a_replay_contradicts_a_failure(db, env, asker):
    limit = db.limit(env, 1000)
    effect = unknown(db, env, amount=500)
    ask(db, effect, env, asker)
    claim(db, effect)
    assert db.settle(effect, "failed", kind="reconcile") == "settled"
    assert db.settle(effect, "succeeded", seq=2) == "conflict"
    assert db.figures(limit) == (0, 500, 500)


def test_without_a_replay_a_late_end_contradicts_as_before(db, env):
    effect = unknown(db, env)
    assert db.settle(effect, "succeeded", kind="reconcile") == "settled"
    assert db.settle(effect, "failed", reason="provider_4xx") == "conflict"


def test_a_replay_that_is_not_reported_is_swept(db, env, asker, clock):
    effect = unknown(db, env)
    ask(db, effect, env, asker)
    claim(db, effect, lease=1000, provider=1000)
    clock("3 seconds")
    assert db.sweep() == {effect: "evidence"}
    assert ask(db, effect, env, asker) == (3, None)


# ---------------------------------------------------------------- halt

def test_halt_asks_the_attempts_of_replays_whose_effect_is_settled(db, env, asker):
    effect = unknown(db, env)
    ask(db, effect, env, asker)
    claim(db, effect)
    settle(db, env, effect)
    row = db.one("select in_flight, quiet_at > hf_now() + '50 s' as later from halt(%s, 'x', %s)", env, uuid.uuid4())
    assert (row["in_flight"], row["later"]) == (1, True)


def test_halt_of_a_part_asks_for_that_part(db, env, asker):
    effect = unknown(db, env, action_name="pay", destination="api.example:443")
    ask(db, effect, env, asker)
    claim(db, effect)
    settle(db, env, effect)
    for part, name, there in (("action", "pay", 1), ("action", "other", 0), ("destination", "api.example", 1),
                              ("destination", "api.example:443", 1), ("destination", "example", 0)):
        row = db.one("select in_flight from halt_part(%s, %s, %s, 'x', %s)", env, part, name, uuid.uuid4())
        assert row == there, (part, name)


def test_a_halt_waits_for_the_claim_of_a_replay(database, db, env, asker):
    effect = unknown(db, env)
    ask(db, effect, env, asker)
    first, second = database.caller(), database.caller()
    first.run("begin")
    assert claim(first, effect)[0] == "claimed"
    waiting = Background(second.one, "select in_flight from halt(%s, 'x', %s)", env, uuid.uuid4())
    wait_until(lambda: blocked(db, second))
    first.run("commit")
    assert waiting.value() == 1


def test_what_a_replay_is_never_changes(db, env, asker):
    effect = unknown(db, env)
    ask(db, effect, env, asker)
    for statement in ("update replays set reason = 'x'", "delete from replays"):
        with pytest.raises(Exception, match="permission denied|are facts"):
            db.run(statement)
