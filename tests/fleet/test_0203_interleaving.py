"""Many sessions accept, claim, settle, sweep, cancel and resolve the same effects at random. Whatever they
did, the figures of the limits follow from the facts, and nothing was dispatched or settled twice."""

import collections
import os
import random

import pytest

from protocol import EXPECTED_LIMITS, Background, new_id

SESSIONS = 8
ROUNDS = 120
LIMIT = 40000

# Every outcome that a worker, a reader or a person may report of an effect.
WORDS = [("dispatch", "succeeded"), ("dispatch", "failed"), ("dispatch", "unknown"), ("dispatch", "pending"),
         ("reconcile", "succeeded"), ("reconcile", "failed"), ("reconcile", "pending"), ("reconcile", "unknown"),
         ("manual", "succeeded"), ("manual", "failed")]


class Session:
    """One of those who work on the shared effects, with a random order of its own."""

    def __init__(self, caller, environment, effects, seed):
        self.caller = caller
        self.environment = environment
        self.effects = effects
        self.random = random.Random(seed)
        self.seen = collections.Counter()

    def some(self, most):
        """Ids, ascending and distinct; mostly of effects that are young."""
        recent = list(self.effects[-60:])
        return sorted(set(self.random.choices(recent, k=self.random.randint(1, most)))) if recent else []

    def accept(self):
        calls = [{"environment": self.environment, "id": new_id(), "amount": self.random.randint(0, 2000),
                  "resource": self.random.choice(["a1", "b1"]), "key": f"k-{self.random.randint(0, 400)}",
                  "operation": self.random.choice([None, f"op-{self.random.randint(0, 40)}"])}
                 for _ in range(self.random.randint(1, 6))]
        distinct = list({call["key"]: call for call in calls}.values())
        distinct = list({call["operation"] or call["key"]: call for call in distinct}.values())
        for row in self.caller.accept(*distinct):
            self.seen[row["verdict"]] += 1
            if row["verdict"] == "accepted":
                self.effects.append(row["effect_id"])

    def claim(self):
        ids = self.some(12)
        patience = self.random.choice([1, 1, 60000])
        for row in (self.caller.claim(*ids, lease_ms=patience, provider_ms=patience) if ids else {}).values():
            self.seen[row["verdict"]] += 1

    def settle(self):
        items = []
        for effect in self.some(8):
            kind, outcome = self.random.choice(WORDS)
            part = self.random.choice([None, None, 3]) if (kind, outcome) == ("manual", "succeeded") else None
            items.append({"id": effect, "kind": kind, "outcome": outcome, "consumed": part})
        for result in (self.caller.settle_all(*items) if items else {}).values():
            self.seen[result] += 1

    def sweep(self):
        for result in self.caller.sweep().values():
            self.seen["swept " + result] += 1

    def cancel(self):
        for effect in self.some(2):
            self.seen["cancel " + self.caller.reject(effect)] += 1

    def look(self):
        """What the scheduler and the readers of the API do meanwhile."""
        self.caller.run("select * from republish_take(50, 0, 0, 0)")
        self.caller.run("select * from reads_take(50, 0)")
        self.caller.run("select * from effect_json(%s::uuid[])", self.some(5))
        self.caller.run("select limit_json(l) from limits l")

    def change(self):
        amount = self.random.choice([LIMIT, LIMIT // 2, LIMIT * 2])
        self.caller.run("update limits set amount = %s where environment_id = %s and resource_prefix = 'a'",
                        amount, self.environment)

    def work(self):
        steps = [self.accept, self.claim, self.claim, self.settle, self.settle, self.sweep, self.cancel, self.look,
                 self.change]
        for _ in range(ROUNDS):
            self.random.choice(steps)()
        return self.seen


@pytest.fixture(scope="module")
def worked(database, db):
    """The environment after everybody has worked on it, and what they saw."""
    seed = int(os.environ.get("INTERLEAVING_SEED", random.randrange(2 ** 32)))
    print(f"INTERLEAVING_SEED={seed}")  # the order of the sessions among each other is the machine's
    environment = db.environment()
    for more in ({}, {"resource_prefix": "a"}, {"resource_prefix": "b", "period": "total"}, {"period": "month"}):
        db.limit(environment, LIMIT, **more)
    effects = []
    sessions = [Session(database.caller(), environment, effects, seed + i) for i in range(SESSIONS)]
    seen = sum((thread.value(120) for thread in [Background(s.work) for s in sessions]), collections.Counter())
    return environment, seen


def test_everything_happened(worked):
    """Else the rest proves little."""
    wanted = ["accepted", "key_same", "operation_same", "claimed", "refused", "settled", "unknown", "pending",
              "evidence", "late", "conflict", "wrong_stage", "in_flight", "swept unknown", "cancel settled",
              "cancel wrong_stage"]
    _, seen = worked
    assert [word for word in wanted if not seen[word]] == [], seen


def test_limits_hold_and_have_consumed_what_the_facts_say(worked, db):
    environment, _ = worked
    rows = db.run(EXPECTED_LIMITS, environment)
    assert len(rows) == 4
    for row in rows:
        assert (row["reserved"], row["unknown_exposure"], row["consumed"]) == (
            row["held"], row["exposed"], row["spent"]), row


def test_the_new_period_of_no_limit_was_overrun(worked, db):
    """Whatever was lowered meanwhile: never more than the most it ever was."""
    environment, _ = worked
    for row in db.run(EXPECTED_LIMITS, environment):
        assert row["consumed"] + row["reserved"] <= 2 * LIMIT


def test_each_effect_is_open_or_settled_and_was_dispatched_at_most_once(worked, db):
    environment, _ = worked
    assert db.one("select count(*) from effects e left join open_effects o on o.id = e.id"
                  " left join settlements s on s.effect_id = e.id"
                  " where e.environment_id = %s and (o.id is null) = (s.effect_id is null)", environment) == 0
    assert db.one("select count(*) from (select effect_id from attempts group by 1 having count(*) > 1) x") == 0
    assert db.one("select count(*) from settlements s left join attempts a using (effect_id)"
                  " where (a.effect_id is null) <> (s.outcome = 'not_dispatched')") == 0


def test_each_key_and_operation_names_an_effect_that_exists(worked, db):
    assert db.one("select count(*) from keys k left join effects e on e.id = k.effect_id where e.id is null") == 0
    assert db.one("select count(*) from operations p left join effects e on e.id = p.effect_id where e.id is null") == 0
    # Only the newest generation of an operation may be anything but rejected.
    assert db.one("select count(*) from operations p join operations n using (environment_id, operation_hash)"
                  " join settlements s on s.effect_id = p.effect_id"
                  " where n.generation > p.generation and s.outcome <> 'not_dispatched'") == 0


def test_all_that_is_open_can_still_be_settled(worked, db, clock):
    """Nothing is wedged: time passes, the sweep and people close everything, and nothing stays held."""
    environment, _ = worked
    clock("2 days")
    db.sweep()
    while db.run("select * from expire(1000, 'scheduler-1')"):
        pass
    left = [row["id"] for row in db.run("select id from open_effects where environment_id = %s order by id", environment)]
    for at in range(0, len(left), 200):
        results = db.settle_all(*({"id": e, "kind": "manual", "outcome": "failed"} for e in left[at:at + 200]))
        assert set(results.values()) == {"settled"}
    assert db.one("select count(*) from open_effects where environment_id = %s", environment) == 0
    for row in db.run(EXPECTED_LIMITS, environment):  # only what was released and found counts on
        assert (row["reserved"], row["unknown_exposure"], row["consumed"]) == (
            row["held"], row["exposed"], row["spent"])
    contradicted = db.run("select id, outcome::text from effect_states where environment_id = %s and conflict"
                          " and stage = 'settled'", environment)
    for row in contradicted:
        other = "failed" if row["outcome"] == "succeeded" else "succeeded"
        assert db.one("select effect_correct(%s, %s, 'looked it up', null, null, null, 'key')", row["id"], other)
    for row in db.run(EXPECTED_LIMITS, environment):
        assert (row["reserved"], row["unknown_exposure"], row["consumed"]) == (0, 0, row["spent"])
