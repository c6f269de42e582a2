"""The comparison at the end of tests/chaos finds what is wrong: each promise broken in ledgers made for it."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "chaoslib"))

from ledgers import Counted, Effect, Limit, broken_promises  # noqa: E402
from schedule import schedule_make  # noqa: E402

RIGHT = {
    "told": [("eff_a", "running"), ("eff_a", "succeeded"), ("eff_b", "failed"), ("eff_c", "unknown"), ("eff_d", "failed")],
    "operations": {"op_a": {"eff_a"}, "op_b": {"eff_b"}},
    "effects": {id: Effect(id, outcome, by_person) for id, outcome, by_person in (
        ("eff_a", "succeeded", False), ("eff_b", "failed", False), ("eff_c", "succeeded", True), ("eff_d", "not_dispatched", False))},
    "counted": {"eff_a": Counted(1, 1), "eff_b": Counted(1, 0), "eff_c": Counted(1, 1), "eff_d": Counted(0, 0)},
    "limits": [Limit(0, 0, 30, 0, 0, 30)],
}


def found(**changed):
    return [kind for kind, _ in broken_promises(**{**RIGHT, **changed})]


def test_ledgers_that_agree_break_nothing():
    assert found() == []


@pytest.mark.parametrize("name, id, value, kind", [
    ("counted", "eff_a", Counted(2, 2), "second write"), ("counted", "eff_b", Counted(2, 0), "second write"),
    ("counted", "eff_x", Counted(1, 1), "unknown write"), ("counted", "eff_a", Counted(1, 0), "false success"),
    ("counted", "eff_b", Counted(1, 1), "false failure"), ("counted", "eff_d", Counted(1, 0), "false failure"),
    ("effects", "eff_c", Effect("eff_c", "open", False), "stuck"),
    ("effects", "eff_c", Effect("eff_c", "succeeded", True, True), "conflict"),
    ("effects", "eff_a", Effect("eff_a", "failed", True), "taken back"),
    ("effects", "eff_b", Effect("eff_b", "succeeded", True), "taken back")])
def test_each_thing_that_is_wrong_is_found(name, id, value, kind):
    assert kind in found(**{name: {**RIGHT[name], id: value}})


def test_a_conflict_that_the_provider_made_is_none_of_ours():
    odd = Effect("eff_c", "succeeded", True, conflict=True, odd=True)
    assert found(effects={**RIGHT["effects"], "eff_c": odd}) == []


def test_what_was_accepted_and_is_gone_is_lost():
    effects = {id: effect for id, effect in RIGHT["effects"].items() if id != "eff_c"}
    assert "lost" in found(effects=effects)


def test_an_operation_with_two_effects_is_found():
    assert "operation" in found(operations={"op_a": {"eff_a", "eff_b"}})


@pytest.mark.parametrize("limit", [Limit(5, 0, 30, 0, 0, 30), Limit(0, 5, 30, 0, 0, 30), Limit(0, 0, 29, 0, 0, 30)])
def test_a_hold_that_is_wrong_is_found(limit):
    assert found(limits=[limit]) == ["hold"]


def test_a_seed_is_a_schedule():
    assert schedule_make(1, 3) == schedule_make(1, 3) != schedule_make(2, 3)
    kinds = [event.kind for event in schedule_make(1, 20)]
    assert kinds.count("kill") >= 500 and sum(kinds.count(k) for k in ("link", "cut_database", "cut_redis", "pause_kafka")) >= 200
