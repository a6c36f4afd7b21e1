"""Equal waiting jobs, kept together in as little memory as a million of them needs."""

from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from msgspec import Struct

from towline.core.machines.demand import NO_RIGHTS, Rights, demands_of, level
from towline.core.scheduling.placement import Groups
from towline.model.job import Job
from towline.model.request import Request

if TYPE_CHECKING:
    from towline.core.scheduling.owner_queues import OwnerQueue, ShapeClass

#: No time of waiting is worth as much as one step of an owner's own priorities.
OWN_STEP_S = 1e10


class Waiting(Struct, frozen=True):
    """A job that waits for its machines."""

    id: int
    cluster: str
    request: Request
    owner: str = ""
    priority: int = 0
    submitted: float = 0.0
    #: 0: no limit.
    time_s: float = 0.0
    avoid: tuple[str, ...] = ()
    #: Of its batch, at most so many run at a time; 0: as many as there is room for.
    at_most: int = 0
    batch: str = ""
    #: In a team: the groups whose machines it may use, and its priority among its owner's jobs.
    rights: Rights = NO_RIGHTS
    own: int = 0


def as_waiting(job: Job, request: Request) -> Waiting:
    """A job as its queue sees it."""
    return Waiting(
        id=job.id,
        cluster=job.spec.cluster,
        request=request,
        owner=job.spec.owner,
        priority=job.spec.priority,
        submitted=job.submitted,
        time_s=job.spec.time_s,
        avoid=job.avoid,
        at_most=job.spec.at_most,
        batch=f"{job.spec.owner}/{job.spec.batch}" if job.spec.at_most else "",
    )


class Bucket:
    """Equal jobs, the oldest first. Withdrawn ones stay as holes until they come to the front."""

    __slots__ = (
        "avoid",
        "barred",
        "barred_at",
        "blocked",
        "cluster",
        "count",
        "entry",
        "gone",
        "gpu_count",
        "groups",
        "ids",
        "key",
        "lead",
        "limits",
        "own",
        "owner",
        "priority",
        "queues",
        "refused_at",
        "request",
        "rights",
        "round_number",
        "shape",
        "start",
        "submitted",
        "unkept_at",
        "weight",
    )

    def __init__(self, job: Waiting, key: tuple[object, ...] = ()) -> None:
        self.key = key
        self.cluster = job.cluster
        self.owner = job.owner
        self.priority = job.priority
        self.request = job.request
        self.avoid = job.avoid
        self.own = job.own
        self.rights = job.rights
        #: How far its jobs are before others of their owner, in seconds of waiting.
        self.lead = job.own * OWN_STEP_S
        self.groups: Groups = demands_of(job.request, job.rights)
        self.gpu_count = sum(count * demand.gpu_count for count, demand in self.groups)
        self.weight = sum(count * demand.weight for count, demand in self.groups)
        self.ids = array("q")
        self.submitted = array("d")
        self.limits = array("d")
        self.start = 0
        self.count = 0
        #: Withdrawn, but still in the arrays.
        self.gone: set[int] = set()
        #: Its place in its queue.
        self.entry: Entry | None = None
        self.shape: ShapeClass | None = None
        #: Its queue in its shape, and its queue in its cluster.
        self.queues: tuple[OwnerQueue, OwnerQueue] | None = None
        #: Known to fit nowhere but, perhaps, on machines freed since.
        self.blocked = False
        #: `changes.free` when it was last refused.
        self.refused_at = -1
        #: `changes.potential` when no machines could be kept for it.
        self.unkept_at = -1
        #: The round in which it was last tried.
        self.round_number = -1
        #: Machines it avoids while others could take it, and `changes.potential` at that time.
        self.barred: tuple[str, ...] = ()
        self.barred_at = -1

    @property
    def single(self) -> bool:
        return len(self.groups) == 1 and self.groups[0][0] == 1

    @property
    def limit_s(self) -> float:
        """The time limit of its first job."""
        return self.limits[self.start]

    def add(self, job: Waiting) -> None:
        if job.id in self.gone:
            self.close_holes()
        place = len(self.ids)
        if place > self.start and (job.submitted, job.id) < (self.submitted[-1], self.ids[-1]):
            low = bisect_left(self.submitted, job.submitted, self.start)
            high = bisect_right(self.submitted, job.submitted, low)
            place = bisect_left(self.ids, job.id, low, high)
        self.ids.insert(place, job.id)
        self.submitted.insert(place, job.submitted)
        self.limits.insert(place, job.time_s)
        self.count += 1

    def as_waiting(self) -> list[Waiting]:
        """Its jobs, as they were added."""
        self.close_holes()
        return [
            Waiting(
                id=self.ids[place],
                cluster=self.cluster,
                request=self.request,
                owner=self.owner,
                priority=self.priority,
                submitted=self.submitted[place],
                time_s=self.limits[place],
                avoid=self.avoid,
                rights=self.rights,
                own=self.own,
            )
            for place in range(self.start, len(self.ids))
        ]

    def skip_to(self, start: int) -> None:
        """Forget what is before; the arrays shrink once half of them is past."""
        self.start = start
        if start > 64 and start * 2 > len(self.ids):
            del self.ids[:start], self.submitted[:start], self.limits[:start]
            self.start = 0

    def skip_holes(self) -> None:
        """Make the first that still waits the first."""
        start = self.start
        while start < len(self.ids) and self.ids[start] in self.gone:
            self.gone.discard(self.ids[start])
            start += 1
        self.skip_to(start)

    def close_holes(self) -> None:
        """Make the arrays hold only what waits, so that places can be counted."""
        if self.gone:
            keep = [n for n in range(self.start, len(self.ids)) if self.ids[n] not in self.gone]
            self.ids = array("q", (self.ids[n] for n in keep))
            self.submitted = array("d", (self.submitted[n] for n in keep))
            self.limits = array("d", (self.limits[n] for n in keep))
            self.start = 0
            self.gone.clear()

    def place(self, job_id: int) -> int:
        return self.ids.index(job_id, self.start)


#: A bucket's place in its queues: when its first job was submitted (less the lead that it has
#: among its owner's), that job, the bucket.
Entry = tuple[float, int, Bucket]


def bucket_key(job: Waiting) -> tuple[object, ...]:
    """What equal jobs have in common; of time limits, only about how long they are."""
    limit = level(int(job.time_s) + 1) if job.time_s else 0
    return (
        job.cluster,
        job.owner,
        job.priority,
        job.request,
        job.avoid,
        limit,
        job.rights,
        job.own,
    )
