"""An attempt that a queue runs, as the Engine keeps track of it."""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct, field

from towline.backends.queue.dialect import ListedEntry, Phase
from towline.model.job import Ending, Entry

#: How long several processes may take to stop by themselves.
_PATIENCE_S = 30.0


class Handover(Struct):
    """One attempt that is in a queue, or to be put there."""

    key: str
    job: int
    attempt: int
    count: int
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
    #: The array that it is a task of, and which.
    array: str = ""
    index: int = 0
    #: It was submitted, or may have been before the Engine was restarted.
    sent: bool = False
    #: The queue's number of it.
    id: str = ""
    #: The run that counts has begun.
    claimed: bool = False
    stop: bool = False
    #: Without the time to end by itself.
    stop_now: bool = False
    #: Its last run ended so that the queue starts it again.
    again: bool = False
    #: The answer to its submission is awaited.
    asking: bool = False
    started: set[int] = field(default_factory=set)
    #: What is told of earlier runs than this one is old.
    run: int = 0
    ended: set[int] = field(default_factory=set)
    #: Of processes whose end no file tells: what is said of it.
    verdicts: dict[str, str] = field(default_factory=dict)
    #: Endings of processes that the queue stopped: it is still to say why.
    evicted: dict[int, Ending] = field(default_factory=dict)
    #: When the last of them was seen to begin, and when the queue last knew of the attempt.
    begun_at: float = 0.0
    known_at: float = 0.0
    #: The queue has lost it, so its old number counts no more.
    vanished: bool = False
    #: Numbers that it had before, of entries that ended without having begun it.
    given_up: set[str] = field(default_factory=set)
    #: Since when the queue says that it is over though its files do not.
    over_since: float = 0.0
    #: Its submission failed for the moment: not before this is it repeated; how often it did.
    not_before: float = 0.0
    tries: int = 0
    reason: str = ""
    #: What the queue calls it, as it was told last; where it ran last.
    called: Entry = Entry()
    node: str = ""
    #: While it waits: the queue's own word for why, when it is expected to start (0: nobody knows),
    #: and which it is of how many that wait.
    word: str = ""
    expected: float = 0.0
    place: tuple[int, int] = (0, 0)
    #: Its running processes have until then to stop by themselves.
    patience_until: float = 0.0

    def is_unsent(self, now: float) -> bool:
        """The queue did not take it, and may be asked again now."""
        return not (self.id or self.claimed or self.asking) and now >= self.not_before

    def wants_cancel(self, now: float) -> bool:
        """A queue kills several processes at once: these are asked themselves first."""
        if self.count > 1 and self.claimed and not self.again:
            self.patience_until = self.patience_until or now + _PATIENCE_S
        return bool(self.id) and now >= self.patience_until

    @property
    def entry(self) -> str:
        """What it is called in the queue's lists."""
        return f"{self.array}_{self.index}" if self.array else self.key

    def number_in(self, ticket: str) -> str:
        """The queue's number of it, from that of the whole."""
        return f"{ticket}_{self.index}" if self.array and ticket else ticket

    def recorded(self, array: tuple[str, int] | None, ticket: str, claim: list[str]) -> None:
        """What is written down over there: where it was put, and which entry runs it."""
        # Once it has begun that stays so, though somebody removed its folder since.
        self.claimed = self.claimed or bool(claim)
        name, index = array or ("", 0)
        if claim:
            self.id, self.array = claim[0], claim[2] if len(claim) > 2 else ""
            task = self.id.partition("_")[2]
            self.index = int(task) if task.isdecimal() and len(task) < 10 else 0
        elif not self.vanished and self.array in ("", name):
            self.array, self.index = name, index
            self.id = self.id or self.number_in(ticket)

    def standing(self) -> dict[str, Any]:
        """Where it stands in the queue, as far as that is known."""
        place, waiting = self.place
        found = {"reason": self.word, "expected": self.expected, "place": place, "waiting": waiting}
        return {name: value for name, value in found.items() if value}

    @property
    def is_over(self) -> bool:
        return len(self.ended) == self.count


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
