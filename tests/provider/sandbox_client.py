"""Starts the sandbox provider and talks to it, down to single bytes.

HOLDFAST_BIN names the directory with the built dev-sandbox.
"""

import http.client
import json
import os
import signal
import socket
import subprocess
import time
import urllib.parse

FORM = "application/x-www-form-urlencoded"


def free_port():
    """A free port; PROVIDER_TEST_PORT, where it is set, is the first one tried."""
    first = int(os.environ.get("PROVIDER_TEST_PORT", "0"))
    for port in range(first, first + 50):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return probe.getsockname()[1]
            except OSError:
                continue
    raise RuntimeError("no free port")


class SandboxClient:
    """Talks to a sandbox that runs on a port of this machine."""

    def __init__(self, port):
        self.port = port

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def call(self, method, path, body=None, headers=None):
        """One request on a connection of its own: status, headers, body as JSON (or bytes)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        try:
            content = json.loads(content)
        except ValueError:
            pass
        return answer.status, answer.headers, content

    def control(self, method, path, body=None):
        status, _, content = self.call(method, "/_control" + path, body and json.dumps(body))
        assert status in (200, 201), content
        return content

    def fault(self, do, match=None, **members):
        return self.control("POST", "/faults", {"do": do, "match": match or {}, **members})["id"]

    def counts(self, **name):
        return self.control("GET", "/counts?" + urllib.parse.urlencode(name))

    def requests(self, since=0):
        """Every request that is still on record, oldest first."""
        found = []
        while page := self.control("GET", f"/requests?since={since}"):
            found += page["data"]
            if not page["data"] or page["next"] == since:
                return found
            since = page["next"]

    def refund(self, key="key-1", intent="pi_1", amount=500, effect="eff_1", **more):
        body, headers = refund_parts(key, intent, amount, effect, **more)
        return self.call("POST", "/v1/refunds", body, headers)

    def read(self, path):
        return self.call("GET", path, headers={"Authorization": "Bearer sk_test_1"})

    def raw(self, data):
        """Sends bytes; gives what comes back until the end, and whether that is FIN or RST."""
        with self.connect() as stream:
            stream.sendall(data)
            return drain(stream)


class Sandbox(SandboxClient):
    """A sandbox of one's own."""

    def __init__(self, *options):
        super().__init__(free_port())
        program = os.path.join(os.environ["HOLDFAST_BIN"], "dev-sandbox")
        self.process = subprocess.Popen([program, "--listen", f"127.0.0.1:{self.port}", *options])
        for _ in range(500):
            try:
                self.connect().close()
                return
            except ConnectionRefusedError:
                time.sleep(0.01)
        raise RuntimeError("dev-sandbox does not listen")

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(10) == 0


def drain(stream):
    got = b""
    try:
        while chunk := stream.recv(65536):
            got += chunk
    except ConnectionResetError:
        return got, "RST"
    return got, "FIN"


def post_json(sandbox, path, value, method="POST", **headers):
    headers = {"Content-Type": "application/json", **headers}
    return sandbox.call(method, path, json.dumps(value), headers)


def refund_parts(key, intent="pi_1", amount=500, effect="eff_1", **more):
    fields = {"amount": amount, "payment_intent": intent, **more}
    if effect:
        fields["metadata[holdfast_effect]"] = effect
    headers = {"Authorization": "Bearer sk_test_1", "Content-Type": FORM}
    if key:
        headers["Idempotency-Key"] = key
    return urllib.parse.urlencode(fields), headers


def refund_bytes(key="key-1", **parts):
    body, headers = refund_parts(key, **parts)
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"POST /v1/refunds HTTP/1.1\r\nHost: x\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
    return (head + body).encode()


def read_answer(stream):
    """One whole answer off a kept connection: status and body."""
    got = b""
    while b"\r\n\r\n" not in got:
        chunk = stream.recv(65536)
        assert chunk, got
        got += chunk
    head, body = got.split(b"\r\n\r\n", 1)
    lines = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    length = int(lines[0].split(b":")[1])
    while len(body) < length:
        body += stream.recv(65536)
    assert len(body) == length
    return int(head.split(b" ")[1]), body


def wait_for(condition):
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come true within 5 s")
