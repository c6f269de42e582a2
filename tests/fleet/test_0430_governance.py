"""Whoever may write actions can't take a governed one's guard away: not by edit, delete, rename or a new one."""

import pytest

from harness import unique
from scene import ACTIONS, Scene


@pytest.fixture(scope="module")
def scene(fleet):
    return Scene(fleet)


@pytest.fixture(scope="module")
def writer(scene):
    """A key that may write actions and has no actions:govern."""
    return scene.fleet.api(scene.key("writer", "--scopes", "actions:read,actions:write"))


def definition(scene, **more):
    return {"name": unique("act"), "urlTemplate": scene.fleet.env["SANDBOX_URL"] + "/generic/things",
            "bodyTemplate": {"to": "{{input.to}}"}, **more}


IMPACT = {"dimension": "emails", "unit": "emails", "amount": "1", "bound": "exact"}


def refused(answer):
    assert (answer.status, answer.code) == (403, "AUTHORIZATION_ERROR"), answer
    assert answer.error["details"] == {"scope": "actions:govern"}, answer


@pytest.mark.parametrize("guard", [{"governed": True}, {"requiresApproval": True}], ids=["governed", "gated"])
def test_a_guarded_action_keeps_its_guard(scene, writer, guard):
    name = scene.action(**definition(scene, **guard))
    at = f"{ACTIONS}/{name}"
    other = scene.fleet.env["SANDBOX_URL"] + "/generic/others"
    for edit in ({"urlTemplate": other}, {"method": "PUT"}, {"headers": {"X-To": "you"}},
                 {"bodyTemplate": {"to": "me"}}, {"inputSchema": {"type": "object"}}, {"effectKey": "x:{to}"},
                 {"name": unique("renamed")}, {"governed": False, "requiresApproval": False}):
        if guard.get("requiresApproval") and edit.get("governed") is False:
            edit = {"requiresApproval": False}
        refused(writer.patch(at, edit))
    refused(writer.delete(at))
    assert scene.operator.get(at).data["version"] == 1, "nothing was stored"

    # What doesn't touch the guard goes on, and so does whoever may govern.
    assert writer.patch(at, {"description": "x", "enabled": False}).status == 200
    assert scene.operator.patch(at, {"method": "PUT"}).status == 200


@pytest.mark.parametrize("guard", [{"governed": True}, {"requiresApproval": True}], ids=["governed", "gated"])
def test_a_name_stays_guarded_when_its_action_is_gone(scene, writer, guard):
    name = scene.action(**definition(scene, **guard))
    assert scene.operator.delete(f"{ACTIONS}/{name}").status == 200
    refused(writer.post(ACTIONS, definition(scene, name=name)))

    plain = scene.action(**definition(scene))
    refused(writer.patch(f"{ACTIONS}/{plain}", {"name": name}))
    assert writer.post(ACTIONS, definition(scene, name=name, **guard)).status == 201


def test_the_name_before_a_rename_stays_guarded(scene, writer):
    name = scene.action(**definition(scene, governed=True))
    assert scene.operator.patch(f"{ACTIONS}/{name}", {"name": unique("renamed")}).status == 200
    refused(writer.post(ACTIONS, definition(scene, name=name)))


def test_an_ungoverned_action_is_its_writers(scene, writer):
    name = scene.action(**definition(scene))
    assert writer.patch(f"{ACTIONS}/{name}", {"method": "PUT", "name": unique("mine")}).status == 200
    assert writer.post(ACTIONS, definition(scene, name=name)).status == 201
    assert writer.delete(f"{ACTIONS}/{name}").status == 200
    # Released by who may: then it is as any other.
    name = scene.action(**definition(scene, governed=True))
    assert scene.operator.patch(f"{ACTIONS}/{name}", {"governed": False}).status == 200
    assert writer.patch(f"{ACTIONS}/{name}", {"method": "PUT"}).status == 200


def test_loosening_a_secret_never_frees_the_value_before(scene):
    """The previous value serves what was claimed with it, but not under other restrictions."""
    name = unique("K").upper()

    def put(value, **more):
        assert scene.operator.put(f"/api/v2/secrets/{name}", {"value": value, **more}).status == 200
        (row,) = scene.fleet.psql("select previous_sealed is not null as kept from secrets where name = %s", name)
        return row["kept"]

    assert not put("first-value", allowedHosts=["api.example.com"], allowedPlacements=["header"])
    assert put("second-value")
    assert put("third-value", allowedHosts=["api.example.com"])
    assert not put("fourth-value", allowedHosts=["evil.example.com"])
    assert put("fifth-value")
    assert not put("sixth-value", allowedPlacements=None)
