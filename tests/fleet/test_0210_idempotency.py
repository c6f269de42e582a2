"""One request, one effect: keys, operations and retries over HTTP, whatever Redis does meanwhile."""

import concurrent.futures
import re
import time

import psycopg
import pytest

from harness import unique, wait_until
from scene import ACTIONS, Scene, effect_url

REPLAY = "X-Idempotent-Replay"


@pytest.fixture(scope="module")
def scene(fleet):
    return Scene(fleet)


@pytest.fixture(scope="module")
def write(scene):
    """A declared action without limits: one POST that the sandbox counts by effect."""
    return scene.action(
        urlTemplate=scene.fleet.env["SANDBOX_URL"] + "/generic/notes", bodyTemplate={"n": "{{input.n}}"},
        headers={"X-Holdfast-Effect": "{{effect.id}}"}, governed=True)


@pytest.fixture(scope="module")
def refund(scene):
    return scene.refund_action()


class Cache:
    """Redis in one of its moods; `disturb` is called between a request and the same one again."""

    def __init__(self, fleet, mood):
        self.fleet = fleet
        self.mood = mood

    def disturb(self):
        if self.mood == "flushed":
            self.fleet.redis().flushall()


@pytest.fixture(scope="module", params=["up", "flushed", "stopped"])
def cache(request, fleet):
    if request.param == "stopped":
        fleet.kill("redis")
    yield Cache(fleet, request.param)
    if request.param == "stopped":
        fleet.restart("redis")


@pytest.fixture
def paused_dispatcher(fleet):
    """Nothing is dispatched until the function that is given is called (or the test ends)."""
    fleet.pause("dispatcher-1")
    yield lambda: fleet.resume("dispatcher-1")
    fleet.resume("dispatcher-1")


def writes(scene, effect_id):
    return scene.sandbox.counts(effect=effect_id)["writes"]


def effects_of(scene):
    return scene.operator.get(f"{ACTIONS}/effects?limit=1").json["pagination"]["total"]


def in_parallel(count, call):
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(call, range(count)))


# ---------------------------------------------------------------- keys


def test_the_same_request_answers_what_became_of_the_first(scene, write, cache):
    key = unique("key")
    first = scene.agent.invoke(write, {"n": 1}, key)
    assert (first.status, first.data["status"], first.headers[REPLAY]) == (200, "succeeded", None)
    for _ in range(3):
        cache.disturb()
        again = scene.agent.invoke(write, {"n": 1}, key)
        assert (again.status, again.headers[REPLAY]) == (200, "current-state")
        assert again.data == first.data
    assert writes(scene, first.data["effectId"]) == 1


def test_another_request_with_the_key_is_refused(scene, write, refund, cache):
    key = unique("key")
    first = scene.agent.invoke(write, {"n": 1}, key)
    cache.disturb()
    others = [(write, {"n": 2}, {}), (write, {"n": "1"}, {}), (write, {"n": 1, "m": None}, {}), (write, {}, {}),
              (write, {"n": 1}, {"operationKey": unique("op")}), (write, {"n": 1}, {"dispatchBeforeSeconds": 60}),
              (write, {"n": 1}, {"retryOf": first.data["id"]}),
              (refund, {"payment_intent": "pi_1", "amount": 1}, {})]
    for action, value, members in others:
        other = scene.agent.invoke(action, value, key, **members)
        assert (other.status, other.code) == (409, "idempotency_key_reuse"), (value, members, other)
        assert first.data["id"] in other.error["message"]
    again = scene.agent.invoke(write, {"n": 1}, key)
    assert (again.status, again.data["id"]) == (200, first.data["id"])
    assert writes(scene, first.data["effectId"]) == 1


SAME = [
    b'{"input":{"n":1,"deep":{"a":[1,2],"b":"\xc3\xa9"}},"operationKey":null}',
    b'{"operationKey":null,"input":{"deep":{"b":"\xc3\xa9","a":[1,2]},"n":1}}',
    b' {\n\t"input" : { "n" : 1 , "deep" : { "a" : [ 1 , 2 ] , "b" : "\\u00e9" } } , "operationKey" : null }\r\n',
    b'{"input":{"n":1,"deep":{"a":[1,2],"b":"\xc3\xa9"}},"operationKey":null,"runId":"run-1"}',
    b'{"runId":"run-2","parentSpanId":"span-2","input":{"n":1,"deep":{"a":[1,2],"b":"\xc3\xa9"}},"operationKey":null}',
    b'{"input":{"\\u006e":1,"deep":{"a":[1,2],"b":"\xc3\xa9"}},"operationKey":null}',
]


def test_how_a_request_is_written_does_not_matter(scene, write, cache):
    key = unique("key")
    answers = []
    for body in SAME:
        answers.append(scene.agent.call("POST", f"{ACTIONS}/{write}/invoke", body, {"Idempotency-Key": key}))
        cache.disturb()
    assert [a.status for a in answers] == [200] * len(SAME), answers
    assert len({a.data["id"] for a in answers}) == 1
    assert answers[-1].data["runId"] is None
    swapped = SAME[0].replace(b"[1,2]", b"[2,1]")
    other = scene.agent.call("POST", f"{ACTIONS}/{write}/invoke", swapped, {"Idempotency-Key": key})
    assert (other.status, other.code) == (409, "idempotency_key_reuse")


def test_an_action_is_the_same_by_name_and_by_id(scene, write, cache):
    key = unique("key")
    by_id = scene.operator.get(f"{ACTIONS}/{write}").data["id"]
    first = scene.agent.invoke(write, {"n": 1}, key)
    cache.disturb()
    assert scene.agent.invoke(by_id, {"n": 1}, key).data["id"] == first.data["id"]


def test_fifty_at_once_make_one_effect_and_one_write(scene, write, cache):
    key = unique("key")
    answers = in_parallel(50, lambda _: scene.agent.invoke(write, {"n": 50}, key))
    assert {(a.status, a.data["status"]) for a in answers} == {(200, "succeeded")}
    assert len({a.data["id"] for a in answers}) == 1
    assert [a.headers[REPLAY] for a in answers].count(None) == 1
    assert writes(scene, answers[0].data["effectId"]) == 1


def test_two_bodies_at_once_make_one_effect(scene, write, cache):
    key = unique("key")
    answers = in_parallel(30, lambda i: scene.agent.invoke(write, {"n": 60 + i % 2}, key))
    won = [a for a in answers if a.status == 200]
    lost = [a for a in answers if a.status != 200]
    assert len(won) == len(lost) == 15
    assert {(a.status, a.code) for a in lost} == {(409, "idempotency_key_reuse")}
    assert len({a.data["effectId"] for a in won}) == 1
    assert writes(scene, won[0].data["effectId"]) == 1


def test_a_key_is_of_one_environment(fleet, scene, write):
    key = unique("key")
    other = Scene(fleet)
    theirs = other.action(urlTemplate=fleet.env["SANDBOX_URL"] + "/generic/notes", bodyTemplate={"n": 9},
                          headers={"X-Holdfast-Effect": "{{effect.id}}"}, governed=True)
    first, second = scene.agent.invoke(write, {"n": 1}, key), other.agent.invoke(theirs, {"n": 9}, key)
    assert (first.status, second.status) == (200, 200)
    assert first.data["id"] != second.data["id"]


@pytest.mark.parametrize("key", [None, "", "k" * 256, "with blank", "caf\u00e9", "tab\t"])
def test_a_key_is_visible_ascii(scene, write, key):
    before = effects_of(scene)
    headers = {} if key is None else {"Idempotency-Key": key.encode()}
    answer = scene.agent.call("POST", f"{ACTIONS}/{write}/invoke", {"input": {"n": 1}}, headers)
    assert (answer.status, answer.code) == (400, "VALIDATION_ERROR")
    assert "Idempotency-Key" in answer.error["message"]
    assert effects_of(scene) == before


def test_the_longest_key_is_taken(scene, write):
    key = unique("k") + "~" * 255
    assert scene.agent.invoke(write, {"n": 1}, key[:255]).status == 200


# ---------------------------------------------------------------- while it goes on


def test_a_duplicate_waits_with_the_first_for_as_long_as_it_says(scene, write, cache, paused_dispatcher):
    key = unique("key")
    first = scene.agent.invoke(write, {"n": 1}, key, wait=0)
    assert (first.status, first.data["status"]) == (202, "running")
    cache.disturb()
    for wait in (0, 1):
        began = time.monotonic()
        duplicate = scene.agent.invoke(write, {"n": 1}, key, wait=wait)
        assert wait <= time.monotonic() - began < wait + 2
        assert (duplicate.status, duplicate.code) == (409, "idempotency_request_in_progress")
        assert first.data["id"] in duplicate.error["message"]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(scene.agent.invoke, write, {"n": 1}, key, 20)
        paused_dispatcher()
        answer = waiting.result()
    assert (answer.status, answer.data["id"], answer.data["status"]) == (200, first.data["id"], "succeeded")
    assert writes(scene, first.data["effectId"]) == 1


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
def test_the_key_tells_the_present_state_of_an_unknown(scene, cache, outcome):
    """Case 7: unknown, then settled, and the same key again."""
    key, action, intent = unique("key"), scene.lossy_refund_action(), unique("pi")
    rule = scene.block_reads(intent)
    value = {"payment_intent": intent, "amount": 100}
    first = scene.agent.invoke(action, value, key)
    assert (first.status, first.data["status"]) == (200, "unknown")
    cache.disturb()
    again = scene.agent.invoke(action, value, key)
    assert (again.status, again.data["status"], again.headers[REPLAY]) == (200, "unknown", "current-state")
    if outcome == "succeeded":
        scene.end_rule(rule)
        scene.settled(first.data["effectId"])
    else:
        assert scene.resolve(first.data["effectId"], "failed").status == 200
    cache.disturb()
    last = wait_until(lambda: (a := scene.agent.invoke(action, value, key)).data["status"] == outcome and a, 3)
    assert (last.status, last.data["id"], last.headers[REPLAY]) == (200, first.data["id"], "current-state")
    assert writes(scene, first.data["effectId"]) == 1
    scene.sandbox.control("DELETE", "/faults")


def test_the_key_tells_of_a_confirmation_and_a_retry(scene, cache):
    key, action = unique("key"), scene.refund_action()
    value = {"payment_intent": unique("pi"), "amount": 100}
    first = scene.agent.invoke(action, value, key)
    assert first.data["grade"] == "acknowledged"
    scene.effect_when(first.data["effectId"], lambda e: e["grade"] == "confirmed")
    wait_until(lambda: scene.agent.invoke(action, value, key).data["grade"] == "confirmed", 7, every=0.5)

    key, intent = unique("key"), unique("pi_402")
    value = {"payment_intent": intent, "amount": 100}
    failed = scene.agent.invoke(action, value, key)
    assert (failed.data["status"], failed.data["responseStatus"]) == ("failed", 402)
    cache.disturb()
    assert scene.agent.invoke(action, value, key).data["retriedBy"] is None
    retry = scene.agent.invoke(action, value, retryOf=failed.data["id"])
    assert retry.status == 200
    wait_until(lambda: scene.agent.invoke(action, value, key).data["retriedBy"] == retry.data["id"], 3)


@pytest.mark.parametrize("when", ["accepted", "being accepted"])
def test_ingest_killed_in_the_middle_and_the_same_key_again(fleet, scene, write, cache, when, paused_dispatcher):
    key = unique("key")
    blocker = None
    if when == "being accepted":
        blocker = block_accepts(fleet)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        cut_off = pool.submit(scene.agent.invoke, write, {"n": 7}, key)
        if blocker:
            wait_until(lambda: fleet.psql("select 1 from pg_locks where not granted"), what="a batch that waits")
        else:
            wait_until(lambda: fleet.psql("select 1 from effects where idempotency_key = %s", key))
        fleet.kill("ingest-1")
        with pytest.raises(OSError):
            cut_off.result()
    if blocker:
        blocker.close()
    fleet.restart("ingest-1")
    paused_dispatcher()
    cache.disturb()
    answer = wait_until(lambda: (a := scene.agent.invoke(write, {"n": 7}, key)).status == 200 and a)
    assert answer.data["status"] == "succeeded"
    assert writes(scene, answer.data["effectId"]) == 1
    assert len(fleet.psql("select 1 from effects where idempotency_key = %s", key)) == 1


def block_accepts(fleet):
    """Holds every accept batch before it has stored anything, until the connection is closed."""
    blocker = psycopg.connect(fleet.env["FLEET_DATABASE_ADMIN_URL"])
    blocker.execute("lock table keys in exclusive mode")
    return blocker


# ---------------------------------------------------------------- operations


def test_an_operation_with_the_same_input_is_the_same_effect(scene, write, cache):
    operation, second_key = unique("op"), unique("key")
    first = scene.agent.invoke(write, {"n": 1}, operationKey=operation)
    assert first.data["operationKey"] == operation
    cache.disturb()
    second = scene.agent.invoke(write, {"n": 1}, second_key, operationKey=operation)
    assert (second.status, second.data["id"], second.headers[REPLAY]) == (200, first.data["id"], "current-state")
    assert second.data["idempotencyKey"] == first.data["idempotencyKey"]
    # The second key is bound to that invocation now.
    cache.disturb()
    assert scene.agent.invoke(write, {"n": 1}, second_key, operationKey=operation).data["id"] == first.data["id"]
    other = scene.agent.invoke(write, {"n": 2}, second_key, operationKey=operation)
    assert (other.status, other.code) == (409, "idempotency_key_reuse")
    assert writes(scene, first.data["effectId"]) == 1


def test_an_operation_with_another_input_is_refused_and_binds_no_key(scene, write, cache):
    operation, second_key = unique("op"), unique("key")
    first = scene.agent.invoke(write, {"n": 1}, operationKey=operation)
    cache.disturb()
    other = scene.agent.invoke(write, {"n": 2}, second_key, operationKey=operation)
    assert (other.status, other.code) == (409, "operation_key_reuse")
    assert first.data["id"] in other.error["message"]
    assert other.error["details"]["invocationId"] == first.data["id"]
    free = scene.agent.invoke(write, {"n": 2}, second_key)
    assert (free.status, free.headers[REPLAY]) == (200, None)
    assert free.data["id"] != first.data["id"]


def test_an_operation_with_another_action_is_refused(scene, write):
    operation = unique("op")
    scene.agent.invoke(write, {"n": 1}, operationKey=operation)
    twin = scene.action(urlTemplate=scene.fleet.env["SANDBOX_URL"] + "/generic/twins",
                        bodyTemplate={"n": "{{input.n}}"}, governed=True)
    other = scene.agent.invoke(twin, {"n": 1}, operationKey=operation)
    assert (other.status, other.code) == (409, "operation_key_reuse")


def test_fifty_keys_of_one_operation_make_one_write(scene, write, cache):
    operation = unique("op")
    answers = in_parallel(50, lambda _: scene.agent.invoke(write, {"n": 3}, operationKey=operation))
    assert {a.status for a in answers} == {200}, answers
    (effect_id,) = {a.data["effectId"] for a in answers}
    assert writes(scene, effect_id) == 1


def test_an_unknown_holds_its_operation_and_the_message_names_it(scene, cache):
    operation, intent, action = unique("op"), unique("pi"), scene.lossy_refund_action()
    scene.block_reads(intent)
    first = scene.refund(action, intent, 100, operationKey=operation)
    assert first["status"] == "unknown"
    cache.disturb()
    same = scene.refund(action, intent, 100, operationKey=operation)
    assert (same["id"], same["status"]) == (first["id"], "unknown")
    other = scene.agent.invoke(action, {"payment_intent": intent, "amount": 101}, operationKey=operation)
    assert (other.status, other.code) == (409, "operation_key_reuse")
    assert first["effectId"] in other.error["message"] and "unknown" in other.error["message"]
    assert writes(scene, first["effectId"]) == 1
    scene.sandbox.control("DELETE", "/faults")


def test_what_was_never_sent_frees_its_operation(scene, cache):
    operation, action = unique("op"), scene.refund_action()
    limit = scene.limit(action, amount=50)
    refused = scene.refund(action, unique("pi"), 100, operationKey=operation)
    assert (refused["status"], refused["grade"]) == ("failed", "refused")
    scene.made(scene.operator.patch(f"/api/v2/impact-limits/{limit}", {"amount": 1000}))
    cache.disturb()
    second = scene.refund(action, unique("pi"), 100, operationKey=operation)
    assert (second["status"], second["id"] != refused["id"]) == ("succeeded", True)


def test_an_effect_key_gives_the_operation(scene, cache):
    action = scene.action(
        urlTemplate=scene.fleet.env["SANDBOX_URL"] + "/generic/notes", bodyTemplate={"n": "{{input.n}}"},
        headers={"X-Holdfast-Effect": "{{effect.id}}"}, governed=True, effectKey="note:{n}/{kind}")
    n = unique("n")
    first = scene.agent.invoke(action, {"n": n, "kind": "a b"})
    assert first.data["operationKey"] == f"note:{n}/a%20b"
    cache.disturb()
    again = scene.agent.invoke(action, {"n": n, "kind": "a b"})
    assert (again.data["id"], again.headers[REPLAY]) == (first.data["id"], "current-state")
    other = scene.agent.invoke(action, {"n": n, "kind": "a b", "more": 1})
    assert (other.status, other.code) == (409, "operation_key_reuse")
    assert scene.agent.invoke(action, {"n": n, "kind": "b"}).data["id"] != first.data["id"]
    named = scene.agent.invoke(action, {"n": n, "kind": "a b"}, operationKey=unique("op"))
    assert named.data["id"] != first.data["id"]
    missing = scene.agent.invoke(action, {"n": n})
    assert (missing.status, missing.code) == (400, "VALIDATION_ERROR")
    assert "kind" in missing.error["message"]


# ---------------------------------------------------------------- retryOf


def test_a_failed_call_is_retried_once_under_its_operation(scene, refund, cache):
    operation, intent = unique("op"), unique("pi_402")
    failed = scene.refund(refund, intent, 100, operationKey=operation)
    assert failed["status"] == "failed"
    cache.disturb()
    same = scene.refund(refund, intent, 100, operationKey=operation)
    assert same["id"] == failed["id"], "a failure holds its operation against a call that names no original"
    retry = scene.refund(refund, unique("pi"), 90, operationKey=operation, retryOf=failed["id"])
    assert (retry["status"], retry["retryOf"]) == ("succeeded", failed["id"])
    assert scene.agent.invocation(failed["id"])["retriedBy"] == retry["id"]
    again = scene.agent.invoke(refund, {"payment_intent": intent, "amount": 90}, retryOf=failed["id"])
    assert (again.status, again.code) == (409, "RETRY_REFUSED")
    assert retry["id"] in again.error["details"]["reason"]
    held = scene.agent.invoke(refund, {"payment_intent": intent, "amount": 1}, operationKey=operation)
    assert (held.status, held.error["details"]["invocationId"]) == (409, retry["id"])


def test_what_may_not_be_retried(scene, write, refund):
    lossy, intent = scene.lossy_refund_action(), unique("pi")
    scene.block_reads(intent)
    unknown = scene.refund(lossy, intent, 100)
    done = scene.agent.invoke(write, {"n": 1}).data
    failed = scene.refund(refund, unique("pi_402"), 100)
    refusals = [(lossy, unknown["id"], "unknown"), (write, done["id"], "succeeded"),
                (write, failed["id"], "another action"), (write, "inv_01ARZ3NDEKTSV4RRFFQ69G5FAV", "no invocation")]
    value = {"payment_intent": intent, "amount": 100}
    for action, original, reason in refusals:
        key = unique("key")
        answer = scene.agent.invoke(action, {"n": 1} if action == write else value, key, retryOf=original)
        assert (answer.status, answer.code) == (409, "RETRY_REFUSED"), answer
        assert reason in answer.error["details"]["reason"]
        assert scene.fleet.psql("select 1 from effects where idempotency_key = %s", key) == []
    old_key = scene.agent.invoke(refund, value, failed["idempotencyKey"], retryOf=failed["id"])
    assert (old_key.status, old_key.code) == (409, "idempotency_key_reuse")
    malformed = scene.agent.invoke(write, {"n": 1}, retryOf="inv_x")
    assert (malformed.status, malformed.code) == (400, "VALIDATION_ERROR")
    scene.sandbox.control("DELETE", "/faults")


def test_what_was_confirmed_against_its_failure_is_not_retried(scene, cache):
    """A person said failed, the provider's record then says otherwise: a conflict stops every retry."""
    action, intent = scene.lossy_refund_action(), unique("pi")
    rule = scene.block_reads(intent)
    unknown = scene.refund(action, intent, 100)
    assert scene.resolve(unknown["effectId"], "failed").status == 200
    scene.end_rule(rule)
    scene.effect_when(unknown["effectId"], lambda e: e["conflict"])
    answer = scene.agent.invoke(action, {"payment_intent": intent, "amount": 100}, retryOf=unknown["id"])
    assert (answer.status, answer.code) == (409, "RETRY_REFUSED")
    assert "conflict" in answer.error["details"]["reason"]


# ---------------------------------------------------------------- what a request may hold


BAD_AMOUNTS = ["100.0", "1e2", '"100"', "-1", "9007199254740993", "0.5", "1E400", "-0.0", "true", "[100]"]
BAD_BODIES = [
    (b'{"input":{"payment_intent":"PI","amount":100,"amount":100}}', "amount"),
    (b'{"input":{"payment_intent":"PI","amount":100,"\\u0061mount":999}}', "\\u0061mount"),
    (b'{"input":{"payment_intent":"PI","amount":1},"input":{"payment_intent":"PI","amount":2}}', "input"),
    (b'{"input":{"payment_intent":"PI","amount":1},"inpu\\u0074":{"payment_intent":"PI","amount":2}}', "inpu\\u0074"),
    (b'{"input":{"payment_intent":"a\\u0000b","amount":1}}', ""),
    (b'{"input":{"payment_intent":"\xff","amount":1}}', ""),
    (b'{"input":{"payment_intent":"\\ud800","amount":1}}', ""),
    (b'{"input":{"payment_intent":"PI","amount":1,"deep":' + b"[" * 70 + b"]" * 70 + b"}}", ""),
    (b'[{"input":{"payment_intent":"PI","amount":1}}]', ""),
    (b'{"input":{"payment_intent":"PI","amount":1}} {}', ""),
    (b'{"input":{"payment_intent":"PI","amount":1}', ""),
    (b'{"input":{"payment_intent":"PI","amount":01}}', ""),
    (b'{"input":{"payment_intent":"PI","amount":NaN}}', ""),
    (b"", ""),
]


def names_place(answer, body, token, name):
    """Whether a refusal says where: the member's name, or a column at the last place of the token."""
    place = answer.error["details"]["place"]
    found = re.fullmatch(r"line 1 column (\d+)", place)
    if not found:
        return name in place
    start = body.rindex(token) if token else 0
    return start <= int(found[1]) <= max(start + len(token), 0 if token else len(body)) + 1


def test_what_is_no_amount_is_refused_and_leaves_nothing(scene, refund):
    limit, before = scene.limit(refund), effects_of(scene)
    for text in BAD_AMOUNTS:
        body = f'{{"input":{{"payment_intent":"{unique("pi")}","amount":{text}}}}}'.encode()
        key = unique("key")
        answer = scene.agent.call("POST", f"{ACTIONS}/{refund}/invoke", body, {"Idempotency-Key": key})
        assert (answer.status, answer.code) == (400, "VALIDATION_ERROR"), (text, answer)
        assert names_place(answer, body, text.encode(), "amount"), (text, answer)
        # Nothing is known of the key: it may be used for what was meant.
        assert scene.fleet.psql("select 1 from effects where idempotency_key = %s", key) == []
    assert effects_of(scene) == before
    assert scene.usage(limit) == (0, 0, 0)


def test_what_is_no_request_is_refused_and_leaves_nothing(scene, refund):
    before = effects_of(scene)
    for body, place in BAD_BODIES:
        body = body.replace(b"PI", unique("pi").encode())
        answer = scene.agent.call("POST", f"{ACTIONS}/{refund}/invoke", body, {"Idempotency-Key": unique("key")})
        assert (answer.status, answer.code) == (400, "VALIDATION_ERROR"), (body, answer)
        assert names_place(answer, body, place.encode(), place), (body, answer)
    assert effects_of(scene) == before


def test_a_declared_amount_is_an_integer_too(scene):
    action = scene.action(
        urlTemplate=scene.fleet.env["SANDBOX_URL"] + "/generic/payments", bodyTemplate={"cents": "{{input.cents}}"},
        impact={"dimension": "money", "unit": "usd", "amount": "input.cents * 2", "bound": "exact"})
    limit = scene.limit(action, amount=10 ** 15)
    for text in ["100.0", "1e2", '"100"', "-1", "9007199254740993", "9007199254740991"]:  # doubled, it overflows
        body = f'{{"input":{{"cents":{text}}}}}'.encode()
        answer = scene.agent.call("POST", f"{ACTIONS}/{action}/invoke", body, {"Idempotency-Key": unique("key")})
        assert (answer.status, answer.code) == (400, "VALIDATION_ERROR"), (text, answer)
        assert names_place(answer, body, text.encode(), "cents"), (text, answer)
    assert scene.agent.invoke(action, {"cents": 100}).data["status"] == "succeeded"
    assert scene.usage(limit) == (200, 0, 0)


def test_amounts_of_zero_decimal_currencies_stay_as_they_are(scene):
    action, intent = scene.refund_action("jpy"), unique("pi")
    scene.sandbox.control("POST", "/intents", {"id": intent, "currency": "jpy"})
    limit = scene.limit(action, unit="jpy")
    effect_id = scene.refund(action, intent, 500)["effectId"]
    assert scene.usage(limit) == (500, 0, 0)
    (request,) = [r for r in scene.requests(intent) if r["write"]]
    assert "amount=500&" in request["body"] + "&"
    scene.effect_when(effect_id, lambda e: e["grade"] == "confirmed")


# ---------------------------------------------------------------- other writes


def test_other_writes_answer_their_key_as_recorded(scene, cache):
    headers = {"Idempotency-Key": unique("key")}
    wanted = {"name": unique("limit"), "dimension": "emails", "unit": "emails", "period": "day", "amount": 5}
    first = scene.operator.post("/api/v2/impact-limits", wanted, headers)
    cache.disturb()
    again = scene.operator.post("/api/v2/impact-limits", wanted, headers)
    assert (first.status, again.status) == (201, 201) and first.data == again.data
    other = scene.operator.post("/api/v2/impact-limits", {**wanted, "amount": 6}, headers)
    assert (other.status, other.code) == (409, "idempotency_key_reuse")
    listed = [x for x in scene.operator.get("/api/v2/impact-limits").data if x["name"] == wanted["name"]]
    assert len(listed) == 1


def test_a_resolve_answers_its_key_whatever_has_happened_since(scene, cache):
    action, intent = scene.lossy_refund_action(), unique("pi")
    scene.block_reads(intent)
    unknown = scene.refund(action, intent, 100)
    headers = {"Idempotency-Key": unique("key")}
    body = {"outcome": "succeeded", "reason": "seen in the dashboard"}
    url = effect_url(unknown["effectId"], "resolve")
    first = scene.resolver.post(url, body, headers)
    cache.disturb()
    again = scene.resolver.post(url, body, headers)
    assert (first.status, again.status) == (200, 200), (first, again)
    assert first.data["grade"] == again.data["grade"] == "acknowledged"
    unkeyed = scene.resolver.post(url, body)
    assert (unkeyed.status, unkeyed.code) == (409, "EFFECT_SETTLED")
    other = scene.resolver.post(url, {**body, "outcome": "failed"}, headers)
    assert (other.status, other.code) == (409, "idempotency_key_reuse")
    scene.sandbox.control("DELETE", "/faults")
