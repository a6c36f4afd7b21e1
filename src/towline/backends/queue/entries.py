"""Which attempts go into a queue together, and how many at a time. Pure.

Jobs of a batch that differ only in what they run become the tasks of one array. A site limits how
long an array may be and how many jobs a user may have in the queue: the first is known beforehand,
the second shows when a submission is refused, and then the queue is refilled as it drains.

Lines of a batch that is to be packed become one entry, several together: the queue knows nothing of
them, and a packer on the node runs them.
"""

from collections.abc import Iterable

from msgspec import Struct

from towline.backends.queue.handover import Handover
from towline.backends.queue.state import Attempt, Place, is_pack
from towline.model.request import Packing, cut

#: Longer arrays gain nothing, and whatever is done with one takes longer.
_LONGEST = 1000
#: A full queue is refilled by so many parts of what it took.
_PARTS = 4


class Submission(Struct):
    """What one submission puts into the queue: one attempt, or several as an array or a pack."""

    members: list[Handover]
    #: The name of an array or a pack; empty for a job that goes alone.
    array: str = ""
    #: So many of its tasks run at a time; 0: as many as there is room for.
    at_once: int = 0
    #: Which task of the array each member is, by its key.
    tasks: dict[str, int] = {}

    @property
    def is_array(self) -> bool:
        return bool(self.array) and not is_pack(self.array)


def submission(members: list[Handover], array: str, at_once: int, first_task: int) -> Submission:
    """An array of these; those that were submitted under that name keep their numbers."""
    tasks = {
        one.key: one.attempt.index if one.attempt.array == array else first_task + place
        for place, one in enumerate(members)
    }
    return Submission(members, array, at_once, tasks)


class PackGathering:
    """Lines that are to share allocations: one that they do not fill waits a moment for others."""

    def __init__(self, gather_s: float) -> None:
        self.gather_s = gather_s
        #: Group -> how many of it there were, and since when there were no more.
        self._since: dict[str, tuple[int, float]] = {}

    def packs(self, group: list[Handover], now: float) -> tuple[list[list[Handover]], float]:
        """Those that go together now, and when to look at the rest again; 0: there is none."""
        first = group[0]
        pack = first.pack or Packing()
        count, since = self._since.get(first.group, (0, now))
        since = since if count == len(group) else now
        some = sorted(group, key=lambda one: one.attempt.job)
        found = []
        for size in cut(len(some), pack.lines, now - since >= self.gather_s):
            found.append(some[:size])
            some = some[size:]
        if not some:
            self._since.pop(first.group, None)
            return found, 0.0
        self._since[first.group] = len(some), now if found else since
        return found, self._since[first.group][1] + self.gather_s


class Limits:
    """How many attempts may be offered to one queue at a time."""

    def __init__(self) -> None:
        #: The longest array that the site takes; 0: it takes none.
        self.site = _LONGEST
        self._most = _LONGEST
        self._full_until = 0.0
        self._drained = 0
        self.tries = 0

    def learn(self, site: int | None) -> None:
        """As the site says it; None when it did not."""
        allowed = _LONGEST if site is None else site
        self._most = self.site = min(_LONGEST, allowed) if allowed > 1 else 0

    @property
    def is_narrow(self) -> bool:
        """It refused more than it has room for: go step by step."""
        return self._most < self.site

    def most(self, now: float) -> int:
        """So many tasks may be offered now."""
        waits = now < self._full_until and self._drained < self._most
        return 0 if waits else self._most

    def accepted(self) -> None:
        self._full_until, self.tries = 0.0, 0

    def all_sent(self) -> None:
        self._most = self.site

    def ended(self) -> None:
        self._drained += 1

    def refused(self, count: int, inside: int, now: float, pause_s: float) -> float:
        """The queue has no room for so many while so many are in it; when to offer again."""
        self._most = max(1, min(count, inside // _PARTS) if inside else count // 2)
        self._drained, self.tries = 0, self.tries + 1
        self._full_until = now + (pause_s if inside or count == 1 else 0.0)
        return self._full_until


def grouped(some: Iterable[Handover]) -> dict[str, list[Handover]]:
    """Those that may share an array; what was in one array before stays together, and what follows
    others goes with those that follow the same."""
    found: dict[str, list[Handover]] = {}
    for handover in some:
        own = f"{handover.group} after {id(handover.follows)}" if handover.follows else ""
        name = handover.attempt.array or own or handover.group
        found.setdefault(name, []).append(handover)
    return found


def is_inside(attempt: Attempt) -> bool:
    """Whether it may occupy a place in the queue, even if the answer to its submission was lost."""
    if attempt.place is Place.UNANSWERED:
        return bool(attempt.array)
    return attempt.place in (Place.ASKING, Place.IN_QUEUE, Place.CLAIMED)


def packs_beside(pack: Packing, at_once: int, inside: Iterable[Attempt]) -> int:
    """How many more allocations a batch may have, beside those of its lines that are inside."""
    if not at_once:
        return 1_000_000
    return max(1, at_once // pack.parallel) - len({one.array for one in inside})


def in_turn(at_once: int, inside: int) -> int:
    """How many of a batch may run besides those that are inside; 0: they have to wait for these.

    A next array is sent when half of those have ended that may run at a time: never too many run,
    and those that take long do not keep all others waiting.
    """
    return 0 if inside > at_once // 2 else at_once - inside
