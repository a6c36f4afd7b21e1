"""Batches as people name them, and the one that a file was submitted as."""

from __future__ import annotations

from towline.client.transport import quoted, with_query
from towline.errors import NotFound, UsageError
from towline.model.lines import BASH, first_difference
from towline.model.units import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.client.session import Session
    from towline.model.lines import TypedCommand


def batches(session: Session, everything: bool = False) -> list[dict[str, Any]]:
    """The batches that are active or ended lately; newest last."""
    answer = session.call("GET", with_query("/v1/batches", all=int(everything)))
    found: list[dict[str, Any]] = answer["batches"]
    return found


def batch_path(session: Session, name: str, *rest: str) -> str:
    """Where the API has a batch; `last` is the newest."""
    if name == "last":
        found = batches(session, everything=True)
        if not found:
            raise NotFound("there is no batch yet", "tow batch FILE starts one")
        name = found[-1]["name"]
    return "/".join(["/v1/batches", quoted(name), *rest])


def ask_of_batch(
    session: Session, name: str, action: str, body: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Have the Engine `stop`, `retry` or bring the `results` of a batch; what it answers."""
    path = batch_path(session, name, action)
    answer: dict[str, Any] = session.call("POST", path, body or {}, repeat=True)
    return answer


def jobs_of(session: Session, name: str, *, state: str = "", limit: int = 0) -> dict[str, Any]:
    """A batch and its jobs, all of them unless there is a limit."""
    target = with_query(batch_path(session, name), state=state or None, limit=limit or None)
    answer: dict[str, Any] = session.call("GET", target)
    return answer


def submitted_before(
    session: Session, name: str, folder: str, commands: list[TypedCommand], source: str
) -> dict[str, Any] | None:
    """The batch that these commands were submitted as from this folder; None if never.

    A batch whose name was taken got a number behind it, so there may be several.
    """
    from towline.model.odd_text import original

    found: list[dict[str, Any]] = [
        view
        for view in reversed(batches(session, everything=True))
        if original(view["folder"]) == folder and is_called(view["name"], name)
    ]
    # Why the newest of them is another batch.
    refusal: UsageError | None = None
    for view in found:
        if refusal and view["count"] != len(commands):
            continue
        before = _submitted(session, view)
        place = first_difference(before, commands)
        if place is None:
            return view
        refusal = refusal or _differs(view["name"], before, commands, place, source)
    if refusal:
        raise refusal
    return None


def is_called(name: str, wanted: str) -> bool:
    base, dash, number = name.rpartition("-")
    return name == wanted or (base == wanted and bool(dash) and number.isdigit())


def _submitted(session: Session, view: dict[str, Any]) -> list[list[str]]:
    """The commands of a batch, in their order."""
    from towline.model.odd_text import original

    jobs = sorted(jobs_of(session, view["name"])["jobs"], key=lambda job: int(job["id"]))
    return [list(map(original, job["command"])) for job in jobs]


def _differs(
    name: str, before: list[list[str]], commands: list[TypedCommand], place: int, source: str
) -> UsageError:
    if place >= len(commands):
        what = f"{source} has {len(commands)} commands, but batch {name} has {len(before)}"
    elif place >= len(before):
        what = f"{source}, line {commands[place].number} is not in batch {name}"
    else:
        old = shown(before[place][-1] if before[place][:2] == BASH else " ".join(before[place]))
        what = f"{source}, line {commands[place].number} was another command in batch {name}: {old}"
    hint = f"submit it anew with another --name, or go on with the old one: tow batch retry {name}"
    return UsageError(what, hint)
