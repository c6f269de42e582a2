"""Answers that are hard to keep: the write happened once, the worker lives, the next one is served."""

import base64
import json

import pytest

from harness import process_gone, unique
from scene import Scene, Stories

MIB = 1 << 20
DEEP = b'{"a":' * 5000 + b"1" + b"}" * 5000

ANSWERS = {
    "an escaped NUL": dict(body_base64=base64.b64encode(b'{"id":"a\\u0000b"}').decode()),
    "a NUL": dict(body_base64=base64.b64encode(b'{"id":"a\0b"}').decode()),
    "the byte FF": dict(body_base64=base64.b64encode(b'{"id":"\xff"}').decode()),
    "nothing but FF": dict(body_base64=base64.b64encode(b"\xff" * 2000).decode()),
    "half a surrogate pair": dict(body_base64=base64.b64encode(b'{"id":"\\ud800"}').decode()),
    "5,000 levels": dict(body_base64=base64.b64encode(DEEP).decode()),
    "5,000 lists": dict(body_base64=base64.b64encode(b"[" * 5000 + b"]" * 5000).decode()),
    "100 KB": dict(body_base64=base64.b64encode(b"x" * 100_000).decode()),
    "10 MB": dict(body_base64=base64.b64encode(b"x" * MIB).decode(), body_repeat=10),
    "10 MB of quotes": dict(body_base64=base64.b64encode(b'"' * MIB).decode(), body_repeat=10),
    "10 MB of NUL": dict(body_base64=base64.b64encode(bytes(MIB)).decode(), body_repeat=10),
    "a large list": dict(body_base64=base64.b64encode(b"[" + b"1," * 200_000 + b"1]").decode()),
    "nothing": dict(body_base64=""),
    "a number of 400 digits": dict(body_base64=base64.b64encode(b"9" * 400).decode()),
    "a number past every real": dict(body_base64=base64.b64encode(b'{"n":1e999}').decode()),
    "a member twice": dict(body_base64=base64.b64encode(b'{"id":"a","id":"b"}').decode()),
    "a byte order mark": dict(body_base64=base64.b64encode(b'\xef\xbb\xbf{"id":"a"}').decode()),
    "an id of 900 KB": dict(body_base64=base64.b64encode(
        json.dumps({"id": "i" * 900_000, "object": "refund", "status": "succeeded"}).encode()).decode()),
    "a string": dict(body_base64=base64.b64encode(b'"ok"').decode()),
    "HTML": dict(body_base64=base64.b64encode(b"<html>ok</html>").decode(),
                 headers={"Content-Type": "text/html"}),
}


LARGE = [what for what in ANSWERS if "MB" in what or "KB" in what] + ["a large list"]

stories, large = Stories(), Stories()  # the large ones go alone: they slow the others


def of_a_declared_action(scene, what):
    """Whatever is answered, a whole 2xx is success."""
    action = scene.action(
        urlTemplate=scene.fleet.env["SANDBOX_URL"] + "/generic/answers", bodyTemplate={"a": 1},
        headers={"Idempotency-Key": "{{input.key}}", "X-Holdfast-Effect": "{{effect.id}}"},
        impact={"dimension": "money", "unit": "usd", "amount": "1", "bound": "exact"})
    limit = scene.limit(action)
    key = unique("answer")
    scene.sandbox.fault("body_raw", {"key": key}, **ANSWERS[what])
    made = scene.agent.invoke(action, {"key": key})
    assert made.status == 200, made
    assert len(made.body) < 8 * 65536  # however much came, an agent is shown 64 KiB of it
    assert scene.sandbox.counts(key=key)["writes"] == 1
    if "10 MB" in what and made.data["status"] == "unknown":  # slower than the time-out
        assert scene.usage(limit) == (0, 1, 1)
        return
    assert (made.data["status"], made.data["grade"]) == ("succeeded", "acknowledged")
    assert made.data["responseStatus"] == 200 and "response" in made.data
    assert made.data.get("responseTruncated", False) == (what in LARGE)
    assert scene.effect(made.data["effectId"])["stage"] == "settled"
    assert scene.agent.invoke(action, {"key": unique("next")}).data["status"] == "succeeded"
    assert scene.usage(limit) == (2, 0, 0)


def of_a_refund(scene, what):
    """A 2xx that is no refund is a success; the read-back that follows finds what was made."""
    action = scene.refund_action()
    intent = unique("pi")
    scene.sandbox.fault("body_raw", {"intent": intent, "kind": "write"}, **ANSWERS[what])
    made = scene.refund(action, intent, 100)
    assert made["status"] == "succeeded" or "10 MB" in what, made
    assert scene.refund(action, unique("pi"), 100)["status"] == "succeeded"
    effect = scene.effect_when(made["effectId"], lambda e: e["grade"] == "confirmed")
    assert effect["provider"]["objectId"].startswith("re_")
    counts = scene.sandbox.counts(intent=intent)
    assert (counts["writes"], counts["applied"]) == (1, 1)


def of_a_read_back(scene, what):
    """Such a record is none: the effect stays unknown until a sound one is read."""
    intent = unique("pi")
    scene.sandbox.fault("body_raw", {"intent": intent, "kind": "read"}, **ANSWERS[what])
    made = scene.refund(scene.lossy_refund_action(), intent, 100)
    assert made["status"] == "unknown"
    effect = scene.settled(made["effectId"])
    assert (effect["grade"], len(effect["attempts"])) == ("confirmed", 3)


def tell(part, what):
    into = large if what in LARGE else stories
    into.functions[part.__name__, what] = lambda scene: part(scene, what)


for name in ANSWERS:
    for part in (of_a_declared_action, of_a_refund, of_a_read_back):
        tell(part, name)


@pytest.fixture(scope="module")
def told(fleet):
    workers = [fleet.pid(name) for part in ("ingest", "dispatcher", "reconciler", "scheduler")
               for name in fleet.names(part)]
    scene = Scene(fleet)
    futures = {**stories.run(scene, at_once=8), **large.run(scene, at_once=1)}
    assert not [pid for pid in workers if process_gone(pid)]
    return futures


@pytest.mark.parametrize("part, what", [*stories.functions, *large.functions])
def test_an_answer(told, part, what):
    told[part, what].result()


def test_truncation_is_said(fleet):
    scene = Scene(fleet)
    action = scene.action(urlTemplate=fleet.env["SANDBOX_URL"] + "/generic/answers", bodyTemplate={},
                          headers={"Idempotency-Key": "{{input.key}}"})
    key = unique("answer")
    scene.sandbox.fault("body_raw", {"key": key}, **ANSWERS["100 KB"])
    made = scene.agent.invoke(action, {"key": key}).data
    assert made["responseTruncated"] is True
    assert made["response"] == "x" * 65536
