"""The decorator of docs/examples/claims.py does what docs/claims.md says."""

import concurrent.futures
import importlib.util
import pathlib

import pytest

from governed import Governed
from harness import unique

EXAMPLE = pathlib.Path(__file__).parents[2] / "docs" / "examples" / "claims.py"


@pytest.fixture(scope="module")
def scene(fleet):
    return Governed(fleet)


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("claims_example", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def worker(scene, example, action, perform):
    claims = example.Claims(scene.fleet.url, scene.agent.key)

    @claims.once(action, operation="post:{invoice}")
    def post(invoice, amount):
        return perform(invoice, amount)

    return post


def test_ten_workers_and_it_runs_once(scene, example):
    action, done, invoice = scene.action(adapter={"type": "external"}), [], unique("in")
    workers = [worker(scene, example, action, lambda i, a: done.append((i, a)) or {"ok": True}) for _ in range(10)]

    def run(post):
        try:
            return post(invoice=invoice, amount=5)
        except example.Refused as refused:
            return refused.code

    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        results = list(pool.map(run, workers))
    assert done == [(invoice, 5)]
    assert results.count({"ok": True}) == 1 and results.count("DUPLICATE_EFFECT") == 9


def test_what_raises_is_unknown_and_what_says_failed_is(scene, example):
    action = scene.action(adapter={"type": "external"})

    def broken(invoice, amount):
        raise OSError("the connection broke")

    def failed(invoice, amount):
        raise example.Failed("the ledger is closed")

    with pytest.raises(OSError):
        worker(scene, example, action, broken)(invoice="a", amount=1)
    with pytest.raises(example.Refused) as ambiguous:
        worker(scene, example, action, lambda i, a: None)(invoice="a", amount=1)
    assert ambiguous.value.code == "AMBIGUOUS_EFFECT"
    with pytest.raises(example.Failed):
        worker(scene, example, action, failed)(invoice="b", amount=1)
    with pytest.raises(example.Refused) as duplicate:
        worker(scene, example, action, lambda i, a: None)(invoice="b", amount=1)
    assert duplicate.value.code == "DUPLICATE_EFFECT" and duplicate.value.details["outcome"] == "failed"
