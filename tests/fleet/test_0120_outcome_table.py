"""Every row of the outcome table: what comes back from the provider, and what is said of it.

Each row has an action, a limit and a key of its own; many run at once. No action here declares a
read-back, so what the dispatcher concluded stays to be looked at.
"""

import base64
import socket
import threading

import pytest

from harness import unique
from sandbox_client import free_port
from scene import NEVER_LEFT, REFUSED, UNKNOWN, Scene, Stories

AMOUNT = 700
LARGE = "x" * 900_000

rows = Stories()


class Row:
    """One invocation of an action of its own, and everything that is known about it afterwards."""

    def __init__(self, scene, label, do=None, url=None, text="x", **fault):
        key = unique("row")
        action = scene.action(
            name=unique("row"), method="POST",
            urlTemplate=url or scene.fleet.env["SANDBOX_URL"] + "/generic/rows",
            headers={"Idempotency-Key": key, "X-Holdfast-Effect": "{{effect.id}}"},
            bodyTemplate={"text": "{{input.text}}"},
            impact={"dimension": "money", "unit": "usd", "amount": str(AMOUNT), "bound": "exact"})
        limit = scene.limit(action)
        if do:
            scene.sandbox.fault(do, {"key": key}, times=-1, **fault)
        answer = scene.agent.invoke(action, {"text": text})
        assert answer.status in (200, 202), (label, answer)
        self.effect = scene.effect_when(answer.data["effectId"],
                                        lambda e: e["stage"] in ("reconciling", "settled"))
        self.invocation = scene.agent.invocation(answer.data["id"])
        self.usage = scene.usage(limit)
        self.counts = scene.sandbox.counts(key=key)
        self.requests = [r for r in scene.sandbox.requests() if r["key"] == key]

    @property
    def verdict(self):
        return (self.invocation["status"], self.effect["outcome"], self.effect["stage"],
                self.effect["grade"], self.invocation["grade"])


def row(label, *arguments, **members):
    rows.functions[label] = lambda scene: Row(scene, label, *arguments, **members)
    return label


def b64(data):
    return base64.b64encode(data).decode()


SUCCEEDED = [
    row("200"),
    row("201", "status", status=201, apply=True),
    row("204", "status", status=204, apply=True),
    row("200 after 0.3 s", "delay_ms", ms=300),
    row("200, closed after it", "body_raw", body_base64=b64(b"{}"), close="fin"),
    row("103, then 200", "raw",
        body_base64=b64(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")),
]

REFUSING = [400, 401, 402, 403, 404, 410, 413, 422, 429]
for status in REFUSING:
    row(str(status), "status", status=status, headers={"Retry-After": "0"})

UNSURE = [300, 301, 302, 303, 304, 307, 308, 408, 409, 500, 501, 502, 503, 504]
for status in UNSURE:
    row(str(status), "status", status=status,
        headers={"Location": "http://127.0.0.1:1/elsewhere", "Retry-After": "0"})

LOST = [
    row("time-out", "hang"),
    row("slower than the time-out", "delay_ms", ms=5000),
    row("dripping past the time-out", "drip", ms=400),
    row("FIN after the write", "drop"),
    row("reset after the write", "reset"),
    row("FIN after the write, not applied", "drop", apply=False),
    row("garbage", "garbage"),
    row("head cut off", "truncate_head"),
    row("status line cut off", "truncate_head", bytes=13),
    row("head without its end", "raw", body_base64=b64(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n")),
    row("body cut off", "truncate_body"),
    row("no byte of the body", "truncate_body", bytes=0),
    row("chunk cut off", "truncate_chunk", bytes=3),
    row("last chunk missing", "truncate_chunk", mode="no_last"),
    row("1xx only", "status", status=103, apply=True),
    row("two lengths", "raw", body_base64=b64(
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 4\r\n\r\n{}{}")),
    row("reset before the request was read", "reset_early", text=LARGE),
]

NEVER = [
    row("connect refused", url=f"http://127.0.0.1:{free_port()}/generic/rows"),
    row("no such name", url="https://nowhere.invalid/generic/rows"),
    row("an address that may not be reached", url="https://localhost/generic/rows"),
]


@pytest.fixture(scope="module")
def told(fleet):
    futures = rows.run(Scene(fleet), at_once=16)
    fleet.sandbox.control("DELETE", "/faults")
    return futures


@pytest.mark.parametrize("label", SUCCEEDED)
def test_a_2xx_succeeds(told, label):
    row = told[label].result()
    assert row.verdict == ("succeeded", "succeeded", "settled", "acknowledged", "acknowledged")
    assert row.effect["verification"] == "unverified"
    assert row.invocation["error"] is None
    assert row.invocation["responseStatus"] in (200, 201, 204)
    assert row.usage == (AMOUNT, 0, 0)
    assert row.counts["writes"] == 1


@pytest.mark.parametrize("status", REFUSING)
def test_a_4xx_fails(told, status):
    row = told[str(status)].result()
    assert row.verdict == ("failed", "failed", "settled", "failed", "failed")
    assert row.invocation["responseStatus"] == status
    assert row.invocation["error"] == REFUSED.format(row.effect["id"], status)
    assert row.usage == (0, 0, 0)
    assert [r["state"] for r in row.effect["reservations"]] == ["released"]
    assert row.counts["writes"] == 1


def check_unknown(row):
    assert row.verdict == ("unknown", "unknown", "reconciling", "unknown", "unknown")
    assert row.effect["unresolvedExposure"] is True
    assert row.invocation["error"] == UNKNOWN.format(row.effect["id"])
    assert row.usage == (0, AMOUNT, AMOUNT)
    assert [(r["amount"], r["state"]) for r in row.effect["reservations"]] == [(AMOUNT, "held")]
    attempt, = row.effect["attempts"]
    assert (attempt["kind"], attempt["result"]) == ("dispatch", "unknown")
    assert attempt["sentAt"] and attempt["finishedAt"] and attempt["evidence"]
    assert row.counts["writes"] == 1


@pytest.mark.parametrize("status", UNSURE)
def test_other_answers_leave_it_unknown(told, status):
    row = told[str(status)].result()
    check_unknown(row)
    assert row.invocation["responseStatus"] == status
    assert [r["target"] for r in row.requests] == ["/generic/rows"]  # no redirect is followed


@pytest.mark.parametrize("label", LOST)
def test_no_whole_answer_leaves_it_unknown(told, label):
    check_unknown(told[label].result())


@pytest.mark.parametrize("label", NEVER)
def test_what_never_left_has_failed(told, label):
    row = told[label].result()
    assert row.verdict == ("failed", "failed", "settled", "failed", "failed")
    assert row.invocation["error"] == NEVER_LEFT.format(row.effect["id"])
    assert row.invocation["responseStatus"] is None
    assert row.effect["attempts"][0]["sentAt"] is None
    assert row.usage == (0, 0, 0)
    assert row.counts["writes"] == 0


class EarlyServer:
    """Answers 200 once it has a request's head, and only then reads on. Its segments and its window
    are small, so that no kernel takes the whole of a large request from the sender meanwhile."""

    def __init__(self):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.listen()
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}/early"
        self.accepted = 0
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.accepted += 1
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(1024)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            with connection:
                while connection.recv(65536):
                    pass


def test_200_before_the_request_was_read_leaves_it_unknown(fleet):
    server = EarlyServer()
    try:
        early = Row(Scene(fleet), "early", url=server.url, text=LARGE)
        assert early.verdict == ("unknown", "unknown", "reconciling", "unknown", "unknown")
        assert early.usage == (0, AMOUNT, AMOUNT)
        assert early.effect["attempts"][0]["evidence"] == (
            "HTTP 200 came before the whole request had been sent.")
        assert server.accepted == 1
    finally:
        server.socket.close()


def test_nothing_was_sent_twice(fleet, told):
    for label, future in told.items():
        effect = future.result().effect["id"]
        assert fleet.sandbox.counts(effect=effect)["writes"] == future.result().counts["writes"], label
