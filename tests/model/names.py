#!/usr/bin/env python3
"""Holds the names and the state table of the model against the code: common/effect.h, effect.c, transition.c."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = (ROOT / "tests/model/effect.pml").read_text()
HEADER = (ROOT / "common/effect.h").read_text()
WORDS = (ROOT / "common/effect.c").read_text()
TABLE = (ROOT / "common/transition.c").read_text()

# Of approvals, and of claims by workers outside, which the model leaves out. (A worker's report is to the protocol what
# the end of a dispatch is, except that its word for a failure is taken only while its lease lasts.)
NOT_MODELLED = {"STAGE_AWAITING_APPROVAL", "REASON_DENIED", "REASON_WORKER_REPORT"}


def uncommented(text):
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def enum_of(name):
    body = re.search(r"enum %s \{(.*?)\}" % name, uncommented(HEADER), re.S).group(1)
    return [word for word in re.findall(r"\w+", body) if not word.endswith("_COUNT")]


def words_of(array):
    return re.findall(r'"(\w*)"', re.search(r"%s\[\w+\] = \{(.*?)\}" % array, WORDS, re.S).group(1))


def model_of(name):
    return re.findall(r"\w+", re.search(r"mtype:%s = \{(.*?)\}" % name, uncommented(MODEL), re.S).group(1))


def names_differ():
    for name, array in (("stage", "stage_names"), ("outcome", "outcome_names"), ("settle_reason", "reason_names"),
                        ("mover", None)):
        code = enum_of(name)
        model = model_of("reason" if name == "settle_reason" else name)
        if set(model) != set(code) - NOT_MODELLED:
            yield f"enum {name}: the model has {sorted(model)}, the code {sorted(code)}"
        if array:
            prefix = code[0].split("_")[0] + "_"
            words = [word.upper() or "NONE" for word in words_of(array)]
            if words != [constant.removeprefix(prefix) for constant in code]:
                yield f"{array} in effect.c: {words}"


def moves_of_code():
    rows = re.findall(r"\{(STAGE_\w+), (STAGE_\w+),\s*(.*?)\},", TABLE, re.S)
    return {(start, end, mover) for start, end, movers in rows for mover in re.findall(r"MOVER_\w+", movers)
            if start not in NOT_MODELLED}


def moves_of_model():
    return set(re.findall(r"from == (\w+) && to == (\w+) && mover == (\w+)", MODEL))


def moves_differ():
    for move in sorted(moves_of_code() ^ moves_of_model()):
        yield "%s to %s by %s: only in the %s" % (*move, "code" if move in moves_of_code() else "model")


def main():
    wrong = [*names_differ(), *moves_differ()]
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
