"""The waiting jobs: a million of them, a few kinds.

Equal jobs (cluster, owner, priority, request, machines to avoid, about the same time limit) share a
bucket, first come first served. Buckets of one owner and priority whose requests are about the same
size form a lane, ordered by their first job; the lanes of requests about the same size form a kind.
A decision looks at kinds first, then at the first bucket of their lanes: never at jobs.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator

from towline.core.machines.want import level
from towline.core.scheduling.bucket import Bucket, Waiting, bucket_key
from towline.core.scheduling.lanes import Kind, Lanes, kind_key, least_idle
from towline.core.scheduling.placement import Groups


class Most:
    """The most that one process of any job needs that waits in a cluster."""

    __slots__ = ("alone", "cpu", "gpus", "mem")

    def __init__(self, kinds: Iterable[Kind]) -> None:
        wants = [want for kind in kinds for want in kind.loosest]
        self.cpu = max((level(want.cpu) for want in wants), default=0)
        self.mem = max((level(want.mem) for want in wants), default=0)
        #: Somebody needs a machine, or GPUs, alone.
        self.alone = any(want.exclusive for want in wants)
        self.gpus = any(want.gpus and want.reserved for want in wants)


class Queue:
    """Every waiting job, by id, by bucket and by kind."""

    def __init__(self) -> None:
        self.waiting: dict[int, Bucket] = {}
        #: cluster -> idle GPUs that one process needs -> kinds of request that wait there.
        self.kinds: dict[str, dict[int, dict[tuple[object, ...], Kind]]] = {}
        #: cluster -> all of its buckets.
        self.everyone: dict[str, Lanes] = {}
        #: Kinds with a bucket that was not tried yet.
        self.fresh: dict[Kind, None] = {}
        self._buckets: dict[tuple[object, ...], Bucket] = {}
        #: Buckets that avoid machines.
        self.avoiders: dict[Bucket, None] = {}
        self._counts: dict[str, int] = {}
        self._most: dict[str, Most] = {}

    def count_in(self, cluster: str) -> int:
        return self._counts.get(cluster, 0)

    def wants_more(self, cluster: str, groups: Groups) -> bool:
        """Whether a job waits in a cluster that is harder to place than this one."""
        if cluster not in self._most:
            kinds = self.kinds.get(cluster, {}).values()
            self._most[cluster] = Most(kind for found in kinds for kind in found.values())
        most = self._most[cluster]
        if any(want.gpus for _, want in groups):
            return most.gpus
        return most.alone or any(
            most.cpu > level(want.cpu) or most.mem > level(want.mem) for _, want in groups
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
        if bucket.entry is None or (job.submitted, job.id) < bucket.entry[:2]:
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
        assert bucket.kind is not None
        bucket.kind.fresh = True
        bucket.kind.blocked = False
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
        key = kind_key(bucket.groups)
        idle = least_idle(bucket.groups)
        kinds = self.kinds.setdefault(cluster, {}).setdefault(idle, {})
        if key in kinds:
            kinds[key].admit(bucket)
        else:
            kinds[key] = Kind(key, bucket)
            self._most.pop(cluster, None)
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
        del self._buckets[bucket.key]
        self.avoiders.pop(bucket, None)
        kind, everyone = bucket.kind, self.everyone[cluster]
        kind.close(owner, priority)
        everyone.close(owner, priority)
        if not kind.priorities:
            self.fresh.pop(kind, None)
            self._most.pop(cluster, None)
            del self.kinds[cluster][kind.idle][kind.key]
        if not everyone.priorities:
            del self.everyone[cluster], self.kinds[cluster]
