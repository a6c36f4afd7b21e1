"""An attempt together with what is handed over for it."""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from towline.backends.queue.dialect import ListedEntry, Phase
from towline.backends.queue.state import Attempt


class Handover(Struct):
    """One attempt that is in a queue, or to be put there; only `Table.take` changes it."""

    attempt: Attempt
    #: The message for the agent, given Towline's folder over there.
    message: Callable[[str], dict[str, Any]]
    #: The words that submit an array of such attempts: its name, that folder, its tasks, and how
    #: many of them run at a time.
    words: Callable[[str, str, list[int], int], list[str]]
    snapshots: tuple[str, ...] = ()
    #: Attempts of one group can share an array, and of one batch so many run at a time.
    batch: str = ""
    group: str = ""
    at_once: int = 0

    @property
    def key(self) -> str:
        return self.attempt.key


def by_name(listed: Iterable[ListedEntry]) -> dict[str, list[ListedEntry]]:
    """Entries by what they are called; a number alone proves nothing, since a controller that was
    killed may give it out again."""
    found: dict[str, list[ListedEntry]] = {}
    for one in listed:
        found.setdefault(one.name, []).append(one)
    return found


def leading(listed: list[ListedEntry]) -> ListedEntry | None:
    """Of the parts of one entry, the one that says most about the whole."""
    waiting = [one for one in listed if one.phase is Phase.WAITING]
    alive = [one for one in listed if not one.has_ended]
    return next(iter(waiting or alive or listed), None)
