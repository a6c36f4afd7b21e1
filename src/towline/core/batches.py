"""How far a batch is, and how many of its jobs come next. Pure.

A batch may have a hundred thousand jobs. The store has them all; the core has those that run and as
many waiting ones as it can need soon, in their order. So what a batch costs does not depend on how
long it is. How many run at a time is up to the scheduler, or to the queue of their cluster; only of
a batch that its first failure stops, the core never has more than may run: none is sent ahead.
"""

from collections import Counter, deque
from collections.abc import Iterable

from towline.model.batch import Batch, Counts
from towline.model.job import FINAL, Job, State

#: So many jobs of a batch wait in the core at most.
WINDOW = 2000
#: The rate is that of the last so many seconds.
LATELY_S = 10.0


class Progress:
    """One batch that has not ended."""

    def __init__(self, batch: Batch, counts: Counts) -> None:
        self.batch = batch
        self.counts: Counter[State] = Counter(counts)
        #: Jobs that the core has, and the state each was in last.
        self.inside: dict[int, State] = {}
        self._waiting = 0
        #: Before this job, none waits outside the core.
        self.cursor = batch.first
        #: When jobs ended lately, and how many.
        self._ends: deque[tuple[float, int]] = deque()
        #: When the first of its jobs was seen to begin.
        self._began = 0.0

    @property
    def over(self) -> bool:
        return sum(self.counts[state] for state in FINAL) >= self.batch.count

    def wants(self) -> int:
        """How many more jobs the core may be given."""
        outside = self.counts[State.QUEUED] - self._waiting
        if self.batch.stopped or (self.batch.held and not self.batch.follows):
            return 0
        queue = self.batch.base.queue
        if queue is not None and (queue.at_once or not self.batch.max_parallel):
            # They wait in the queue of their cluster, which sees to how many run.
            room = WINDOW - len(self.inside) if len(self.inside) <= WINDOW // 2 else 0
        elif self.batch.max_parallel and not self.batch.base.at_most:
            room = self.batch.max_parallel - len(self.inside)
        else:
            room = WINDOW - self._waiting if self._waiting <= WINDOW // 2 else 0
        return max(0, min(outside, room))

    def take_in(self, jobs: Iterable[Job]) -> None:
        """The core has these now."""
        for job in jobs:
            if job.id not in self.inside:
                self.inside[job.id] = job.state
                self._waiting += job.state is State.QUEUED

    def follow(self, job: Job, now: float) -> None:
        """The core changed one of the jobs that it has."""
        before = self.inside[job.id]
        self.counts[before] -= 1
        self.counts[job.state] += 1
        self._waiting += (job.state is State.QUEUED) - (before is State.QUEUED)
        if job.state is not State.QUEUED:
            self._began = self._began or now
        if job.state.final:
            del self.inside[job.id]
            self._note_end(now)
        else:
            self.inside[job.id] = job.state

    def must_stop(self, job: Job) -> bool:
        """True when this job's end is the end of the batch."""
        failed = job.state in (State.FAILED, State.LOST)
        return failed and self.batch.fail_fast and not self.batch.stopped

    def rate(self, now: float) -> float:
        """Jobs that ended per second lately."""
        self._forget_ends(now)
        if not self._ends:
            return 0.0
        # Not since the first end: before it, too, jobs were at work.
        since_s = min(LATELY_S, now - self._began)
        return sum(count for _, count in self._ends) / max(1.0, since_s)

    def eta_s(self, now: float) -> float | None:
        """How long it will take at this rate; None if that cannot be told."""
        rate = self.rate(now)
        left = self.batch.count - sum(self.counts[state] for state in FINAL)
        return left / rate if rate else None

    def _note_end(self, now: float) -> None:
        if self._ends and self._ends[-1][0] == now:
            self._ends[-1] = now, self._ends[-1][1] + 1
        else:
            self._ends.append((now, 1))
            self._forget_ends(now)

    def _forget_ends(self, now: float) -> None:
        while self._ends and self._ends[0][0] < now - LATELY_S:
            self._ends.popleft()
