"""The sandbox provider: Stripe's refunds, the generic provider, and what is counted."""

import hashlib
import http.client
import socket
import struct
import time

import pytest

from sandbox_client import (Sandbox, drain, post_json, read_answer, refund_bytes, refund_parts,
                            wait_for)

# Stripe's refunds


def test_refund_has_stripes_fields(sandbox):
    status, headers, refund = sandbox.refund(reason="duplicate")
    assert status == 200 and headers["Request-Id"].startswith("req_")
    assert refund["id"].startswith("re_")
    assert (refund["object"], refund["amount"], refund["currency"]) == ("refund", 500, "usd")
    assert (refund["payment_intent"], refund["status"]) == ("pi_1", "succeeded")
    assert (refund["metadata"], refund["reason"]) == ({"holdfast_effect": "eff_1"}, "duplicate")
    assert sandbox.read("/v1/refunds/" + refund["id"])[2] == refund


def test_same_key_and_parameters_replays(sandbox):
    _, headers, first = sandbox.refund()
    assert "Idempotent-Replayed" not in headers
    status, headers, second = sandbox.refund()
    assert (status, headers["Idempotent-Replayed"], second) == (200, "true", first)
    assert sandbox.counts(key="key-1") == {
        "writes": 2, "reads": 0, "partial": 0, "applied": 1, "replayed": 1, "refused": 0}


def test_same_key_in_other_parameter_order_replays(sandbox):
    body, headers = refund_parts("key-1")
    sandbox.call("POST", "/v1/refunds", body, headers)
    turned = "&".join(reversed(body.split("&")))
    assert sandbox.call("POST", "/v1/refunds", turned, headers)[1]["Idempotent-Replayed"] == "true"


def test_same_key_and_other_parameters_is_an_error(sandbox):
    sandbox.refund()
    status, _, content = sandbox.refund(amount=501)
    assert (status, content["error"]["type"]) == (400, "idempotency_error")
    assert sandbox.counts(key="key-1")["refused"] == 1


def test_no_key_or_another_key_makes_another_refund(sandbox):
    ids = {sandbox.refund(key=key)[2]["id"] for key in (None, None, "a", "b")}
    assert len(ids) == 4


def test_key_in_flight_is_409_and_later_replays(sandbox):
    sandbox.fault("delay_ms", ms=400)
    with sandbox.connect() as slow:
        slow.sendall(refund_bytes())
        wait_for(lambda: sandbox.counts(key="key-1")["writes"] == 1)
        status, _, content = sandbox.refund()
        assert (status, content["error"]["code"]) == (409, "idempotency_key_in_use")
        assert read_answer(slow)[0] == 200
    assert sandbox.refund()[1]["Idempotent-Replayed"] == "true"


def test_recorded_500_is_replayed(sandbox):
    sandbox.fault("status", status=500)
    assert sandbox.refund()[0] == 500
    status, headers, _ = sandbox.refund()
    assert (status, headers["Idempotent-Replayed"]) == (500, "true")
    assert sandbox.counts()["totals"]["applied"] == 0


def test_other_faults_record_the_true_answer_or_nothing(sandbox):
    sandbox.fault("status", status=503, apply=True)
    assert sandbox.refund("a")[0] == 503
    assert sandbox.refund("a")[0] == 200 and sandbox.counts(key="a")["applied"] == 1
    sandbox.fault("status", status=429, headers={"Retry-After": "7"})
    status, headers, content = sandbox.refund("b")
    assert (status, headers["Retry-After"], content["error"]["code"]) == (429, "7", "rate_limit")
    status, headers, _ = sandbox.refund("b")
    assert status == 200 and "Idempotent-Replayed" not in headers
    sandbox.fault("drop", record="none")
    with pytest.raises(http.client.RemoteDisconnected):
        sandbox.refund("c")
    assert sandbox.refund("c")[0] == 200 and sandbox.counts(key="c")["applied"] == 2


def test_validation(sandbox):
    def refused(param, **parts):
        status, _, content = sandbox.refund(key=None, **parts)
        assert (status, content["error"]["param"]) == (400, param)

    for amount in ("0", "-1", "1.5", "x", "", "99999999999999999999"):
        refused("amount", amount=amount)
    refused("payment_intent", intent="")
    refused("currency", currency="dollars")
    refused("reason", reason="because")
    refused("colour", colour="red")
    refused("metadata", **{"metadata[k]": "v" * 501})
    assert sandbox.counts()["totals"]["applied"] == 0


def test_authorization(sandbox):
    body, headers = refund_parts("key-1")
    for value in (None, "Bearer sk_live_1", "Basic sk_test_1", "Bearer sk_test_"):
        headers.pop("Authorization", None)
        if value:
            headers["Authorization"] = value
        status, _, content = sandbox.call("POST", "/v1/refunds", body, headers)
        assert status == 401 and "message" in content["error"]
        assert sandbox.call("GET", "/v1/refunds", headers=headers)[0] == 401
    assert sandbox.counts()["totals"]["refused"] == 4


def test_pages_newest_first(sandbox):
    ids = [sandbox.refund(key=None, amount=n + 1)[2]["id"] for n in range(5)]
    sandbox.refund(key=None, intent="pi_2")
    seen, query = [], "payment_intent=pi_1&limit=2"
    while True:
        _, _, page = sandbox.read("/v1/refunds?" + query)
        seen += [refund["id"] for refund in page["data"]]
        if not page["has_more"]:
            break
        query = f"payment_intent=pi_1&limit=2&starting_after={seen[-1]}"
    assert seen == ids[::-1]
    assert len(sandbox.read("/v1/refunds")[2]["data"]) == 6
    assert sandbox.read("/v1/refunds?payment_intent=pi_3")[2]["data"] == []
    assert sandbox.read("/v1/refunds?limit=101")[0] == 400
    status, _, content = sandbox.read("/v1/refunds/re_none")
    assert (status, content["error"]["code"]) == (404, "resource_missing")


def test_intents_by_control(sandbox):
    sandbox.control("POST", "/intents", {"id": "pi_y", "currency": "jpy", "amount": 900})
    assert sandbox.read("/v1/payment_intents/pi_y")[2]["currency"] == "jpy"
    assert sandbox.refund("a", "pi_y", 500)[2]["currency"] == "jpy"
    assert sandbox.refund("b", "pi_y", 500)[2]["error"]["param"] == "amount"
    assert sandbox.refund("e", "pi_y", 1, currency="usd")[2]["error"]["param"] == "currency"
    assert sandbox.refund("c", "pi_y", 400)[0] == 200
    assert sandbox.refund("d", "pi_y", 1)[2]["error"]["code"] == "charge_already_refunded"


def test_refunds_by_control(sandbox):
    _, _, refund = sandbox.refund()
    changed = sandbox.control("POST", "/refunds/" + refund["id"],
                              {"status": "failed", "failure_reason": "lost_or_stolen_card"})
    assert (changed["status"], changed["failure_reason"]) == ("failed", "lost_or_stolen_card")
    assert sandbox.control("POST", "/refunds/" + refund["id"], {"status": None})["status"] is None
    foreign = sandbox.control("POST", "/refunds", {
        "payment_intent": "pi_1", "amount": 7, "metadata": {"holdfast_effect": "eff_1"}})
    page = sandbox.read("/v1/refunds?payment_intent=pi_1")[2]
    assert [item["id"] for item in page["data"]] == [foreign["id"], refund["id"]]
    assert sandbox.counts(effect="eff_1")["writes"] == 1


# The generic provider


def test_generic_objects(sandbox):
    status, _, first = post_json(sandbox, "/generic/orders", {"n": 1, "holdfast_effect": "eff_g"})
    assert status == 200 and first["ok"] is True and first["id"].startswith("obj_")
    _, _, second = post_json(sandbox, "/generic/orders", {"n": 2}, **{"X-Holdfast-Effect": "eff_h"})
    path = "/generic/orders/" + first["id"]
    assert sandbox.call("GET", path)[2] == first
    assert sandbox.call("GET", "/generic/orders?n=2")[2]["data"] == [second]
    assert sandbox.call("GET", "/generic/orders?holdfast_effect=eff_h")[2]["data"] == [second]
    assert [item["n"] for item in sandbox.call("GET", "/generic/orders")[2]["data"]] == [2, 1]
    assert post_json(sandbox, path, {"more": True}, "PATCH")[2] == {**first, "more": True}
    assert post_json(sandbox, path, {"n": 9}, "PUT")[2] == {"id": first["id"], "ok": True, "n": 9}
    assert sandbox.call("DELETE", path)[2]["deleted"] is True
    assert sandbox.call("GET", path)[0] == 404
    assert post_json(sandbox, "/generic/users/7", {"n": 1}, "PUT")[2]["id"] == "7"
    assert sandbox.call("GET", "/generic/users/7")[2]["n"] == 1
    deep = post_json(sandbox, "/generic/users/7/notes", {"text": "x"})[2]
    assert sandbox.call("GET", "/generic/users/7/notes")[2]["data"] == [deep]
    assert sandbox.call("GET", "/generic/users/8/notes")[0] == 404
    assert sandbox.counts(effect="eff_g")["applied"] == 1
    assert sandbox.counts(effect="eff_h")["writes"] == 1


def test_generic_heeds_no_key(sandbox):
    for _ in range(2):
        post_json(sandbox, "/generic/orders", {}, **{"Idempotency-Key": "k"})
    assert sandbox.counts(key="k")["applied"] == 2
    assert sandbox.counts()["totals"]["keysWrittenAgain"] == 1


def test_unknown_path_is_404_and_counted(sandbox):
    assert sandbox.call("POST", "/elsewhere", "x", {"Idempotency-Key": "k"})[0] == 404
    assert sandbox.counts(key="k")["refused"] == 1


# Counting


def test_records_hold_the_bytes(sandbox):
    body, _ = refund_parts("key-1")
    sandbox.refund()
    sandbox.read("/v1/refunds?payment_intent=pi_1")
    write, read = sandbox.requests()
    assert (write["method"], write["target"]) == ("POST", "/v1/refunds")
    assert write["outcome"] == "applied"
    assert (write["key"], write["effect"], write["intent"]) == ("key-1", "eff_1", "pi_1")
    assert write["body"] == body and write["bodyBytes"] == len(body)
    assert write["bodySha256"] == hashlib.sha256(body.encode()).hexdigest()
    assert ["Idempotency-Key", "key-1"] in write["headers"]
    assert write["head"].startswith("POST /v1/refunds HTTP/1.1\r\n")
    assert abs(write["atUs"] / 1e6 - time.time()) < 60
    assert (read["outcome"], read["write"]) == ("read", False)
    assert (read["intent"], read["key"]) == ("pi_1", None)
    assert sandbox.requests(since=write["seq"]) == [read]
    assert read["connection"] != write["connection"]


def test_counts_by_all_names(sandbox):
    refund = sandbox.refund()[2]
    sandbox.read("/v1/refunds/" + refund["id"])
    counts = sandbox.counts()
    assert counts["byKey"]["key-1"]["applied"] == 1
    assert counts["byEffect"]["eff_1"] == counts["byIntent"]["pi_1"]
    assert counts["byEffect"]["eff_1"]["reads"] == 1
    assert counts["totals"]["writes"] == 1 and counts["truncated"] is False
    assert sandbox.counts(effect="eff_none")["writes"] == 0


def test_reset_forgets_all_but_the_numbering(sandbox):
    first = sandbox.refund()[2]
    seq = sandbox.requests()[-1]["seq"]
    sandbox.fault("drop", times=-1)
    sandbox.control("DELETE", "")
    assert sandbox.requests() == [] and sandbox.counts()["totals"]["writes"] == 0
    assert sandbox.refund()[2]["id"] != first["id"]
    assert sandbox.requests()[0]["seq"] > seq


def test_cut_requests_count_as_writes(sandbox):
    whole = refund_bytes("cut")
    for length in range(1, len(whole), 7):
        with sandbox.connect() as stream:
            stream.sendall(whole[:length])
    expected = len(range(1, len(whole), 7))
    wait_for(lambda: sandbox.counts()["totals"]["partial"] == expected)
    totals = sandbox.counts()["totals"]
    assert (totals["writes"], totals["applied"]) == (expected, 0)
    with_key = [record for record in sandbox.requests() if record["key"] == "cut"]
    assert sandbox.counts(key="cut")["partial"] == len(with_key) > 10


def test_cut_request_by_reset_counts(sandbox):
    with sandbox.connect() as stream:
        stream.sendall(refund_bytes("cut")[:-5])
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_for(lambda: sandbox.counts(key="cut")["partial"] == 1)


def test_request_in_single_bytes_and_pipelined(sandbox):
    with sandbox.connect() as stream:
        for byte in refund_bytes("slow"):
            stream.sendall(bytes([byte]))
        assert read_answer(stream)[0] == 200
        stream.sendall(b"".join(refund_bytes(f"pipe-{n}") for n in range(20)))
        stream.shutdown(socket.SHUT_WR)
        got, end = drain(stream)
    assert got.count(b"HTTP/1.1 200 OK") == 20 and end == "FIN"
    assert sandbox.counts()["totals"]["applied"] == 21


def test_chunked_request_and_continue(sandbox):
    body, _ = refund_parts("chunked")
    head = (b"POST /v1/refunds HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sk_test_1\r\n"
            b"Idempotency-Key: chunked\r\nContent-Type: application/x-www-form-urlencoded\r\n")
    with sandbox.connect() as stream:
        stream.sendall(head + b"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert stream.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        stream.sendall(b"5\r\n" + body[:5].encode() + b"\r\n")
        stream.sendall(f"{len(body) - 5:x};x=y\r\n{body[5:]}\r\n0\r\nTrailer: t\r\n\r\n".encode())
        assert read_answer(stream)[0] == 200
    assert sandbox.requests()[0]["body"] == body


@pytest.mark.parametrize("data, status", [
    (b"nonsense\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nX: a\nY: b\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nContent-Length: 1x\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n", 413),
    (b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
    (b"GET / HTTP/1.1\r\nX: " + b"a" * 70000, 431),
])
def test_bad_requests_are_refused(sandbox, data, status):
    got, end = sandbox.raw(data)
    assert got.startswith(f"HTTP/1.1 {status} ".encode()) and end == "FIN"


def test_http_1_0_and_connection_close(sandbox):
    got, _ = sandbox.raw(b"GET /_control HTTP/1.0\r\n\r\n")
    assert b"Connection: close" in got
    got, _ = sandbox.raw(b"GET /_control HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert got.endswith(b'{"ok":true}')
    got, _ = sandbox.raw(b"HEAD /generic/x HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert b"Content-Length: " in got and got.endswith(b"\r\n\r\n")


def test_counters_are_bounded():
    small = Sandbox("--keep", "1000")
    try:
        connection = http.client.HTTPConnection("127.0.0.1", small.port, timeout=10)
        for n in range(1100):
            body, headers = refund_parts(f"k{n}", f"pi_{n}", effect=f"e{n}")
            connection.request("POST", "/v1/refunds", body, headers)
            connection.getresponse().read()
        connection.close()
        counts = small.counts()
        assert counts["totals"]["applied"] == 1100
        assert len(counts["byKey"]) == 1000 and counts["evicted"] == 300
        assert small.counts(key="k0")["writes"] == 0 and small.counts(key="k1099")["writes"] == 1
        assert small.read("/v1/refunds?payment_intent=pi_0")[2]["data"] == []
    finally:
        small.end()
