"""What one turn of the loop decided."""

from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from towline.model.events import Order
from towline.model.job import Attempt, Job
from towline.model.journal import Kind, Told
from towline.model.reason import Reason
from towline.model.team.rules import Share


class Step(Struct):
    """What one turn of the loop decided."""

    changed: dict[int, Job] = field(default_factory=dict)
    #: Those of them that were submitted in this very step.
    fresh: set[int] = field(default_factory=set)
    #: What goes into the journal, in order.
    told: list[Told] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    #: Attempts that will be followed by another.
    past: list[tuple[int, Attempt]] = field(default_factory=list)
    #: What could not be handled, and why.
    failures: list[tuple[str, Exception]] = field(default_factory=list)
    #: When to ask again though nothing happens before.
    wake_at: float | None = None
    #: All that jobs printed that ended in this step, where it came with their ending.
    said: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    #: Batches that need not wait for others any more, or why they never can begin.
    chained: list[tuple[str, Reason | None]] = field(default_factory=list)
    #: Batches whose jobs follow, in the queue of their cluster, what the batch waits for.
    followed: list[str] = field(default_factory=list)
    #: What owners have used, where that is to outlive the Engine.
    shares: list[Share] = field(default_factory=list)
    #: Each job as it was written last; None: it has no row yet.
    _before: dict[int, Job | None] = field(default_factory=dict)
    #: Each job as the journal knows it so far.
    _latest: dict[int, Job | None] = field(default_factory=dict)

    def was(self, job_id: int, before: Job | None) -> None:
        """Say how a job stood before this step, before it is changed for the first time."""
        self._before.setdefault(job_id, before)

    def before(self, job_id: int) -> Job | None:
        return self._before.get(job_id)

    def tell(self, job: Job, kind: Kind, **data: Any) -> None:
        """Enter into the journal what a job has become."""
        latest = self._latest.get(job.id, self._before.get(job.id))
        self.told.append(Told(kind, latest, job, data))
        self._latest[job.id] = job

    def tell_the_rest(self) -> None:
        """Enter every change that nothing was said of: the journal is complete."""
        for job in self.changed.values():
            if self._latest.get(job.id, self._before.get(job.id)) != job:
                self.tell(job, Kind.CHANGED)

    def came_home(self, job: Job) -> None:
        """A job ended in this step, and all that it made is home already."""
        self.changed[job.id] = job
        if not job.spec.batch:
            self.tell(job, Kind.HOME)
            return
        # Of these there are very many: one event says both.
        place = max(n for n, told in enumerate(self.told) if told.job.id == job.id)
        self.told[place] = replace(self.told[place], job=job)
        self._latest[job.id] = job

    def remember(self, job: Job) -> None:
        """Its present attempt will be followed by another, or is unheard of."""
        if job.attempt is not None:
            self.past.append((job.id, job.attempt))

    def take_back_fresh(self) -> None:
        """As if nothing had been submitted in it."""
        for job_id in self.fresh:
            self.changed.pop(job_id, None)
        self.orders = [order for order in self.orders if order.job.id not in self.fresh]
        self.told = [told for told in self.told if told.job.id not in self.fresh]
        self.fresh.clear()
