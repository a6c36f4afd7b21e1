"""Buckets in the order of their first jobs, by shape of request, priority and owner."""

from bisect import bisect_left, insort
from math import inf

from towline.core.machines.demand import Demand
from towline.core.scheduling.bucket import Bucket, Entry
from towline.core.scheduling.fairshare import Penalties, Rank
from towline.core.scheduling.placement import Groups, Lacking

__all__ = ["OwnerQueue", "OwnerQueues", "Rank", "ShapeClass", "least_idle", "shape_key"]


class OwnerQueue:
    """Buckets of one owner and priority, by their first job."""

    __slots__ = ("cursor", "first", "order", "owner", "round_number")

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.order: list[Entry] = []
        self.first: Entry | None = None
        #: Buckets already refused in this round of decisions.
        self.cursor = 0
        self.round_number = -1

    def next(self) -> Entry | None:
        """The first bucket that was not refused in the queue's round."""
        return self.order[self.cursor] if self.cursor < len(self.order) else None

    def refuse(self, round_number: int) -> None:
        self.cursor = self.cursor + 1 if self.round_number == round_number else 1
        self.round_number = round_number

    def move(self, old: Entry | None, new: Entry | None) -> None:
        order = self.order
        if old is not None:
            del order[bisect_left(order, old)]
        if new is not None:
            insort(order, new)
        self.first = order[0] if order else None


class OwnerQueues:
    """The queues of a shape or of a whole cluster, by priority and owner."""

    __slots__ = ("cluster", "priorities")

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        #: priority -> owner -> queue, the highest priority first.
        self.priorities: dict[int, dict[str, OwnerQueue]] = {}

    def owner_queue(self, owner: str, priority: int) -> OwnerQueue:
        if priority not in self.priorities:
            self.priorities[priority] = {}
            self.priorities = dict(sorted(self.priorities.items(), reverse=True))
        queues = self.priorities[priority]
        return queues.get(owner) or queues.setdefault(owner, OwnerQueue(owner))

    def close(self, owner: str, priority: int) -> None:
        """Forget an empty queue."""
        queues = self.priorities[priority]
        if not queues[owner].order:
            del queues[owner]
            if not queues:
                del self.priorities[priority]

    def best(
        self, round_number: int, penalties: Penalties
    ) -> tuple[Rank, OwnerQueue, Bucket] | None:
        """The best-ranked bucket that was not refused in this round."""
        if penalties.fair:
            return self._best_in_turn(round_number, penalties)
        for priority, queues in self.priorities.items():
            found: Entry | None = None
            least = inf
            for owner, owner_queue in queues.items():
                entry = (
                    owner_queue.first
                    if owner_queue.round_number != round_number
                    else owner_queue.next()
                )
                if entry is not None:
                    score = entry[0] + penalties[owner]
                    if found is None or score < least or (score == least and entry[1] < found[1]):
                        least, found, where = score, entry, owner_queue
            if found is not None:
                return (-priority, least, 0.0, found[1]), where, found[2]
        return None

    def _best_in_turn(
        self, round_number: int, penalties: Penalties
    ) -> tuple[Rank, OwnerQueue, Bucket] | None:
        """The same in a team, where there is but one priority."""
        best: tuple[Rank, OwnerQueue, Bucket] | None = None
        for queues in self.priorities.values():
            for owner_queue in queues.values():
                tried = owner_queue.round_number == round_number
                entry = owner_queue.next() if tried else owner_queue.first
                if entry is not None:
                    rank = penalties.rank(entry[2])
                    if best is None or rank < best[0]:
                        best = rank, owner_queue, entry[2]
        return best


class ShapeClass(OwnerQueues):
    """Requests of about the same size; `loosest` is the least that any of them needs."""

    __slots__ = (
        "alike",
        "blocked",
        "cpu",
        "fresh",
        "idle",
        "key",
        "lack",
        "looked_at",
        "loosest",
        "mem",
        "plain",
        "possible",
        "request",
    )

    def __init__(self, key: tuple[object, ...], bucket: Bucket) -> None:
        super().__init__(bucket.cluster)
        self.key = key
        self.idle = least_idle(bucket.groups)
        #: One process that needs CPUs and memory, and no more.
        self.plain = bucket.single and not (
            bucket.groups[0][1].gpus or bucket.groups[0][1].exclusive
        )
        self._loosen([demand for _, demand in bucket.groups])
        #: What all of them lacked when last tried, if they are alike.
        self.lack: Lacking | None = None
        self.request = bucket.request
        #: True while all of its requests are not only about the same, but the same.
        self.alike = True
        #: Has a bucket that was not tried yet.
        self.fresh = True
        #: What a blocked bucket is, all of them are.
        self.blocked = False
        #: Whether a freed machine may take one of its processes, and `changes.any` at that time.
        self.possible = True
        self.looked_at = -1

    def admit(self, bucket: Bucket) -> None:
        if bucket.request != self.request:
            self.alike = self.blocked = False
            self.lack = None
        pairs = zip(self.loosest, bucket.groups, strict=True)
        self._loosen([looser(least, demand) for least, (_, demand) in pairs])

    def _loosen(self, loosest: list[Demand]) -> None:
        self.loosest = loosest
        #: No host with less CPU or memory can take any of its processes.
        self.cpu = min((demand.cpu for demand in loosest), default=0)
        self.mem = min((demand.mem for demand in loosest), default=0)

    def highest(self) -> int:
        return next(iter(self.priorities))


def looser(least: Demand, demand: Demand) -> Demand:
    """The least of two needs of one shape in every respect."""
    if (
        least.cpu <= demand.cpu
        and least.mem <= demand.mem
        and least.gpu_mem <= demand.gpu_mem
        and least.gpu_util <= demand.gpu_util
    ):
        return least
    both = object.__new__(Demand)
    for name in Demand.__slots__:
        setattr(both, name, getattr(least, name))
    both.cpu = min(least.cpu, demand.cpu)
    both.mem = min(least.mem, demand.mem)
    both.gpu_mem = min(least.gpu_mem, demand.gpu_mem)
    both.gpu_util = min(least.gpu_util, demand.gpu_util)
    return both


def least_idle(groups: Groups) -> int:
    """No host with fewer idle GPUs can take any of the processes."""
    return min((demand.gpu_count if demand.whole else 0 for _, demand in groups), default=0)


def shape_key(groups: Groups) -> tuple[object, ...]:
    return tuple((count.bit_length(), *demand.shape()) for count, demand in groups)
