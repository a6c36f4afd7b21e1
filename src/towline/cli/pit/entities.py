"""`pit add`, `remove`, `set`, `get`, `add-group`, `remove-group`: what a team consists of."""

from __future__ import annotations

from towline.cli.pit.failures import Failed
from towline.cli.pit.session import PitSession
from towline.cli.pit.typed.names import Entity, checked, entity, properties
from towline.cli.terminal import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.cli.pit.typed.grammar import Typed

_PLURALS = {"user": "accounts", "node": "nodes", "group": "groups", "alias": "aliases"}
_USER = ("fullname", "email", "password", "autoshare", "admin", "state")
#: What a new account needs besides its name.
_NEW_USER = ("fullname", "email", "password")
#: Of an account, what nobody changes without saying their own password.
_VERIFIED = ("password", "administrator")


def path(which: Entity) -> str:
    if which.kind == "job":
        return f"/v1/jobs/{which.name}"
    return f"/v1/{_PLURALS[which.kind]}/{which.name}"


def add(typed: Typed) -> None:
    from towline.cli.pit.typed import dialogue

    which = entity(typed.words[0], _PLURALS, wrong="Unknown")
    given = properties(typed.words[1:])
    session = PitSession()
    if which.kind == "user":
        _add_user(session, which, dialogue.missing_of_user(given))
    elif which.kind == "alias":
        asked = dialogue.missing_of_alias(given)
        session.call("PUT", path(which), {"resource": asked["name"]})
    elif which.kind == "group":
        session.call("PUT", path(which), dialogue.missing_of_group(given))
    else:
        session.call("PUT", path(which), _of_node(dialogue.missing_of_node(given)))


def _add_user(session: PitSession, which: Entity, given: dict[str, Any]) -> None:
    body = _of_user(given)
    later = {name: body.pop(name) for name in list(body) if name not in _NEW_USER}
    session.call("POST", "/v1/accounts", {"name": which.name, **body})
    if later:
        session.call("PATCH", path(which), _verified(later))


def remove(typed: Typed) -> None:
    which = entity(typed.words[0], (*_PLURALS, "job"))
    session = PitSession()
    if which.kind == "job":
        from towline.cli.pit.jobs import remove_job

        return remove_job(session, int(which.name))
    session.call("DELETE", path(which))
    return None


def change(typed: Typed) -> None:
    which = entity(typed.words[0], (*_PLURALS, "job"))
    given = properties(typed.words[1:])
    if which.kind == "job":
        raise Failed(
            "Jobs do not change", "pit add-group and remove-group share them; pit stop ends one"
        )
    session = PitSession()
    if "quota" in given and which.kind in ("user", "group"):
        from towline.cli.pit.data.quotas import set_quota

        set_quota(session, which, given.pop("quota"))
        if not given:
            return
    if which.kind == "user":
        body = _verified(_of_user(given))
    elif which.kind == "node":
        body = _of_node(given)
    elif which.kind == "alias":
        body = {"resource": given["name"]} if "name" in given else {}
    else:
        body = dict(given)
    session.call("PATCH", path(which), body)


def get(typed: Typed) -> None:
    from towline.cli.pit.shapes import raw_value
    from towline.cli.pit.showing import facts_of

    which = entity(typed.words[0], (*_PLURALS, "job"))
    say(raw_value(facts_of(PitSession(), which).get(typed.words[1])))


def add_group(typed: Typed) -> None:
    _group("PUT", typed)


def remove_group(typed: Typed) -> None:
    _group("DELETE", typed)


def _group(method: str, typed: Typed) -> None:
    which = entity(typed.words[0], ("user", "node", "job"), indices=True)
    group = checked("group", typed.words[1].removeprefix("group:"))
    resource = "" if which.index is None else f"/resources/{which.index}"
    PitSession().call(method, f"{path(which)}{resource}/groups/{group}")


def _of_user(given: dict[str, Any]) -> dict[str, Any]:
    """The properties as they are typed, in the words of the server."""
    _only(given, _USER, "user")
    body = dict(given)
    if "autoshare" in body:
        body["autoshare"] = [name for name in body["autoshare"].split(",") if name]
    if "admin" in body:
        admin = body.pop("admin").lower()
        if admin not in ("yes", "no", "true", "false"):
            raise Failed('"admin" is yes or no')
        body["administrator"] = admin in ("yes", "true")
    return body


def _of_node(given: dict[str, Any]) -> dict[str, Any]:
    if "password" in given:
        raise Failed(
            "Nodes have no password here",
            "the server logs in by ssh, with its own key: pit add node:n0 endpoint=ssh://pit@n0",
        )
    if "cpus" in given:
        try:
            return {**given, "cpus": float(given["cpus"])}
        except ValueError:
            raise Failed('"cpus" is a number') from None
    return dict(given)


def _verified(body: dict[str, Any]) -> dict[str, Any]:
    if any(name in body for name in _VERIFIED):
        from towline.cli.pit.typed.dialogue import own_password

        return {**body, "verification": own_password()}
    return body


def _only(given: dict[str, Any], known: tuple[str, ...], kind: str) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        raise Failed(f'A {kind} has no property "{unknown[0]}"', f"it has: {', '.join(known)}")
