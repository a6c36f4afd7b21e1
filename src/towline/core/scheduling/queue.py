"""The waiting jobs: a million of them, a few shapes.

Equal jobs (cluster, owner, priority, request, machines to avoid, about the same time limit) share a
bucket, first come first served. Buckets of one owner and priority whose requests are about the same
size form an owner's queue, ordered by their first job; the queues of requests about the same size
form a class of shapes. A decision looks at these first, then at the first bucket of their queues:
never at jobs.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator

from towline.core.machines.demand import level
from towline.core.scheduling.bucket import Bucket, Waiting, bucket_key
from towline.core.scheduling.owner_queues import OwnerQueues, ShapeClass, least_idle, shape_key
from towline.core.scheduling.placement import Groups


class Most:
    """The most that one process of any job needs that waits in a cluster."""

    __slots__ = ("alone", "cpu", "gpus", "mem")

    def __init__(self, shapes: Iterable[ShapeClass]) -> None:
        demands = [demand for shape in shapes for demand in shape.loosest]
        self.cpu = max((level(demand.cpu) for demand in demands), default=0)
        self.mem = max((level(demand.mem) for demand in demands), default=0)
        #: Somebody needs a machine, or GPUs, alone.
        self.alone = any(demand.exclusive for demand in demands)
        self.gpus = any(demand.gpus and demand.reserved for demand in demands)


class WaitingQueue:
    """Every waiting job, by id, by bucket and by shape."""

    def __init__(self) -> None:
        self.waiting: dict[int, Bucket] = {}
        #: cluster -> idle GPUs that one process needs -> shapes of request that wait there.
        self.shapes: dict[str, dict[int, dict[tuple[object, ...], ShapeClass]]] = {}
        #: cluster -> all of its buckets.
        self.everyone: dict[str, OwnerQueues] = {}
        #: Shapes with a bucket that was not tried yet.
        self.fresh: dict[ShapeClass, None] = {}
        self._buckets: dict[tuple[object, ...], Bucket] = {}
        #: Buckets that avoid machines.
        self.avoiders: dict[Bucket, None] = {}
        self._counts: dict[str, int] = {}
        self._most: dict[str, Most] = {}

    def count_in(self, cluster: str) -> int:
        return self._counts.get(cluster, 0)

    def harder_waits(self, cluster: str, groups: Groups) -> bool:
        """Whether a job waits in a cluster that is harder to place than this one."""
        if cluster not in self._most:
            shapes = self.shapes.get(cluster, {}).values()
            self._most[cluster] = Most(shape for found in shapes for shape in found.values())
        most = self._most[cluster]
        if any(demand.gpus for _, demand in groups):
            return most.gpus
        return most.alone or any(
            most.cpu > level(demand.cpu) or most.mem > level(demand.mem) for _, demand in groups
        )

    def add(self, job: Waiting) -> None:
        key = bucket_key(job)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = Bucket(job, key)
            self._enter(bucket)
        bucket.add(job)
        self.waiting[job.id] = bucket
        self._counts[job.cluster] = self.count_in(job.cluster) + 1
        if bucket.entry is None or (job.submitted - bucket.lead, job.id) < bucket.entry[:2]:
            self._advance(bucket)

    def drop(self, job_id: int) -> None:
        """Take a waiting job out, wherever it stands."""
        bucket = self.waiting.pop(job_id)
        bucket.count -= 1
        bucket.gone.add(job_id)
        left = self._counts[bucket.cluster] - 1
        self._counts[bucket.cluster] = left
        if not left:
            del self._counts[bucket.cluster]
        if bucket.entry is not None and bucket.entry[1] == job_id:
            self._advance(bucket)

    def wake(self, bucket: Bucket) -> None:
        """Try it again everywhere."""
        bucket.blocked = False
        assert bucket.shape is not None
        bucket.shape.fresh = True
        bucket.shape.blocked = False
        self.fresh[bucket.shape] = None

    def buckets_in(self, cluster: str) -> Iterator[Bucket]:
        everyone = self.everyone.get(cluster)
        for queues in everyone.priorities.values() if everyone is not None else ():
            for owner_queue in queues.values():
                for _, _, bucket in owner_queue.order:
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
        key = shape_key(bucket.groups)
        idle = least_idle(bucket.groups)
        shapes = self.shapes.setdefault(cluster, {}).setdefault(idle, {})
        if key in shapes:
            shapes[key].admit(bucket)
        else:
            shapes[key] = ShapeClass(key, bucket)
            self._most.pop(cluster, None)
        bucket.shape = shapes[key]
        if cluster not in self.everyone:
            self.everyone[cluster] = OwnerQueues(cluster)
        bucket.queues = (
            bucket.shape.owner_queue(owner, priority),
            self.everyone[cluster].owner_queue(owner, priority),
        )
        if bucket.avoid:
            self.avoiders[bucket] = None
        self.wake(bucket)

    def _advance(self, bucket: Bucket) -> None:
        """Its first job changed: find it, and the bucket's new place in its queues."""
        bucket.skip_holes()
        assert bucket.queues is not None
        entry = None
        if bucket.count:
            first = bucket.submitted[bucket.start] - bucket.lead
            entry = first, bucket.ids[bucket.start], bucket
        for owner_queue in bucket.queues:
            owner_queue.move(bucket.entry, entry)
        bucket.entry = entry
        if entry is None:
            self._leave(bucket)

    def _leave(self, bucket: Bucket) -> None:
        assert bucket.shape is not None
        cluster, owner, priority = bucket.cluster, bucket.owner, bucket.priority
        del self._buckets[bucket.key]
        self.avoiders.pop(bucket, None)
        shape, everyone = bucket.shape, self.everyone[cluster]
        shape.close(owner, priority)
        everyone.close(owner, priority)
        if not shape.priorities:
            self.fresh.pop(shape, None)
            self._most.pop(cluster, None)
            del self.shapes[cluster][shape.idle][shape.key]
        if not everyone.priorities:
            del self.everyone[cluster], self.shapes[cluster]
