"""Approvals in the database: who is first decides, whoever comes second finds it closed, and many sessions that
approve, deny, cancel, expire and claim the same effects at random leave each in exactly one of the allowed ways."""

import collections
import json
import random
import uuid

import psycopg
import pytest

from harness import wait_until
from protocol import Background, blocked, new_id

GATE = json.dumps({"effect": "require_approval", "required": 1, "expires": 3600})
TWO = json.dumps({"effect": "require_approval", "required": 2, "expires": 3600})
DECIDE = "select * from approval_decide(%s, %s, %s, %s, %s, null)"


class Approvals:
    """Short words for what happens to an approval, in one session."""

    def __init__(self, caller, environment):
        self.caller = caller
        self.environment = environment

    def asked(self, gate=GATE, **more):
        effect = self.caller.accepted(self.environment, gate=gate, **more)
        assert self.caller.state(effect)["stage"] == "awaiting_approval"
        return effect

    def say(self, word, effect, agent="boss"):
        (row,) = self.caller.run(DECIDE, effect, self.environment, uuid.uuid4(), agent, word)
        return row["verdict"]

    def row(self, effect):
        return self.caller.one("select status::text, used_at is not null as used, closed_at is not null as closed"
                               " from approvals where id = %s", effect)

    def expire(self):
        return self.caller.run("select * from expire(1000, 'scheduler-1')")


@pytest.fixture
def mine(db, env):
    return Approvals(db, env)


@pytest.fixture
def theirs(database, env):
    return Approvals(database.caller(), env)


def test_only_what_is_approved_is_claimed_and_that_uses_it(mine):
    effect = mine.asked()
    assert mine.caller.claim(effect) == {}
    assert mine.say("approve", effect) == "approved"
    assert mine.row(effect) == {"status": "approved", "used": False, "closed": False}
    assert mine.caller.claim(effect)[effect]["verdict"] == "claimed"
    assert mine.row(effect) == {"status": "approved", "used": True, "closed": True}
    assert mine.caller.claim(effect) == {}


def test_a_claim_that_is_undone_leaves_the_approval(mine, database):
    effect = mine.asked()
    mine.say("approve", effect)
    other = database.caller()
    other.run("begin")
    assert other.claim(effect)[effect]["verdict"] == "claimed"
    other.run("rollback")
    assert mine.row(effect)["used"] is False
    assert mine.caller.claim(effect)[effect]["verdict"] == "claimed"


FIRST_AND_SECOND = [
    ("approve", "deny", "approved", "decided"), ("deny", "approve", "denied", "decided"),
    ("approve", "cancel", "approved", "settled"), ("cancel", "approve", "settled", "decided"),
    ("deny", "cancel", "denied", "wrong_stage"), ("cancel", "deny", "settled", "decided"),
    ("cancel", "cancel", "settled", "wrong_stage"), ("approve", "approve", "approved", "decided")]


def act(approvals, word, effect, agent):
    return approvals.caller.reject(effect) if word == "cancel" else approvals.say(word, effect, agent)


@pytest.mark.parametrize("first, second, said, then", FIRST_AND_SECOND)
def test_the_second_waits_for_the_first_and_finds_what_it_did(mine, theirs, first, second, said, then):
    effect = mine.asked()
    mine.caller.run("begin")
    assert act(mine, first, effect, "boss") == said
    waiting = Background(act, theirs, second, effect, "chief")
    wait_until(lambda: blocked(mine.caller, theirs.caller), what="the second to wait")
    mine.caller.run("commit")
    assert waiting.value() == then
    ended = "expired" if "cancel" in (first, second) and first != "deny" else {
        "approve": "running", "deny": "denied"}[first]
    assert mine.caller.state(effect)["status"] == ended


@pytest.mark.parametrize("first, second, said, then", FIRST_AND_SECOND)
def test_a_first_that_is_undone_was_not_there(mine, theirs, first, second, said, then):
    effect = mine.asked()
    mine.caller.run("begin")
    assert act(mine, first, effect, "boss") == said
    waiting = Background(act, theirs, second, effect, "chief")
    wait_until(lambda: blocked(mine.caller, theirs.caller), what="the second to wait")
    mine.caller.run("rollback")
    assert waiting.value() == {"approve": "approved", "deny": "denied", "cancel": "settled"}[second]


def test_a_claim_leaves_alone_what_is_being_cancelled(mine, theirs):
    effect = mine.asked()
    mine.say("approve", effect)
    mine.caller.run("begin")
    assert mine.caller.reject(effect) == "settled"
    assert theirs.caller.claim(effect) == {}  # it skips, and is asked again
    mine.caller.run("commit")
    assert mine.row(effect) == {"status": "approved", "used": False, "closed": True}


def test_time_ends_it_before_and_after_the_decision(mine, clock):
    undecided, approved, late = mine.asked(), mine.asked(), mine.asked()
    mine.say("approve", approved)
    mine.say("approve", late)
    clock("3601 seconds")
    assert mine.say("approve", undecided) == "expired" == mine.say("deny", undecided)
    row = mine.caller.claim(late)[late]
    assert row["verdict"] == "expired" and "expired before it was sent" in row["detail"]
    ended = {row["effect_id"]: row["stage"] for row in mine.expire()}
    assert (ended[undecided], ended[approved]) == ("awaiting_approval", "ready")
    for effect in (undecided, approved, late):
        assert mine.caller.state(effect)["status"] == "expired"
        assert mine.row(effect)["closed"] and not mine.row(effect)["used"]
    assert mine.row(undecided)["status"] == "expired" and mine.row(approved)["status"] == "approved"
    assert not {row["effect_id"] for row in mine.expire()} & {undecided, approved, late}


def test_two_words_at_once_of_two_are_both_counted(mine, theirs):
    effect = mine.asked(TWO)
    mine.caller.run("begin")
    assert mine.say("approve", effect, "boss") == "counted"
    waiting = Background(theirs.say, "approve", effect, "chief")
    wait_until(lambda: blocked(mine.caller, theirs.caller), what="the second to wait")
    mine.caller.run("commit")
    assert waiting.value() == "approved"


def test_the_same_agent_at_once_counts_once(mine, theirs):
    effect = mine.asked(TWO)
    mine.caller.run("begin")
    assert mine.say("approve", effect) == "counted"
    waiting = Background(theirs.say, "approve", effect)
    wait_until(lambda: blocked(mine.caller, theirs.caller), what="the second to wait")
    mine.caller.run("commit")
    assert waiting.value() == "said"
    assert mine.caller.claim(effect) == {}


# ---- what the database itself refuses

@pytest.mark.parametrize("statement", [
    "update approvals set status = 'approved', decision_origin = 'human', decided_at = now() where id = %s",
    "update approvals set used_at = now(), used_by = gen_random_uuid(), closed_at = now() where id = %s",
    "update approvals set payload = '{{}}', payload_hash = sha256('{{}}') where id = %s",
    "update approvals set required_approvals = 1 where id = %s", "update approvals set agent_id = 'x' where id = %s",
    "update approvals set expires_at = 'infinity' where id = %s", "delete from approvals where id = %s",
    "delete from approval_decisions where approval_id = %s",
    "update approval_decisions set decision = 'approve' where approval_id = %s",
    "update open_effects set gated = false where id = %s",
    "update open_effects set stage = 'dispatching' where id = %s"])
@pytest.mark.parametrize("role", ["service", "owner"])
def test_nobody_gets_past_an_approval_with_a_statement(mine, database, role, statement):
    effect = mine.asked(TWO)
    mine.say("approve", effect)
    with pytest.raises(psycopg.Error) as refused:
        database.caller(role).run(statement.replace("{{}}", "{}"), effect)
    assert refused.value.sqlstate in ("42501", "HF001", "HF003", "HF004", "23514"), refused.value
    assert mine.row(effect) == {"status": "pending", "used": False, "closed": False}


def test_a_ready_row_by_hand_is_refused_in_the_claim(mine):
    """The services' role may move the stage; the claim asks for the approval all the same."""
    effect = mine.asked()
    mine.caller.run("update open_effects set stage = 'ready' where id = %s", effect)
    row = mine.caller.claim(effect)[effect]
    assert row["verdict"] == "refused" and "is pending" in row["detail"]
    assert mine.row(effect)["status"] == "expired"


def test_an_approval_used_twice_is_refused(mine, database):
    effect = mine.asked()
    mine.say("approve", effect)
    assert mine.caller.claim(effect)[effect]["verdict"] == "claimed"
    for role in ("service", "owner"):
        with pytest.raises(psycopg.Error) as refused:
            database.caller(role).run("update approvals set used_by = gen_random_uuid() where id = %s", effect)
        assert refused.value.sqlstate == "HF004"


# ---- at random

def test_random_orders_end_in_one_allowed_way(database, db, env):
    seed = random.randrange(2 ** 32)
    print(f"seed {seed}")
    effects = []
    for i in range(150):
        effects.append(db.accepted(env, id=new_id(), gate=random.choice([GATE, TWO]), amount=1,
                                   dispatch_before_s=random.choice([1, 2, 86400])))
    seen = collections.Counter()

    def work(approvals, chance):
        mine = collections.Counter()
        for _ in range(250):
            effect = chance.choice(effects)
            step = chance.choice(["approve", "approve", "approve", "deny", "cancel", "claim", "claim", "expire"])
            if step == "claim":
                some = sorted({effect, *chance.sample(effects, 5)})
                for row in approvals.caller.claim(*some).values():
                    mine[row["verdict"]] += 1
            elif step == "expire":
                mine["expire"] += len(approvals.expire())
            elif step == "deny" and chance.random() < 0.7:
                continue
            else:
                mine[act(approvals, step, effect, f"agent {chance.randint(0, 4)}")] += 1
        return mine

    sessions = [Background(work, Approvals(database.caller(), env), random.Random(seed + i)) for i in range(6)]
    for session in sessions:
        seen += session.value(60)
    assert {"approved", "counted", "denied", "claimed", "settled", "decided"} <= set(seen), seen
    for effect in effects:
        state = db.state(effect)
        row = db.one(
            "select p.status::text, p.used_at is not null as used, p.closed_at is not null as closed, p.required_approvals,"
            " count(d.*) filter (where d.decision = 'approve') as words,"
            " count(d.*) filter (where d.decision = 'deny') as denials,"
            " (select count(*) from attempts a where a.effect_id = p.id) as attempts"
            " from approvals p left join approval_decisions d on d.approval_id = p.id where p.id = %s group by p.id",
            effect)
        assert row["attempts"] == row["used"], row
        if row["used"]:
            assert row["status"] == "approved" and row["words"] >= row["required_approvals"] and not row["denials"]
        allowed = {("awaiting_approval", "pending", False), ("ready", "approved", False),
                   ("dispatching", "approved", True), ("rejected", "denied", True), ("rejected", "expired", True),
                   ("rejected", "approved", True)}
        assert (state["stage"], row["status"], row["closed"]) in allowed, (state, row)
        assert (state["status"] == "denied") == (row["denials"] == 1) == (row["status"] == "denied")
