"""Buckets in the order of their first jobs, by kind of request, priority and owner."""

from bisect import bisect_left, insort
from math import inf

from towline.core.machines.want import Want
from towline.core.scheduling.bucket import Bucket, Entry
from towline.core.scheduling.placement import Groups, Lacking

#: Rank of a job: smaller goes first.
Rank = tuple[int, float, int]


class Lane:
    """Buckets of one owner and priority, by their first job."""

    __slots__ = ("cursor", "first", "order", "owner", "turn")

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.order: list[Entry] = []
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
        order = self.order
        if old is not None:
            del order[bisect_left(order, old)]
        if new is not None:
            insort(order, new)
        self.first = order[0] if order else None


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
        "blocked",
        "cpu",
        "fresh",
        "idle",
        "key",
        "lack",
        "loosest",
        "mem",
        "plain",
        "possible",
        "request",
        "version",
    )

    def __init__(self, key: tuple[object, ...], bucket: Bucket) -> None:
        super().__init__(bucket.cluster)
        self.key = key
        self.idle = least_idle(bucket.groups)
        #: One process that needs CPUs and memory, and no more.
        self.plain = bucket.single and not (
            bucket.groups[0][1].gpus or bucket.groups[0][1].exclusive
        )
        self._loosen([want for _, want in bucket.groups])
        #: What all of them lacked when last tried, if they are alike.
        self.lack: Lacking | None = None
        self.request = bucket.request
        #: True while all of its requests are not only about the same, but the same.
        self.alike = True
        #: Has a bucket that was not tried yet.
        self.fresh = True
        #: What a blocked bucket is, all of them are.
        self.blocked = False
        #: Whether a freed machine may take one of its processes, as of this version of the pool.
        self.possible = True
        self.version = -1

    def admit(self, bucket: Bucket) -> None:
        if bucket.request != self.request:
            self.alike = self.blocked = False
            self.lack = None
        pairs = zip(self.loosest, bucket.groups, strict=True)
        self._loosen([looser(least, want) for least, (_, want) in pairs])

    def _loosen(self, loosest: list[Want]) -> None:
        self.loosest = loosest
        #: No room with less CPU or memory can take any of its processes.
        self.cpu = min((want.cpu for want in loosest), default=0)
        self.mem = min((want.mem for want in loosest), default=0)

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


def least_idle(groups: Groups) -> int:
    """No room with fewer idle GPUs can take any of the processes."""
    return min((want.gpu_count if want.whole else 0 for _, want in groups), default=0)


def kind_key(groups: Groups) -> tuple[object, ...]:
    return tuple((count.bit_length(), *want.kind()) for count, want in groups)
