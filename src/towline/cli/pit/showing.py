"""`pit show`: one entity, or a list of them."""

from __future__ import annotations

from towline.cli.pit import shapes
from towline.cli.pit.session import PitSession
from towline.cli.pit.typed.names import KINDS, LISTS, Entity, entity, properties
from towline.cli.terminal import note, say
from towline.errors import Forbidden

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.cli.pit.typed.grammar import Typed

_LISTED = {"users": "accounts", "groups": "groups", "nodes": "nodes", "aliases": "aliases"}
_FILTERS = ("since", "till", "user", "title", "asc", "desc", "limit", "offset")
#: What people typed for properties -> what the server calls it.
_AS_TYPED = {
    "user": {"id": "name", "admin": "administrator"},
    "node": {"id": "name"},
    "alias": {"id": "name", "name": "resource"},
    "group": {"id": "name"},
    "job": {
        "description": "title",
        "user": "owner",
        "resources": "request",
        "schedulePosition": "position",
        "utilComp": "util_compute",
        "utilMem": "util_memory",
        "provisioning": "origin",
        "continueJob": "continued",
        "stateChanges": "changes",
    },
}


def show(typed: Typed) -> None:
    which = entity(typed.words[0], (*KINDS, *LISTS, "me"))
    session = PitSession()
    if which.kind == "jobs":
        return _show_jobs(session, properties(typed.words[1:]))
    if which.kind in LISTS:
        kind = _LISTED[which.kind]
        names = sorted(one["name"] for one in session.call("GET", f"/v1/{kind}")[kind])
        return say("\n".join(names)) if names else None
    facts = _asked(session, which)
    lines = {
        "me": shapes.user_lines,
        "user": shapes.user_lines,
        "node": shapes.node_lines,
        "group": shapes.group_lines,
        "alias": shapes.alias_lines,
        "job": shapes.job_lines,
    }[which.kind](facts)
    say("\n".join(lines))
    if which.kind == "node":
        # Beside the ancestor's page, since it has no such lines.
        for line in (*shapes.wall_lines(facts), shapes.data_line(facts)):
            note(line)
    return None


def facts_of(session: PitSession, which: Entity) -> dict[str, Any]:
    """Its properties, also under the ancestor's names."""
    facts = _asked(session, which)
    renamed = {old: facts.get(new) for old, new in _AS_TYPED[which.kind].items()}
    if which.kind == "job":
        renamed["state"] = shapes.letters(facts["state"])
    if which.kind == "node":
        renamed["online"] = facts.get("state") != "offline"
    return {**facts, **renamed}


def _asked(session: PitSession, which: Entity) -> dict[str, Any]:
    if which.kind == "job":
        return job_facts(session, int(which.name))
    if which.kind == "me":
        found: dict[str, Any] = session.call("GET", "/v1/accounts/~")
        return found
    from towline.cli.pit.entities import path

    found = session.call("GET", path(which))
    return found


def job_facts(session: PitSession, number: int) -> dict[str, Any]:
    """What everybody may know of a job; and more, for those who may read it."""
    short: dict[str, Any] = session.call("GET", f"/v1/team/jobs/{number}")
    try:
        detail = session.call("GET", f"/v1/jobs/{number}")
    except Forbidden:
        return short
    changes = _changes(detail)
    ended_well = detail["state"] == "done" or not detail.get("ended")
    error = "" if ended_well else detail.get("reason")
    if (detail.get("because") or {}).get("kind") == "forbidden":
        error = "Cluster cannot fulfill resource request anymore"
    known = {name: detail[name] for name in ("origin", "processes")}
    return {**short, **known, "changes": changes, "error": error}


#: Kinds of events -> the state that they began.
_BEGAN = {
    "submitted": "queued",
    "placed": "starting",
    "running": "running",
    "started": "running",
    "stopping": "stopping",
}


def _changes(detail: dict[str, Any]) -> list[dict[str, Any]]:
    found = [
        {"state": _BEGAN[event["kind"]], "at": event["at"]}
        for event in detail["history"]
        if event["kind"] in _BEGAN
    ]
    if detail.get("ended"):
        last = {"state": detail["state"], "at": detail["ended"]}
        found.append({**last, "reason": detail.get("reason") or ""})
    return found


def _show_jobs(session: PitSession, filters: dict[str, str]) -> None:
    from towline.cli.pit.failures import Failed
    from towline.cli.pit.status import columns
    from towline.client.transport import with_query

    for name in filters:
        if name not in _FILTERS:
            raise Failed(f"Unknown query parameter {name}", f"there are: {', '.join(_FILTERS)}")
    jobs = session.call("GET", with_query("/v1/team/jobs", **filters))["jobs"]
    say("\n".join(shapes.jobs_table(jobs, columns())))
