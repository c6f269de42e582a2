"""The same refund against localstripe, which others wrote and which ignores Idempotency-Key.

A second request would make a second refund, so what it holds afterwards says how often we sent.
"""

import base64
import http.client
import http.server
import json
import subprocess
import sys
import threading
import urllib.parse

import pytest

from harness import unique, wait_until
from sandbox_client import free_port
from scene import NOT_FOUND, Scene, kinds, texts

# As its own command starts it, but on loopback only.
LAUNCH = """
import sys
from aiohttp import web
from localstripe.server import app
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)
"""


class Localstripe:
    def __init__(self):
        self.port = free_port()
        self.process = subprocess.Popen([sys.executable, "-c", LAUNCH, str(self.port)],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(self.answers, 30, what="localstripe")

    def answers(self):
        assert self.process.poll() is None
        try:
            return bool(self.call("GET", "/v1/refunds"))
        except ConnectionRefusedError:
            return False

    def call(self, method, path, **fields):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        user = base64.b64encode(b"sk_test_12345:").decode()
        try:
            connection.request(method, path, urllib.parse.urlencode(fields) or None, {
                "Authorization": f"Basic {user}",
                "Content-Type": "application/x-www-form-urlencoded"})
            answer = connection.getresponse()
            content = answer.read()
            assert answer.status == 200, content
            return json.loads(content)
        finally:
            connection.close()

    def paid_intent(self, amount=50000):
        card = self.call("POST", "/v1/payment_methods", type="card", **{
            "card[number]": "4242424242424242", "card[exp_month]": 12, "card[exp_year]": 2040,
            "card[cvc]": 123})
        return self.call("POST", "/v1/payment_intents", amount=amount, currency="usd", confirm="true",
                         payment_method=card["id"])["id"]

    def refunds(self, intent):
        return self.call("GET", f"/v1/refunds?payment_intent={intent}&limit=100")["data"]

    def end(self):
        self.process.terminate()
        self.process.wait(10)


class Forwarder(http.server.BaseHTTPRequestHandler):
    """Hands a request on to localstripe; of a write, when told so, it loses the answer."""

    protocol_version = "HTTP/1.1"

    def forward(self):
        size = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(size) if size else None
        connection = http.client.HTTPConnection("127.0.0.1", self.server.target, timeout=10)
        connection.request(self.command, self.path, body, dict(self.headers))
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        self.server.seen.append((self.command, answer.status))
        if self.command == "POST" and self.server.lose:
            self.close_connection = True
            return
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.headers["Content-Type"])
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = forward

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def localstripe():
    stripe = Localstripe()
    yield stripe
    stripe.end()


@pytest.fixture
def proxy(localstripe):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Forwarder)
    server.target, server.lose, server.seen = localstripe.port, False, []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def refunds(fleet, proxy):
    """A scene with a refund action behind the proxy, and its limit."""
    scene = Scene(fleet)
    action = scene.refund_action(base=f"http://127.0.0.1:{proxy.server_address[1]}")
    return scene, action, scene.limit(action)


def test_a_refund_is_confirmed(localstripe, refunds):
    scene, action, limit = refunds
    intent = localstripe.paid_intent()
    made = scene.refund(action, intent)
    assert (made["status"], made["grade"]) == ("succeeded", "acknowledged")
    effect = scene.effect_when(made["effectId"], lambda e: e["grade"] == "confirmed")
    assert kinds(effect) == ["dispatch", "reconcile"]
    held = localstripe.refunds(intent)
    assert [(r["id"], r["amount"]) for r in held] == [(effect["provider"]["objectId"], 12000)]
    assert held[0]["metadata"] == {"holdfast_effect": effect["id"]}
    assert scene.usage(limit) == (12000, 0, 0)


def test_a_lost_answer_is_read_back_and_sent_once(localstripe, proxy, refunds):
    scene, action, limit = refunds
    intent = localstripe.paid_intent()
    proxy.lose = True
    made = scene.refund(action, intent)
    assert (made["status"], made["grade"]) == ("unknown", "unknown")
    assert scene.usage(limit) == (0, 12000, 12000)
    effect = scene.settled(made["effectId"])
    assert (effect["grade"], effect["verification"]) == ("confirmed", "provider")
    assert kinds(effect) == ["dispatch", "reconcile"]
    assert [r["id"] for r in localstripe.refunds(intent)] == [effect["provider"]["objectId"]]
    assert proxy.seen == [("POST", 200), ("GET", 200)]
    assert scene.usage(limit) == (12000, 0, 0)


def test_the_same_key_again_sends_nothing(localstripe, refunds):
    scene, action, _ = refunds
    intent = localstripe.paid_intent()
    key = unique("key")
    first = scene.refund(action, intent, key=key)
    again = scene.refund(action, intent, key=key)
    assert (again["id"], again["effectId"]) == (first["id"], first["effectId"])
    assert len(localstripe.refunds(intent)) == 1


def test_an_unknown_payment_is_refused(localstripe, refunds):
    scene, action, limit = refunds
    made = scene.refund(action, unique("pi"))
    assert (made["status"], made["grade"], made["responseStatus"]) == ("failed", "failed", 404)
    assert made["error"] == (f"The provider refused effect {made['effectId']} with HTTP 404. "
                             "Fix the cause before sending it again.")
    assert scene.usage(limit) == (0, 0, 0)


def test_a_list_that_is_404_is_nothing_found(proxy, refunds):
    """Where Stripe has an empty list, localstripe answers 404: that does not prove anything either."""
    scene, action, limit = refunds
    proxy.lose = True
    made = scene.refund(action, unique("pi"))
    assert made["status"] == "unknown"
    effect = scene.effect_when(made["effectId"], lambda e: texts(e, "reconcile"))
    assert texts(effect, "reconcile")[0] == NOT_FOUND
    assert (effect["stage"], effect["outcome"]) == ("reconciling", "unknown")
    assert scene.usage(limit) == (0, 12000, 12000)
    assert proxy.seen[:2] == [("POST", 404), ("GET", 404)]
