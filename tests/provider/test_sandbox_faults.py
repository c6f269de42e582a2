"""The sandbox provider's faults: each kind on the wire, and what it did."""

import base64
import http.client
import json
import socket
import struct
import time

import pytest

from sandbox_client import drain, post_json, read_answer, refund_bytes, wait_for


def applied(sandbox, key="key-1"):
    return sandbox.counts(key=key)["applied"]


@pytest.mark.parametrize("status", [201, 204, 302, 304, 400, 404, 408, 409, 422, 500, 502, 503, 504,
                                    599])
@pytest.mark.parametrize("apply", [False, True])
def test_status(sandbox, status, apply):
    sandbox.fault("status", status=status, apply=apply, headers={"Location": "http://127.0.0.1:1/"})
    got, headers, _ = sandbox.refund()
    assert (got, headers["Location"]) == (status, "http://127.0.0.1:1/")
    assert applied(sandbox) == (1 if apply else 0)
    record = sandbox.requests()[0]
    assert (record["status"], record["fault"]) == (status, "status")


def test_status_with_a_body(sandbox):
    sandbox.fault("status", status=400, body="plain", headers={"Content-Type": "text/plain"})
    status, headers, content = sandbox.refund()
    assert (status, headers["Content-Type"], content) == (400, "text/plain", b"plain")
    sandbox.fault("status", status=422, body={"error": 1}, close="fin")
    got, end = sandbox.raw(refund_bytes())
    assert got.endswith(b'{"error":1}') and b"Connection: close" in got and end == "FIN"


def test_1xx_alone(sandbox):
    sandbox.fault("status", status=103, apply=True)
    got, end = sandbox.raw(refund_bytes())
    assert got.startswith(b"HTTP/1.1 103 Early Hints\r\n") and got.count(b"HTTP/1.1") == 1
    assert got.endswith(b"\r\n\r\n") and end == "FIN"
    assert applied(sandbox) == 1


def test_drop_and_reset(sandbox):
    sandbox.fault("drop")
    assert sandbox.raw(refund_bytes("a")) == (b"", "FIN")
    sandbox.fault("reset")
    assert sandbox.raw(refund_bytes("b")) == (b"", "RST")
    sandbox.fault("drop", apply=False)
    assert sandbox.raw(refund_bytes("c")) == (b"", "FIN")
    assert [applied(sandbox, key) for key in "abc"] == [1, 1, 0]
    assert sandbox.counts()["totals"]["writes"] == 3


def test_reset_early(sandbox):
    sandbox.fault("reset_early", {"key": "key-1"})
    whole = refund_bytes()
    with sandbox.connect() as stream:
        stream.sendall(whole[:whole.index(b"\r\n\r\n") + 4])
        assert drain(stream) == (b"", "RST")
    assert sandbox.counts(key="key-1") == {
        "writes": 1, "reads": 0, "partial": 1, "applied": 0, "replayed": 0, "refused": 0}


def test_early_200(sandbox):
    sandbox.fault("early_200")
    whole = refund_bytes()
    with sandbox.connect() as stream:
        stream.sendall(whole[:-10])
        got = stream.recv(65536)
        assert got.startswith(b"HTTP/1.1 200 OK")
        stream.sendall(whole[-10:])
        assert drain(stream) == (b"", "FIN")
    assert sandbox.counts(key="key-1")["partial"] == 1 and applied(sandbox) == 0


def test_early_faults_match_by_head_only(sandbox):
    status, _, content = sandbox.call("POST", "/_control/faults", json.dumps(
        {"do": "reset_early", "match": {"intent": "pi_1"}}))
    assert (status, content["error"]["param"]) == (400, "/match/intent")


def test_hang_until_the_client_goes(sandbox):
    sandbox.fault("hang")
    with sandbox.connect() as stream:
        stream.sendall(refund_bytes())
        wait_for(lambda: applied(sandbox) == 1)
        assert sandbox.refund()[0] == 409
        stream.settimeout(0.2)
        with pytest.raises(TimeoutError):
            stream.recv(1)
    wait_for(lambda: sandbox.refund()[0] == 200)
    assert applied(sandbox) == 1


def test_hang_for_a_time(sandbox):
    sandbox.fault("hang", ms=200)
    start = time.monotonic()
    assert sandbox.raw(refund_bytes()) == (b"", "FIN")
    assert 0.19 < time.monotonic() - start < 5


def test_delay_and_drip(sandbox):
    sandbox.fault("delay_ms", ms=200)
    start = time.monotonic()
    assert sandbox.refund("a")[0] == 200
    assert time.monotonic() - start > 0.19
    sandbox.fault("drip", ms=1)
    start = time.monotonic()
    assert sandbox.refund("b")[2]["object"] == "refund"
    assert time.monotonic() - start > 0.19
    sandbox.fault("status", status=503, delay_ms=200)
    start = time.monotonic()
    assert sandbox.refund("c")[0] == 503
    assert time.monotonic() - start > 0.19


def test_delay_does_not_hold_up_others(sandbox):
    sandbox.fault("delay_ms", {"key": "slow"}, ms=1000)
    with sandbox.connect() as stream:
        stream.sendall(refund_bytes("slow"))
        start = time.monotonic()
        assert sandbox.refund("quick")[0] == 200
        assert time.monotonic() - start < 0.9


def test_garbage_and_raw(sandbox):
    sandbox.fault("garbage")
    got, end = sandbox.raw(refund_bytes("a"))
    assert got and not got.startswith(b"HTTP") and end == "FIN"
    exact = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc\x00"
    sandbox.fault("raw", body_base64=base64.b64encode(exact).decode())
    assert sandbox.raw(refund_bytes("b")) == (exact, "FIN")
    sandbox.fault("raw", body_base64=base64.b64encode(exact).decode(), close="rst", apply=False)
    assert sandbox.raw(refund_bytes("c")) == (exact, "RST")
    assert [applied(sandbox, key) for key in "abc"] == [1, 1, 0]


def test_truncations(sandbox):
    sandbox.fault("truncate_head", bytes=20)
    assert sandbox.raw(refund_bytes("a")) == (b"HTTP/1.1 200 OK\r\nCon", "FIN")
    sandbox.fault("truncate_head")
    got, _ = sandbox.raw(refund_bytes("b"))
    assert got.startswith(b"HTTP/1.1 200") and b"\r\n\r\n" not in got
    sandbox.fault("truncate_body", bytes=7)
    head, body = sandbox.raw(refund_bytes("c"))[0].split(b"\r\n\r\n")
    assert body == b'{"id":"' and b"Content-Length: 3" in head
    sandbox.fault("truncate_body", close="rst")
    got, end = sandbox.raw(refund_bytes("d"))
    assert 50 < len(got.split(b"\r\n\r\n")[1]) < 300 and end == "RST"
    sandbox.fault("truncate_chunk")
    head, body = sandbox.raw(refund_bytes("e"))[0].split(b"\r\n\r\n")
    size, data = body.split(b"\r\n", 1)
    assert b"Transfer-Encoding: chunked" in head and 0 < len(data) < int(size, 16)
    sandbox.fault("truncate_chunk", mode="no_last")
    size, data, rest = sandbox.raw(refund_bytes("f"))[0].split(b"\r\n\r\n")[1].split(b"\r\n")
    assert json.loads(data)["object"] == "refund" and len(data) == int(size, 16) and rest == b""
    assert [applied(sandbox, key) for key in "abcdef"] == [1] * 6


def test_body_raw(sandbox):
    for bad in (b'{"id":"re_\\u0000"}', b'{"id":"\xff"}', b"[" * 5000 + b"]" * 5000):
        sandbox.fault("body_raw", body_base64=base64.b64encode(bad).decode())
        got, _ = sandbox.raw(refund_bytes(None).replace(b"Host: x", b"Connection: close"))
        assert got.startswith(b"HTTP/1.1 200 OK") and got.split(b"\r\n\r\n", 1)[1] == bad
    sandbox.fault("body_raw", body="0123456789", body_repeat=1 << 20)
    _, headers, content = sandbox.refund()
    assert int(headers["Content-Length"]) == 10 << 20
    assert sandbox.counts()["totals"]["applied"] == 4


def test_html(sandbox):
    sandbox.fault("html", times=2)
    status, headers, content = sandbox.refund()
    assert status == 200 and "text/html" in headers["Content-Type"] and b"<html>" in content
    assert b"<html>" in sandbox.read("/v1/refunds")[2]
    assert applied(sandbox) == 0


def stale_connection(sandbox, **members):
    sandbox.fault("stale_keepalive", **members)
    stream = sandbox.connect()
    stream.sendall(refund_bytes("first"))
    status, _ = read_answer(stream)
    assert status == 200
    return stream


@pytest.mark.parametrize("close, end", [("fin", "FIN"), ("rst", "RST")])
@pytest.mark.parametrize("apply", [True, False])
def test_stale_keepalive_after_whole(sandbox, close, end, apply):
    with stale_connection(sandbox, close=close, apply=apply) as stream:
        stream.sendall(refund_bytes("second"))
        assert drain(stream) == (b"", end)
    counts = sandbox.counts(key="second")
    assert (counts["writes"], counts["applied"], counts["partial"]) == (1, int(apply), 0)


def test_stale_keepalive_unread(sandbox):
    with stale_connection(sandbox, mode="unread") as stream:
        stream.sendall(refund_bytes("second"))
        got, _ = drain(stream)
        assert got == b""
    counts = sandbox.counts(key="second")
    assert (counts["writes"], counts["applied"], counts["partial"]) == (1, 0, 1)
    assert sandbox.requests()[-1]["outcome"] == "unread"


def test_stale_keepalive_idle(sandbox):
    with stale_connection(sandbox, mode="idle") as stream:
        assert drain(stream) == (b"", "FIN")
    timeout = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"
    with stale_connection(sandbox, mode="idle", ms=50,
                          body_base64=base64.b64encode(timeout).decode()) as stream:
        assert drain(stream) == (timeout, "FIN")
    with stale_connection(sandbox, mode="idle", ms=60000) as stream:
        stream.sendall(refund_bytes("second"))
        assert read_answer(stream)[0] == 200


def test_double(sandbox):
    sandbox.fault("double")
    first = sandbox.refund()[2]
    page = sandbox.read("/v1/refunds?payment_intent=pi_1")[2]["data"]
    assert page[1] == first and page[0]["metadata"] == first["metadata"]
    counts = sandbox.counts(effect="eff_1")
    assert (counts["writes"], counts["applied"]) == (1, 2)
    assert sandbox.counts()["totals"]["effectsAppliedAgain"] == 1


@pytest.mark.parametrize("value", ["pending", "requires_action", "failed", "canceled", None])
def test_status_field(sandbox, value):
    sandbox.fault("status_field", value=value)
    refund = sandbox.refund()[2]
    assert refund["status"] == value
    assert sandbox.read("/v1/refunds/" + refund["id"])[2]["status"] == value


def test_lag(sandbox):
    sandbox.fault("lag", {"kind": "write"}, reads=3)
    refund = sandbox.refund()[2]
    path = "/v1/refunds?payment_intent=pi_1"
    assert sandbox.read(path)[2]["data"] == []
    assert sandbox.read("/v1/refunds/" + refund["id"])[0] == 404
    assert sandbox.read(path)[2]["data"] == []
    assert sandbox.read(path)[2]["data"] == [refund]
    sandbox.fault("lag", {"kind": "read"}, times=2)
    assert sandbox.read(path)[2]["data"] == []
    assert sandbox.read("/v1/refunds/" + refund["id"])[0] == 404
    assert sandbox.read(path)[2]["data"] == [refund]


def test_wrong_amount_and_currency(sandbox):
    sandbox.fault("wrong_amount")
    assert sandbox.refund("a")[2]["amount"] == 501
    sandbox.fault("wrong_amount", amount=3)
    assert sandbox.refund("b")[2]["amount"] == 3
    sandbox.fault("wrong_currency")
    assert sandbox.refund("c")[2]["currency"] == "eur"
    sandbox.fault("wrong_currency", value="jpy")
    assert sandbox.refund("d")[2]["currency"] == "jpy"


def test_read_faults(sandbox):
    refund = sandbox.refund()[2]
    match = {"method": "GET", "path_prefix": "/v1/refunds", "intent": "pi_1"}
    path = "/v1/refunds?payment_intent=pi_1"
    for status in (401, 404, 500):
        sandbox.fault("status", match, status=status)
        assert sandbox.read(path)[0] == status
    sandbox.fault("status", match, status=429, headers={"Retry-After": "3"})
    assert sandbox.read(path)[1]["Retry-After"] == "3"
    sandbox.fault("empty_list", match)
    assert sandbox.read(path)[2] == {"object": "list", "data": [], "has_more": False}
    sandbox.fault("drop", match)
    with pytest.raises(http.client.RemoteDisconnected):
        sandbox.read("/v1/refunds/" + refund["id"])
    assert sandbox.read(path)[2]["data"] == [refund]
    assert sandbox.counts(intent="pi_1")["reads"] == 7


def test_generic_faults(sandbox):
    sandbox.fault("drop", {"path_prefix": "/generic/", "effect": "eff_2"})
    assert post_json(sandbox, "/generic/orders", {"holdfast_effect": "eff_1"})[0] == 200
    with pytest.raises(http.client.RemoteDisconnected):
        post_json(sandbox, "/generic/orders", {"holdfast_effect": "eff_2"})
    assert len(sandbox.call("GET", "/generic/orders?holdfast_effect=eff_2")[2]["data"]) == 1
    sandbox.fault("status_field", value="pending")
    assert post_json(sandbox, "/generic/orders", {})[2]["status"] == "pending"
    sandbox.fault("lag", reads=1)
    hidden = post_json(sandbox, "/generic/orders", {})[2]
    assert sandbox.call("GET", "/generic/orders/" + hidden["id"])[0] == 404
    assert sandbox.call("GET", "/generic/orders/" + hidden["id"])[2] == hidden


def test_rules_match_skip_and_end(sandbox):
    rule = sandbox.fault("status", {"key": "x"}, status=503, skip=1, times=2)
    assert [sandbox.refund("x", effect=None)[0] for _ in range(5)] == [200, 503, 503, 200, 200]
    listed = sandbox.control("GET", "/faults")["data"]
    assert [(item["id"], item["used"], item["timesLeft"]) for item in listed] == [(rule, 2, 0)]
    forever = sandbox.fault("status", {"method": "POST"}, status=503, times=-1)
    assert [sandbox.refund()[0] for _ in range(5)] == [503] * 5
    assert sandbox.read("/v1/refunds")[0] == 200
    sandbox.control("DELETE", f"/faults/{forever}")
    assert sandbox.refund()[0] == 200
    sandbox.fault("drop", times=-1)
    sandbox.control("DELETE", "/faults")
    assert sandbox.refund()[0] == 200


@pytest.mark.parametrize("rule", [
    {}, {"do": "dance"}, {"do": "drop", "tiems": 2}, {"do": "drop", "match": {"metod": "GET"}},
    {"do": "drop", "match": []}, {"do": "status"}, {"do": "status", "status": 99},
    {"do": "raw"}, {"do": "raw", "body_base64": "?"}, {"do": "status_field"},
    {"do": "drop", "times": "2"},
    {"do": "early_200", "apply": True}, {"do": "drop", "close": "gently"},
    {"do": "status", "status": 200, "headers": {"X": 1}},
    {"do": "body_raw", "body": "0123456789", "body_repeat": 9999999},
])
def test_bad_rules_are_refused(sandbox, rule):
    status, _, content = sandbox.call("POST", "/_control/faults", json.dumps(rule))
    assert status == 400 and content["error"]["message"]
    assert sandbox.control("GET", "/faults")["data"] == []


def test_bad_control_calls_are_refused(sandbox):
    for method, path, body in (("GET", "/nowhere", None), ("POST", "/refunds/re_none", "{}"),
                               ("DELETE", "/faults/99", None)):
        assert sandbox.call(method, "/_control" + path, body)[0] == 404
    for path, body in (("/faults", "["), ("/intents", "{}"),
                       ("/intents", '{"id":"a","currency":"USD"}'),
                       ("/refunds", '{"payment_intent":"pi_1"}')):
        assert sandbox.call("POST", "/_control" + path, body)[0] == 400


# Payment intents that misbehave by their name


def test_magic_intents(sandbox):
    assert sandbox.raw(refund_bytes("a", intent="pi_drop_1")) == (b"", "FIN")
    assert sandbox.refund("a", "pi_drop_1")[1]["Idempotent-Replayed"] == "true"
    assert sandbox.refund("b", "pi_drop_1")[0] == 200
    for _ in range(2):
        assert sandbox.refund("c", "pi_500_1")[0] == 500
        assert sandbox.refund("d", "pi_402_1")[2]["error"]["type"] == "card_error"
    assert sandbox.refund("e", "pi_pending_1")[2]["status"] == "pending"
    start = time.monotonic()
    assert sandbox.refund("f", "pi_slow_1")[0] == 200
    assert time.monotonic() - start > 0.19
    with sandbox.connect() as stream:
        stream.sendall(refund_bytes("g", intent="pi_hang_1"))
        wait_for(lambda: applied(sandbox, "g") == 1)
    assert [applied(sandbox, key) for key in "abcdefg"] == [1, 1, 0, 0, 1, 1, 1]
    assert sandbox.counts(key="d")["replayed"] == 1


# Clients that leave


def test_clients_that_leave_at_any_moment(sandbox):
    faults = ("hang", "delay_ms", "drip", "body_raw", "stale_keepalive", "truncate_body", "drop")
    for number, do in enumerate(faults * 6):
        more = {"ms": 30} if do in ("delay_ms", "drip", "stale_keepalive") else {}
        if do == "body_raw":
            more = {"body": "0123456789", "body_repeat": 1 << 20}
        sandbox.fault(do, **more)
        stream = sandbox.connect()
        stream.sendall(refund_bytes(f"leave-{number}") * 2)
        if number % 3 == 1:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if number % 3 == 2:
            stream.shutdown(socket.SHUT_WR)
            time.sleep(0.01)
        stream.close()
        sandbox.control("DELETE", "/faults")
    assert sandbox.refund("after")[0] == 200


def test_many_connections_at_once(sandbox):
    streams = [sandbox.connect() for _ in range(300)]
    for number, stream in enumerate(streams):
        stream.sendall(refund_bytes(f"many-{number}"))
    for stream in streams:
        assert read_answer(stream)[0] == 200
        stream.close()
    assert sandbox.counts()["totals"]["applied"] == 300
