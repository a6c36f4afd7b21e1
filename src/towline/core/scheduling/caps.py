"""Batches of which only so many jobs run at a time.

As many of such a batch as may run are in the queue or have a place; the others are spare: nobody
looks for a place for them. But whoever has a place may leave it to a spare one that was sent ahead
to the same machine (`series`): then one begins when another ends, and never do more of them run.
"""

from collections.abc import Iterator
from heapq import heappop, heappush

from towline.core.scheduling.bucket import Waiting

Rank = tuple[int, float, int]


class Capped:
    """One batch: who waits in the queue, who has a place, who was sent ahead, and who is spare."""

    __slots__ = ("_order", "ahead", "key", "most", "placed", "queued", "spare")

    def __init__(self, key: str, most: int) -> None:
        self.key = key
        self.most = most
        self.queued: dict[int, Waiting] = {}
        self.placed: set[int] = set()
        self.ahead: set[int] = set()
        self.spare: dict[int, Waiting] = {}
        #: The spare ones, and some that are not spare any more.
        self._order: list[tuple[Rank, int]] = []

    @property
    def room(self) -> int:
        """How many more may be in the queue or have a place; below 0 if too many are."""
        return self.most - len(self.queued) - len(self.placed)

    @property
    def empty(self) -> bool:
        return not (self.queued or self.placed or self.ahead or self.spare)

    def put_aside(self, job: Waiting) -> None:
        self.spare[job.id] = job
        heappush(self._order, (_rank(job), job.id))

    def first_spare(self) -> Waiting | None:
        while self._order and self._order[0][1] not in self.spare:
            heappop(self._order)
        return self.spare[self._order[0][1]] if self._order else None


class Caps:
    """All batches with a cap, as long as they have jobs here."""

    def __init__(self) -> None:
        self.all: dict[str, Capped] = {}
        self._of: dict[int, Capped] = {}
        #: Those in which something changed.
        self._changed: dict[Capped, None] = {}

    def batch_of(self, job_id: int) -> str:
        """The batch with a cap that a job is of; empty if it is of none."""
        capped = self._of.get(job_id)
        return capped.key if capped is not None else ""

    def spare_in(self, job_id: int) -> Capped | None:
        """The batch of a job that is spare; None if it is not."""
        capped = self._of.get(job_id)
        return capped if capped is not None and job_id in capped.spare else None

    def everyone(self) -> list[Waiting]:
        """All jobs of batches with a cap that have no place yet."""
        return [
            job
            for capped in self.all.values()
            for job in (*capped.queued.values(), *capped.spare.values())
        ]

    def renew(self, job: Waiting) -> None:
        """What is known of a job that has no place yet has changed."""
        capped = self._of[job.id]
        (capped.spare if job.id in capped.spare else capped.queued)[job.id] = job

    def add_spare(self, job: Waiting) -> bool:
        """Let a job of a batch with a cap be spare; False for any other."""
        if not job.at_most:
            return False
        self._join(job).put_aside(job)
        return True

    def adopt(self, job: Waiting) -> None:
        """It has a place, even if that is one too many."""
        if job.at_most:
            self._join(job).placed.add(job.id)

    def place(self, job_id: int) -> None:
        """It waited in the queue, and has a place now."""
        capped = self._of.get(job_id)
        if capped is not None:
            del capped.queued[job_id]
            capped.placed.add(job_id)

    def send_ahead(self, job_id: int) -> None:
        """It waits on a machine for the place of another."""
        capped = self._of.get(job_id)
        if capped is not None:
            self._changed[capped] = None
            capped.queued.pop(job_id, None)
            capped.spare.pop(job_id, None)
            capped.ahead.add(job_id)

    def leave(self, job_id: int, heir: int | None = None) -> None:
        """It is gone; an heir that was sent ahead has its place."""
        capped = self._of.pop(job_id, None)
        if capped is None:
            return
        self._changed[capped] = None
        capped.queued.pop(job_id, None)
        capped.spare.pop(job_id, None)
        capped.placed.discard(job_id)
        capped.ahead.discard(job_id)
        if heir is not None:
            capped.ahead.discard(heir)
            capped.placed.add(heir)

    def moves(self) -> Iterator[tuple[Waiting, bool]]:
        """Who goes from the spare ones to the queue (True), and back: those in the queue may have
        become too many when a job turned out to run already."""
        for capped in self._changed:
            while capped.room < 0 and capped.queued:
                last = max(capped.queued.values(), key=_rank)
                capped.put_aside(capped.queued.pop(last.id))
                yield last, False
            while capped.room > 0 and (first := capped.first_spare()) is not None:
                capped.queued[first.id] = capped.spare.pop(first.id)
                yield first, True
            if capped.empty:
                del self.all[capped.key]
        self._changed.clear()

    def _join(self, job: Waiting) -> Capped:
        capped = self.all.get(job.batch)
        if capped is None:
            capped = self.all[job.batch] = Capped(job.batch, job.at_most)
        self._of[job.id] = capped
        self._changed[capped] = None
        return capped


def _rank(job: Waiting) -> Rank:
    return -job.priority, job.submitted, job.id
