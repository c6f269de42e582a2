#!/usr/bin/env python3
"""Adds up what the suites of tests/run left in a folder of JUnit files named SUITE.WHAT.xml.

    tally.py RESULTS SUITE...

Prints a line for each suite, then each failure, then `N passed, N failed[, N skipped]`. A named suite
that left no result has not run, and counts as failed. Exits 1 when anything failed.
"""
import pathlib
import sys
import xml.etree.ElementTree as ET

MESSAGE_LINES = 20
MESSAGES = 40  # of each suite; the names of all are printed


class Suite:
    def __init__(self):
        self.passed = 0
        self.failed = []  # (name, message)
        self.skipped = 0

    def add_case(self, case):
        name = "::".join(filter(None, (case.get("classname"), case.get("name"))))
        bad = case.find("failure")
        if bad is None:
            bad = case.find("error")
        if bad is not None:
            self.failed.append((name, (bad.text or bad.get("message") or "").strip()))
        elif case.find("skipped") is not None:
            self.skipped += 1
        else:
            self.passed += 1

    def add_file(self, path):
        try:
            cases = list(ET.parse(path).iter("testcase"))
        except ET.ParseError as broken:
            self.failed.append((path.name, f"its results can't be read: {broken}"))
            return
        for case in cases:
            self.add_case(case)

    def ran(self):
        return bool(self.passed or self.failed or self.skipped)


def suites_read(results, expected):
    suites = {name: Suite() for name in expected}
    for path in sorted(results.glob("*.xml")):
        suites.setdefault(path.name.split(".")[0], Suite()).add_file(path)
    for name in expected:
        if not suites[name].ran():
            suites[name].failed.append(("the suite", "it did not run"))
    return suites


def failures_print(name, suite):
    for number, (test, message) in enumerate(suite.failed):
        print(f"FAILED {name}: {test}")
        if number < MESSAGES:
            print("\n".join(f"  {line}" for line in message.splitlines()[-MESSAGE_LINES:]))


def main():
    if len(sys.argv) < 2 or sys.argv[1] == "--help":
        print(__doc__.strip())
        return 0 if len(sys.argv) > 1 else 2
    suites = suites_read(pathlib.Path(sys.argv[1]), sys.argv[2:])
    print()
    for name, suite in suites.items():
        print(f"{name:16} {suite.passed:5} passed {len(suite.failed):3} failed {suite.skipped:3} skipped")
    for name, suite in suites.items():
        failures_print(name, suite)
    passed = sum(suite.passed for suite in suites.values())
    failed = sum(len(suite.failed) for suite in suites.values())
    skipped = sum(suite.skipped for suite in suites.values())
    print()
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
