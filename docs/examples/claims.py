"""Asks Holdfast for the right to perform an effect before performing it, and says how it ended.

    claims = Claims("http://127.0.0.1:8080", key)

    @claims.once("ledger.post", operation="post:{invoice}")
    def post(invoice, amount):
        return ledger.post(invoice, amount)

    post(invoice="in_17", amount=1200)

The function runs at most once an operation, whichever worker calls it, however often. What it returns (JSON) is kept
with the effect. Let it raise Failed only where it is certain that nothing happened; any other exception leaves the
effect unknown, since it may have happened, and nobody performs it again.
"""

import functools
import json
import time
import urllib.error
import urllib.request
import uuid


class Refused(Exception):
    """The effect may not be performed; `code` and the message say why."""

    def __init__(self, code, message, details):
        super().__init__(message)
        self.code, self.details = code, details


class Failed(Exception):
    """Raised by a function that is certain that nothing happened."""


class Claims:
    def __init__(self, url, key, lease_seconds=60, tries=5):
        self.url, self.key, self.lease_seconds, self.tries = url, key, lease_seconds, tries
        self.holder = uuid.uuid4().hex  # of this process: it alone may hear of its own grant again

    def call(self, path, body):
        """One request, sent again with the same key where nothing came back. Only what Holdfast says is believed."""
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json",
                   "Idempotency-Key": uuid.uuid4().hex}
        for attempt in range(self.tries):
            request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers, method="POST")
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return answer.status, json.load(answer)["data"]
            except urllib.error.HTTPError as answer:
                if answer.code < 500 and answer.code != 429:
                    error = json.load(answer)["error"]
                    raise Refused(error["code"], error["message"], error["details"]) from None
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                pass
            time.sleep(min(0.2 * 2 ** attempt, 5))
        raise Refused("UNREACHABLE", "Holdfast did not answer; nothing may be performed", {})

    def once(self, action, operation):
        def decorate(function):
            @functools.wraps(function)
            def guarded(**arguments):
                status, claim = self.call("/api/v2/claims", {
                    "action": action, "operationKey": operation.format(**arguments), "input": arguments,
                    "holder": self.holder, "leaseSeconds": self.lease_seconds})
                if status == 202:
                    raise Refused("PENDING_APPROVAL", f"approval {claim['approvalId']} is to be decided first", claim)
                try:
                    result = function(**arguments)
                except Failed as why:
                    self.call(f"/api/v2/claims/{claim['id']}/failed", {"reason": str(why) or "it said so"})
                    raise
                except BaseException as why:
                    self.call(f"/api/v2/claims/{claim['id']}/unknown", {"reason": repr(why)[:1000]})
                    raise
                self.call(f"/api/v2/claims/{claim['id']}/complete", {"result": result})
                return result
            return guarded
        return decorate
