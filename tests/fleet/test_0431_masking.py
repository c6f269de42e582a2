"""A credential that a provider repeats is stored, shown and logged nowhere."""

import base64
import json
import urllib.parse

import pytest

from harness import unique
from scene import Scene, texts

SECRET = 'sk_live/"Zq+9\\w ä%7-0123456789'
PAIR = base64.b64encode(b"account:pa55word-of-it").decode()
HIDDEN = [SECRET, json.dumps(SECRET)[1:-1], PAIR, "pa55word-of-it",
          base64.b64encode(SECRET.encode()).decode()[4:-4]]


@pytest.fixture(scope="module")
def scene(fleet):
    made = Scene(fleet)
    made.secret("ECHOED", SECRET)
    made.secret("PAIR", PAIR)
    return made


def nowhere(scene, hidden):
    """No such text in a text or bytes of the database's facts, nor in a log of a service."""
    for table in ("settlements", "evidence", "effects", "conflicts", "confirmations", "attempts", "audit"):
        dump = json.dumps(scene.fleet.psql(f"select t::text as row from {table} t"), ensure_ascii=False)
        for text in hidden:
            assert json.dumps(text, ensure_ascii=False)[1:-1] not in dump, (table, text)
            assert text.encode().hex() not in dump, (table, text)
    for path in (scene.fleet.dir / "log").glob("*-*.log"):
        assert not [text for text in hidden if text in path.read_text(errors="replace")], path


def spellings():
    return {
        "raw": json.dumps({"error": "Invalid key"})[:-1] + ', "key": ' + json.dumps(SECRET, ensure_ascii=False) + "}",
        "json": json.dumps({"key": SECRET}),
        "slashes": json.dumps({"key": SECRET}).replace("/", "\\/"),
        "url": json.dumps({"url": "/v1?key=" + urllib.parse.quote(SECRET, safe="")}),
        "html": "<p>bad key " + SECRET.replace("&", "&amp;").replace('"', "&quot;") + "</p>",
        "basic": json.dumps({"authorization": "Basic " + base64.b64encode(b"user:" + SECRET.encode()).decode()}),
        "pair": json.dumps({"authorization": "Basic " + PAIR}),
        "decoded": json.dumps({"user": "account", "password": "pa55word-of-it"}),
    }


def action(scene, **more):
    return scene.action(urlTemplate=scene.fleet.env["SANDBOX_URL"] + "/generic/echo",
                        headers={"X-Key": "{{secret:PAIR}}"},
                        **{"bodyTemplate": {"a": 1, "key": "{{secret:ECHOED}}"}, "governed": True, **more})


@pytest.mark.parametrize("status", [200, 401, 500])
@pytest.mark.parametrize("spelling", spellings())
def test_an_answer_that_repeats_the_credential(scene, spelling, status):
    body = spellings()[spelling]
    name = action(scene)
    scene.sandbox.fault("status", {"path_prefix": "/generic/echo", "kind": "write"}, status=status, body_base64=(
        base64.b64encode(body.encode()).decode()))
    answer = scene.agent.invoke(name, {})
    assert answer.status in (200, 202), answer
    scene.sandbox.control("DELETE", "/faults")
    effect = scene.effect_when(answer.data["effectId"], lambda e: e["stage"] != "dispatching")
    shown = json.dumps([answer.data, effect, scene.agent.invocation(answer.data["id"])], ensure_ascii=False)
    if status != 500:
        assert "[masked " in shown
        assert any("credential, which was masked" in text for text in texts(effect))
    for hidden in HIDDEN:
        assert hidden not in shown


def test_an_answer_cut_off_inside_the_credential(scene):
    name = action(scene)
    body = ("x" * 100 + SECRET).encode()
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: 4096\r\n\r\n" + body[:120]
    scene.sandbox.fault("raw", {"path_prefix": "/generic/echo"}, body_base64=base64.b64encode(raw).decode())
    answer = scene.agent.invoke(name, {})
    shown = json.dumps([answer.data, scene.effect(answer.data["effectId"])], ensure_ascii=False)
    assert answer.data["status"] == "unknown" and SECRET[:10] not in shown
    nowhere(scene, [SECRET[:18]])


def test_the_answer_means_what_it_meant(scene):
    """A secret that looks like an answer's own words changes no outcome."""
    scene.secret("WORDY", "succeeded")
    scene.secret("STRIPE_KEY", "sk_test_masking_1")
    name = scene.refund_action()
    intent = unique("pi")
    done = scene.refund(name, intent)
    assert done["status"] == "succeeded", done
    effect = scene.effect_when(done["effectId"], lambda e: e["grade"] == "confirmed")
    assert effect["provider"]["objectId"].startswith("re_")


def test_a_read_back_that_repeats_the_credential(scene):
    name = action(scene, verify={"url": scene.fleet.env["SANDBOX_URL"] + "/generic/echo?key={{secret:ECHOED}}",
                                 "status": 200, "match": [{"path": "/ok", "equals": True}]})
    scene.sandbox.fault("drop", {"path_prefix": "/generic/echo", "kind": "write"})
    scene.sandbox.fault("status", {"path_prefix": "/generic/echo", "kind": "read"}, times=-1, status=401,
                        body=json.dumps({"error": "bad key " + SECRET}))
    answer = scene.agent.invoke(name, {})
    effect = scene.effect_when(answer.data["effectId"], lambda e: len(e["evidence"]) >= 2)
    scene.sandbox.control("DELETE", "/faults")
    assert SECRET not in json.dumps(effect, ensure_ascii=False)


def test_nothing_of_all_that_was_kept(scene):
    """After the tests above: what they left in the database and in the logs."""
    nowhere(scene, HIDDEN)
