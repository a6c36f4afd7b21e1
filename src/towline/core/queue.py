"""The waiting jobs: a million of them, a few kinds.

Equal jobs (cluster, owner, priority, request, machines to avoid) share a bucket, first come first
served. Buckets of one owner and priority whose requests are about the same size form a lane, ordered
by their first job; the lanes of requests about the same size form a kind. A decision looks at kinds
first, then at the first bucket of their lanes: never at jobs.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from math import inf

from msgspec import Struct
from sortedcontainers import SortedList

from towline.core.placement import Groups, Lacking
from towline.core.want import Want, wants_of
from towline.model.request import Request

#: Rank of a job: smaller goes first.
Rank = tuple[int, float, int]


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
        "groups",
        "ids",
        "kind",
        "lanes",
        "limits",
        "news",
        "owner",
        "priority",
        "request",
        "start",
        "submitted",
        "turn",
        "unkept",
        "weight",
    )

    def __init__(self, job: Waiting) -> None:
        self.cluster = job.cluster
        self.owner = job.owner
        self.priority = job.priority
        self.request = job.request
        self.avoid = job.avoid
        self.groups: Groups = wants_of(job.request)
        self.weight = sum(count * want.weight for count, want in self.groups)
        self.ids = array("q")
        self.submitted = array("d")
        self.limits = array("d")
        self.start = 0
        self.count = 0
        #: Withdrawn, but still in the arrays.
        self.gone: set[int] = set()
        #: Its place in its lane.
        self.entry: Entry | None = None
        self.kind: Kind | None = None
        #: Its lane in its kind, and its lane in its cluster.
        self.lanes: tuple[Lane, Lane] | None = None
        #: Known to fit nowhere but, perhaps, on machines freed since.
        self.blocked = False
        #: The pool's news when it was last refused.
        self.news = -1
        #: The pool's relief when no machines could be kept for it.
        self.unkept = -1
        #: The turn in which it was last tried.
        self.turn = -1
        #: Machines it avoids while others could take it, and the make-up of the pool at that time.
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


Entry = tuple[float, int, Bucket]


class Lane:
    """Buckets of one owner and priority, by their first job."""

    __slots__ = ("cursor", "first", "order", "owner", "turn")

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.order: SortedList = SortedList()
        self.first: Entry | None = None
        #: Buckets already refused in this turn of decisions.
        self.cursor = 0
        self.turn = -1

    def next(self) -> Entry | None:
        """The first bucket that was not refused in the lane's turn."""
        return self.order[self.cursor] if self.cursor < len(self.order) else None

    def refuse(self, turn: int) -> None:
        self.cursor = self.cursor + 1 if self.turn == turn else 1
        self.turn = turn

    def move(self, old: Entry | None, new: Entry | None) -> None:
        if old is not None:
            self.order.remove(old)
        if new is not None:
            self.order.add(new)
        self.first = self.order[0] if self.order else None


class Lanes:
    """The lanes of a kind or of a whole cluster, by priority and owner."""

    __slots__ = ("cluster", "priorities")

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        #: priority -> owner -> lane, the highest priority first.
        self.priorities: dict[int, dict[str, Lane]] = {}

    def lane(self, owner: str, priority: int) -> Lane:
        if priority not in self.priorities:
            self.priorities[priority] = {}
            self.priorities = dict(sorted(self.priorities.items(), reverse=True))
        lanes = self.priorities[priority]
        return lanes.get(owner) or lanes.setdefault(owner, Lane(owner))

    def close(self, owner: str, priority: int) -> None:
        """Forget an empty lane."""
        lanes = self.priorities[priority]
        if not lanes[owner].order:
            del lanes[owner]
            if not lanes:
                del self.priorities[priority]

    def best(self, turn: int, penalties: dict[str, float]) -> tuple[Rank, Lane, Bucket] | None:
        """The best-ranked bucket that was not refused in this turn."""
        for priority, lanes in self.priorities.items():
            found: Entry | None = None
            least = inf
            for owner, lane in lanes.items():
                entry = lane.first if lane.turn != turn else lane.next()
                if entry is not None:
                    score = entry[0] + penalties[owner]
                    if found is None or score < least or (score == least and entry[1] < found[1]):
                        least, found, where = score, entry, lane
            if found is not None:
                return (-priority, least, found[1]), where, found[2]
        return None


class Kind(Lanes):
    """Requests of about the same size; `loosest` is the least that any of them needs."""

    __slots__ = (
        "alike",
        "cpu",
        "fresh",
        "idle",
        "key",
        "lack",
        "loosest",
        "mem",
        "possible",
        "request",
        "version",
    )

    def __init__(self, key: tuple[object, ...], bucket: Bucket) -> None:
        super().__init__(bucket.cluster)
        self.key = key
        self._loosen([want for _, want in bucket.groups])
        #: What all of them lacked when last tried, if they are alike.
        self.lack: Lacking | None = None
        self.request = bucket.request
        #: True while all of its requests are not only about the same, but the same.
        self.alike = True
        #: Has a bucket that was not tried yet.
        self.fresh = True
        #: Whether a freed machine may take one of its processes, as of this version of the pool.
        self.possible = True
        self.version = -1

    def admit(self, bucket: Bucket) -> None:
        if bucket.request != self.request:
            self.alike = False
            self.lack = None
        pairs = zip(self.loosest, bucket.groups, strict=True)
        self._loosen([looser(least, want) for least, (_, want) in pairs])

    def _loosen(self, loosest: list[Want]) -> None:
        self.loosest = loosest
        #: No room with less CPU, memory or idle GPUs can take any of its processes.
        self.cpu = min((want.cpu for want in loosest), default=0)
        self.mem = min((want.mem for want in loosest), default=0)
        self.idle = min((want.gpu_count if want.whole else 0 for want in loosest), default=0)

    def highest(self) -> int:
        return next(iter(self.priorities))


def looser(least: Want, want: Want) -> Want:
    """The least of two needs of one kind in every respect."""
    if (
        least.cpu <= want.cpu
        and least.mem <= want.mem
        and least.gpu_mem <= want.gpu_mem
        and least.gpu_util <= want.gpu_util
    ):
        return least
    both = object.__new__(Want)
    for name in Want.__slots__:
        setattr(both, name, getattr(least, name))
    both.cpu = min(least.cpu, want.cpu)
    both.mem = min(least.mem, want.mem)
    both.gpu_mem = min(least.gpu_mem, want.gpu_mem)
    both.gpu_util = min(least.gpu_util, want.gpu_util)
    return both


def kind_key(groups: Groups) -> tuple[object, ...]:
    return tuple((count.bit_length(), *want.kind()) for count, want in groups)


class Queue:
    """Every waiting job, by id, by bucket and by kind."""

    def __init__(self) -> None:
        self.waiting: dict[int, Bucket] = {}
        #: cluster -> kinds of request that wait there.
        self.kinds: dict[str, dict[tuple[object, ...], Kind]] = {}
        #: cluster -> all of its buckets.
        self.everyone: dict[str, Lanes] = {}
        #: Kinds with a bucket that was not tried yet.
        self.fresh: dict[Kind, None] = {}
        self._buckets: dict[tuple[object, ...], Bucket] = {}
        #: Buckets that avoid machines.
        self.avoiders: dict[Bucket, None] = {}
        self._counts: dict[str, int] = {}

    def count_in(self, cluster: str) -> int:
        return self._counts.get(cluster, 0)

    def add(self, job: Waiting) -> None:
        key = (job.cluster, job.owner, job.priority, job.request, job.avoid)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = Bucket(job)
            self._enter(bucket)
        bucket.add(job)
        self.waiting[job.id] = bucket
        self._counts[job.cluster] = self.count_in(job.cluster) + 1
        if bucket.entry is None or (job.submitted, job.id) < bucket.entry[:2]:
            self._advance(bucket)

    def drop(self, job_id: int) -> Bucket | None:
        """Take a job out, wherever it stands."""
        bucket = self.waiting.pop(job_id, None)
        if bucket is None:
            return None
        bucket.count -= 1
        bucket.gone.add(job_id)
        left = self._counts[bucket.cluster] - 1
        self._counts[bucket.cluster] = left
        if not left:
            del self._counts[bucket.cluster]
        if bucket.entry is not None and bucket.entry[1] == job_id:
            self._advance(bucket)
        return bucket

    def wake(self, bucket: Bucket) -> None:
        """Try it again everywhere."""
        bucket.blocked = False
        assert bucket.kind is not None
        bucket.kind.fresh = True
        self.fresh[bucket.kind] = None

    def buckets_in(self, cluster: str) -> Iterator[Bucket]:
        everyone = self.everyone.get(cluster)
        for lanes in everyone.priorities.values() if everyone is not None else ():
            for lane in lanes.values():
                for _, _, bucket in lane.order:
                    yield bucket

    def before(self, bucket: Bucket, job_id: int, penalty: Callable[[str], float]) -> int:
        """How many jobs of its cluster rank before a job."""
        bucket.close_holes()
        place = bucket.place(job_id)
        rank = -bucket.priority, bucket.submitted[place] + penalty(bucket.owner), job_id
        found = place - bucket.start
        for other in self.buckets_in(bucket.cluster):
            if other is bucket or other.priority < bucket.priority:
                continue
            other.close_holes()
            if other.priority > bucket.priority:
                found += other.count
                continue
            bound = rank[1] - penalty(other.owner)
            low = bisect_left(other.submitted, bound, other.start)
            high = bisect_right(other.submitted, bound, low)
            found += bisect_left(other.ids, job_id, low, high) - other.start
        return found

    def _enter(self, bucket: Bucket) -> None:
        cluster, owner, priority = bucket.cluster, bucket.owner, bucket.priority
        kinds = self.kinds.setdefault(cluster, {})
        key = kind_key(bucket.groups)
        if key in kinds:
            kinds[key].admit(bucket)
        else:
            kinds[key] = Kind(key, bucket)
        bucket.kind = kinds[key]
        if cluster not in self.everyone:
            self.everyone[cluster] = Lanes(cluster)
        bucket.lanes = (
            bucket.kind.lane(owner, priority),
            self.everyone[cluster].lane(owner, priority),
        )
        if bucket.avoid:
            self.avoiders[bucket] = None
        self.wake(bucket)

    def _advance(self, bucket: Bucket) -> None:
        """Its first job changed: find it, and the bucket's new place in its lanes."""
        bucket.skip_holes()
        assert bucket.lanes is not None
        entry = None
        if bucket.count:
            entry = bucket.submitted[bucket.start], bucket.ids[bucket.start], bucket
        for lane in bucket.lanes:
            lane.move(bucket.entry, entry)
        bucket.entry = entry
        if entry is None:
            self._leave(bucket)

    def _leave(self, bucket: Bucket) -> None:
        assert bucket.kind is not None
        cluster, owner, priority = bucket.cluster, bucket.owner, bucket.priority
        del self._buckets[cluster, owner, priority, bucket.request, bucket.avoid]
        self.avoiders.pop(bucket, None)
        kind, everyone = bucket.kind, self.everyone[cluster]
        kind.close(owner, priority)
        everyone.close(owner, priority)
        if not kind.priorities:
            self.fresh.pop(kind, None)
            del self.kinds[cluster][kind.key]
        if not everyone.priorities:
            del self.everyone[cluster], self.kinds[cluster]
