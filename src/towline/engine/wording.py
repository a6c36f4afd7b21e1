"""Events of the journal in words, for the history that people read."""

import errno
import os
from collections.abc import Callable
from typing import Any

import msgspec

from towline.engine.obstacle_words import why_aside
from towline.engine.reasons import reason_words
from towline.model.job import State
from towline.model.journal import JournalEvent, Kind, Remark
from towline.model.machine import Aside
from towline.model.odd_text import keepable, original
from towline.model.reason import HELD, Reason
from towline.model.results import ResultsState

_Words = Callable[[JournalEvent, dict[str, Any]], str]


def words(event: JournalEvent) -> str:
    """What an event says to people; nothing if it is only for programs."""
    fields = event.fields()
    if "text" in fields:  # as an older version wrote it
        return original(str(fields["text"]))
    if "remark" in fields:
        return remark_words(msgspec.convert(fields["remark"], Remark))
    say = _WORDS.get(event.kind)
    return original(say(event, fields)) if say is not None else ""


def _machines(event: JournalEvent, fields: dict[str, Any]) -> str:
    return ", ".join(fields.get("machines") or [event.machine])


def _ended(event: JournalEvent, fields: dict[str, Any]) -> str:
    state, reason = fields.get("state", ""), _reason(fields)
    if state == State.STOPPED:
        return str(reason or state)
    return f"{state}: {reason}" if reason else str(state)


def _home(event: JournalEvent, fields: dict[str, Any]) -> str:
    results = results_words(msgspec.convert(fields["results"], ResultsState))
    return f"results: {original(results)}" if results else "no results"


def remark_words(remark: Remark) -> str:
    """A remark for people."""
    path = original(remark.path)
    match remark.kind:
        case "kept":
            return f"kept {path} as it was; the newer copy is {original(remark.newer)}"
        case "left_out":
            return f"left out {path}: it leads out of the folder, or cannot be read"
        case "not_collected":
            return f"left out {path}: {why_not_collected(remark.why)}"
        case "not_made":
            made = ", ".join(map(original, remark.made))
            instead = f"it made: {made}" if made else "it made nothing"
            return f"{path} was not made or changed: nothing of it came home ({instead})"
        case "more":
            return f"left out {remark.count} more remarks"
        case "set_aside":
            return f"{remark.machine} {why_aside(Aside(remark.count, remark.for_s))}"
        case "well_again":
            return f"{remark.machine} does well again and is used as before"
    return f"{remark.machine} is used again: such jobs fail elsewhere as well"


def why_not_collected(why: str) -> str:
    """Of a file outside of the job's folder, by what its machine calls it."""
    number = getattr(errno, why, 0)
    if number in (errno.ENOSPC, errno.EDQUOT):
        return "no space was left on its machine to copy it; it is still over there"
    if number in (errno.EACCES, errno.EPERM):
        return "it could not be read on its machine, where it still is"
    text = os.strerror(number) if number else why or "for an unknown reason"
    return f"it could not be copied on its machine, where it still is: {text}"


def results_words(results: ResultsState) -> str:
    """Where the results of a job are, or why they are not here."""
    if results.kind == "failed":
        return keepable(f"not fetched: {original(results.why)}")
    return "wanted" if results.kind == "pending" else results.path


def _why(otherwise: str) -> _Words:
    return lambda event, fields: _reason(fields) or otherwise


def _reason(fields: dict[str, Any]) -> str:
    return reason_words(msgspec.convert(fields.get("reason", {"kind": ""}), Reason))


def _not_started(fields: dict[str, Any]) -> str:
    why = f": {fields['void']}" if fields.get("void") else ""
    return f"it did not start{why}; waiting again"


def _to_wait(fields: dict[str, Any]) -> str:
    if fields.get("state") != State.WAITING:
        return ""
    if fields.get("reason", {}).get("kind") == HELD.kind:
        return ", to be held"
    return ", to begin at a time" if "begin" in fields else ", to wait for others"


#: What set a job free that waited.
_FREE = {
    "": "what it waited for has ended",
    "user": "nobody holds it any more",
    "time": "its time to begin has come",
}
_WORDS: dict[str, _Words] = {
    Kind.SUBMITTED: lambda event, fields: f"submitted{_to_wait(fields)}",
    Kind.PLACED: lambda event, fields: f"starting on {_machines(event, fields)}",
    Kind.SENT_AHEAD: lambda event, fields: f"next on {_machines(event, fields)}",
    Kind.CAME_BACK: lambda event, fields: (
        f"came back from {_machines(event, fields)} before it began; waiting again"
    ),
    Kind.RUNNING: lambda event, fields: f"running on {_machines(event, fields)}",
    Kind.TAKEN_BACK: _why("its queue took it back"),
    Kind.STOP_ASKED: lambda event, fields: "stop was asked for",
    Kind.STOPPING: _why("stopping"),
    Kind.REQUEUED: lambda event, fields: _reason(fields) or _not_started(fields),
    Kind.RETRIED: lambda event, fields: "retry was asked for",
    Kind.HELD: lambda event, fields: "held",
    Kind.RELEASED: lambda event, fields: _FREE[fields.get("by", "")],
    Kind.FOUND_AGAIN: lambda event, fields: (
        f"{fields['answers']} answers again: attempt {event.attempt} is taken up"
    ),
    Kind.ENDED: _ended,
    Kind.HOME: _home,
    Kind.NOT_HOME: _home,
    Kind.CLEANED: lambda event, fields: f"cleaned up: its folder on {event.machine}",
}
