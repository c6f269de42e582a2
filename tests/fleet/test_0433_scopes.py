"""Every route asks for its scope, and a key sees nothing of other environments and of actions it isn't held to."""

import pathlib
import re

import pytest

from harness import ROOT, unique, wait_until
from scene import ACTIONS, EFFECTS, Scene

NAMES = dict(re.findall(r'\[(SCOPE_\w+)\] = "([^"]+)"', (ROOT / "common" / "scopes.c").read_text()))
ROUTE = re.compile(r'\{"([A-Z]+)",\s*"(/[^"]+)",\s*(\w+),\s*(true|false),\s*\w+\}', re.DOTALL)
ROUTES = sorted(route[:3] for path in sorted((ROOT / "ingest" / "routes").glob("*.c"))
                for route in ROUTE.findall(path.read_text()))
SCOPED = [route for route in ROUTES if route[2] in NAMES]


@pytest.fixture(scope="module")
def scene(fleet):
    return Scene(fleet)


@pytest.fixture(scope="module")
def keys(scene):
    """For each scope a key with it alone, and one with all the others."""
    made = {}
    for scope in sorted({NAMES[route[2]] for route in SCOPED}):
        others = ",".join(sorted(set(NAMES.values()) - {scope}))
        made[scope] = [scene.fleet.api(scene.key(unique("only"), "--scopes", scope)),
                       scene.fleet.api(scene.key(unique("lacks"), "--scopes", others))]
    return made


def test_the_table_was_read_whole():
    """Each entry of a route table is one of ROUTES; a new form of entry must be read too."""
    for path in (ROOT / "ingest" / "routes").glob("*.c"):
        text = path.read_text()
        entries = re.findall(r'\{\s*"(?:GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS)"', text)
        assert len(entries) == len(ROUTE.findall(text)), path
    assert len(ROUTES) > 40
    # What needs no scope is listed here, so that a new one is decided and not overlooked.
    assert sorted(r[:2] for r in ROUTES if r[2] not in NAMES) == [
        ("GET", "/api/v2/auth/identity"), ("GET", "/api/v2/environment")]


def ask(api, route):
    """One call of a route with names of nothing. Writes are empty, so at most 400 or 404 comes of them."""
    path = re.sub(r"\{[^}]+\}", lambda _: "NOTHING", route[1])
    return api.call(route[0], path, {} if route[0] in ("POST", "PUT", "PATCH") else None,
                    {"Idempotency-Key": unique("key")})


def test_each_route_asks_for_its_scope(scene, keys):
    nobody = scene.fleet.api("holdfast_" + "0" * 64)
    for route in SCOPED:
        if route[1].startswith("/api/v2/environment/"):
            continue  # they need no body: the next test
        scope = NAMES[route[2]]
        only, lacks = keys[scope]
        answer = ask(lacks, route)
        assert (answer.status, answer.code) == (403, "AUTHORIZATION_ERROR"), (route, answer)
        assert answer.error["details"] == {"scope": scope}, (route, answer)
        assert ask(only, route).status not in (401, 403), route
        assert ask(nobody, route).status == 401, route


def test_halt_and_resume_ask_for_their_scope(scene, keys):
    only, lacks = keys["environments:halt"]
    for what in ("halt", "resume"):
        body = {"reason": "x"} if what == "halt" else {}
        answer = lacks.post(f"/api/v2/environment/{what}", body)
        assert answer.status == 403 and answer.error["details"] == {"scope": "environments:halt"}, answer
        assert only.post(f"/api/v2/environment/{what}", body).status == 200


def test_a_key_held_to_actions_sees_only_theirs(scene):
    mine, other = [scene.action(urlTemplate=scene.fleet.env["SANDBOX_URL"] + "/generic/held",
                                bodyTemplate={"a": 1}, governed=True) for _ in range(2)]
    done = {name: scene.agent.invoke(name, {}).data for name in (mine, other)}
    held = scene.fleet.api(scene.key(unique("held"), "--preset", "operator", "--actions", mine))
    deciding = scene.fleet.api(scene.key(unique("held"), "--preset", "resolver", "--actions", mine))
    for path, of in ((EFFECTS, "effectId"), (f"{ACTIONS}/invocations", "id")):
        assert held.get(f"{path}/{done[mine][of]}").status == 200
        assert held.get(f"{path}/{done[other][of]}").status == 404
        assert {item["action"] for item in held.get(path).data} == {mine}
        assert held.get(path).json["pagination"]["total"] == 1
        assert held.get(f"{path}?action={other}").data == []
    assert held.get(f"{ACTIONS}/{other}/invocations").data == []
    # Nor can it do anything about them.
    assert held.invoke(other, {}).status == 403
    for path in (f"{EFFECTS}/{done[other]['effectId']}/reconcile", f"{ACTIONS}/invocations/{done[other]['id']}/cancel"):
        assert held.post(path, {}).status in (403, 404), path
    for path, body in ((f"{EFFECTS}/{done[other]['effectId']}/notes", {"note": "x"}),
                       (f"{EFFECTS}/{done[other]['effectId']}/resolve", {"outcome": "failed", "reason": "x"}),
                       (f"{ACTIONS}/invocations/{done[other]['id']}/resolve", {"outcome": "failed", "evidence": "x"})):
        assert deciding.post(path, body).status in (403, 404), path


def test_ids_of_another_environment_are_not_there(scene):
    elsewhere = Scene(scene.fleet)
    name = scene.action(urlTemplate=scene.fleet.env["SANDBOX_URL"] + "/generic/own", bodyTemplate={"a": 1},
                        governed=True)
    done = scene.agent.invoke(name, {}).data
    limit = scene.limit(name)
    effect, invocation = f"{EFFECTS}/{done['effectId']}", f"{ACTIONS}/invocations/{done['id']}"
    action = scene.operator.get(f"{ACTIONS}/{name}").data["id"]
    for path in (effect, invocation, f"{ACTIONS}/{name}", f"{ACTIONS}/{action}", f"{ACTIONS}/{action}/versions",
                 f"/api/v2/impact-limits/{limit}"):
        assert elsewhere.operator.get(path).status == 404, path
        assert scene.operator.get(path).status == 200, path
    assert elsewhere.operator.patch(f"{ACTIONS}/{action}", {"enabled": False}).status == 404
    assert elsewhere.operator.delete(f"{ACTIONS}/{action}").status == 404
    assert elsewhere.operator.patch(f"/api/v2/impact-limits/{limit}", {"amount": 1}).status == 404
    assert elsewhere.operator.delete(f"/api/v2/impact-limits/{limit}").status == 404
    assert elsewhere.agent.post(f"{effect}/reconcile").status == 404
    assert elsewhere.agent.post(f"{invocation}/cancel").status == 404
    assert elsewhere.agent.invoke(action, {}).status == 404
    assert elsewhere.resolver.post(f"{effect}/notes", {"note": "x"}).status == 404
    assert elsewhere.resolver.post(f"{effect}/resolve", {"outcome": "failed", "reason": "x"}).status == 404


def test_revoked_and_expired_keys_open_nothing(scene):
    expired, revoked = [scene.fleet.api(scene.key(unique("old"), "--preset", "operator")) for _ in range(2)]
    ids = [api.get("/api/v2/auth/identity").data["keyId"] for api in (expired, revoked)]
    from governed import raw
    scene.fleet.psql("update api_keys set expires_at = hf_now() - interval '1 s' where id = %s", raw(ids[0]), admin=True)
    scene.fleet.psql("update api_keys set revoked_at = hf_now() where id = %s", raw(ids[1]), admin=True)
    for api, word in ((expired, "expired"), (revoked, "revoked")):
        wait_until(lambda: api.get("/api/v2/auth/identity").status == 401, what=word)
        for route in ROUTES:
            answer = ask(api, route)
            assert (answer.status, answer.code) == (401, "AUTHENTICATION_FAILED") and word in answer.error["message"]
