"""An attempt together with what is handed over for it, and what it follows."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct, to_builtins

from towline.backends.queue.dialect import ListedEntry, Phase
from towline.backends.queue.state import Attempt, Place
from towline.model.request import Packing


class Followed(Struct, frozen=True):
    """One job or batch that must end before an attempt of the same queue begins."""

    #: How it must end: `ok`, `any` or `failed`.
    when: str
    job: int
    batch: str
    #: Of a batch: a line of it has ended, and not well.
    failed: bool
    #: Its attempts: the key of each, how many processes it has, and whether it is the last one.
    attempts: tuple[tuple[str, int, bool], ...]


class Handover(Struct):
    """One attempt that is in a queue, or to be put there; only `Table.take` changes where it
    stands."""

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
    #: How those of its group share allocations; None: each has one of its own.
    pack: Packing | None = None
    #: What it follows; None: something, but that cannot be said now.
    follows: tuple[Followed, ...] | None = ()
    #: The numbers of that in the queue, as it was handed over last.
    behind: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return self.attempt.key

    def is_ready(self, wanted: Mapping[str, "Handover"]) -> bool:
        """Whether all that it follows is in the queue, or over, so that it can be put behind it."""
        if not self.follows:
            return self.follows is not None
        keys = (key for one in self.follows for key, _, _ in one.attempts)
        placed = (Place.IN_QUEUE, Place.CLAIMED, Place.OVER)
        ahead = (wanted[key].attempt.place for key in keys if key in wanted)
        # Behind the same as before it would come back again.
        useless = self.attempt.early and self.numbers_ahead(wanted) == self.behind
        return not useless and all(place in placed for place in ahead)

    def numbers_ahead(self, wanted: Mapping[str, "Handover"]) -> tuple[str, ...]:
        """The numbers of what it follows, of a batch those of whole arrays."""
        found: dict[str, None] = {}
        for one in self.follows or ():
            for key, _, _ in one.attempts:
                attempt = wanted[key].attempt if key in wanted else None
                if attempt is not None and attempt.id and not attempt.is_over:
                    found[attempt.id.partition("_")[0] if one.batch else attempt.id] = None
        return tuple(found)

    def after(self) -> list[dict[str, Any]]:
        """What it follows, as its node has to know it."""
        return [to_builtins(one) for one in self.follows or ()]


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
