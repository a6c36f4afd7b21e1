"""Events of the journal in words, for the history that people read."""

from collections.abc import Callable
from typing import Any

from towline.model.job import State
from towline.model.journal import Event, Kind
from towline.model.odd_text import original

_Words = Callable[[Event, dict[str, Any]], str]


def words(event: Event) -> str:
    """What an event says to people; nothing if it is only for programs."""
    fields = event.fields()
    if "text" in fields:
        return original(str(fields["text"]))
    say = _WORDS.get(event.kind)
    return original(say(event, fields)) if say is not None else ""


def _machines(event: Event, fields: dict[str, Any]) -> str:
    return ", ".join(fields.get("machines") or [event.machine])


def _ended(event: Event, fields: dict[str, Any]) -> str:
    state, reason = fields.get("state", ""), fields.get("reason", "")
    if state == State.STOPPED:
        return str(reason or state)
    return f"{state}: {reason}" if reason else str(state)


def _home(event: Event, fields: dict[str, Any]) -> str:
    results = fields.get("results", "")
    return f"results: {results}" if results else "no results"


def _why(otherwise: str) -> _Words:
    return lambda event, fields: str(fields.get("reason") or otherwise)


_WORDS: dict[str, _Words] = {
    Kind.SUBMITTED: lambda event, fields: "submitted",
    Kind.PLACED: lambda event, fields: f"starting on {_machines(event, fields)}",
    Kind.SENT_AHEAD: lambda event, fields: f"next on {_machines(event, fields)}",
    Kind.CAME_BACK: lambda event, fields: (
        f"came back from {_machines(event, fields)} before it began; waiting again"
    ),
    Kind.RUNNING: lambda event, fields: f"running on {_machines(event, fields)}",
    Kind.TAKEN_BACK: _why("its queue took it back"),
    Kind.STOP_ASKED: lambda event, fields: "stop was asked for",
    Kind.STOPPING: _why("stopping"),
    Kind.REQUEUED: _why("its start was void; waiting again"),
    Kind.RETRIED: lambda event, fields: "retry was asked for",
    Kind.FOUND_AGAIN: lambda event, fields: (
        f"{fields['answers']} answers again: attempt {event.attempt} is taken up"
    ),
    Kind.ENDED: _ended,
    Kind.HOME: _home,
    Kind.NOT_HOME: _home,
    Kind.CLEANED: lambda event, fields: f"cleaned up: its folder on {event.machine}",
}
