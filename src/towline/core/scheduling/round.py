"""One round of decisions: ranked jobs against the machines that were freed.

Requests of a shape take part if one of them was never tried, or if a freed machine may take one of
their processes. While a cluster may keep machines for one job more, all of its buckets are
walked in the order of their ranks as well, because the best-ranked job that does not fit must
become a head before any job behind it is placed.
"""

from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from towline.core.machines.demand import Demand
from towline.core.machines.host_state import HostState
from towline.core.scheduling.backfill import Reservation, reserve
from towline.core.scheduling.bucket import Bucket
from towline.core.scheduling.fairshare import SOONER_S
from towline.core.scheduling.owner_queues import OwnerQueue, OwnerQueues, Rank, ShapeClass
from towline.core.scheduling.placement import Lacking, Search, Seat

if TYPE_CHECKING:
    from towline.core.scheduling.scheduler import Placed, Scheduler

#: Buckets tried in vain, and passed over, per cluster and round: a queue of nothing but odd shapes
#: costs no more than this.
DEPTH = 200
MOST_PASSED = 2000
#: Jobs that may ask for a reservation in one round before the cluster goes without.
MOST_HEADS = 8
#: More freed machines than this are found faster through the index.
FLOOD = 64


class Round:
    def __init__(self, scheduler: "Scheduler", number: int, now: float) -> None:
        self.scheduler = scheduler
        self.machines = scheduler.machines
        self.changes = scheduler.machines.changes
        self.reservations = scheduler.reservations
        self.number = number
        self.now = now
        #: Machines were let go that jobs of another cluster, refused before, may use.
        self.again = False
        self._complete = True
        self._started: list[Placed] = []
        self._heap: list[tuple[Rank, int, OwnerQueues | Reservation]] = []
        self._pushed = 0
        self._queued: set[OwnerQueues] = set()
        self._penalties = scheduler.penalties.at(now)
        self._refused: dict[str, int] = {}
        self._passed: dict[str, int] = {}
        self._heads_tried: dict[str, int] = {}
        #: Clusters that cannot keep machines now, because another cluster's head keeps them.
        self._no_head: set[str] = set()
        #: Clusters of which all buckets are walked.
        self._walks: set[str] = set()

    def take(self, most: int) -> "list[Placed]":
        """Start what can start, at most so many."""
        queue = self.scheduler.queue
        if self.machines.freed or queue.fresh:
            self._gather()
        while self._heap and len(self._started) < most:
            rank, _, item = heappop(self._heap)
            if isinstance(item, Reservation):
                self._try_head(item)
            else:
                self._queued.discard(item)
                self._try_best(rank, item)
        if self._complete and not self._heap and not self.again:
            self.machines.freed.clear()
            for shape in queue.fresh:
                shape.fresh = False
            queue.fresh.clear()
            for cluster in self._walks - self._no_head:
                if cluster not in self._heads_tried:
                    self.reservations.walked[cluster] = self.changes.potential
        return self._started

    def _gather(self) -> None:
        """Who takes part in this round."""
        queue, heads = self.scheduler.queue, self.reservations.heads
        touched = dict.fromkeys(shape.cluster for shape in queue.fresh)
        for family in dict.fromkeys(host.family for host in self.machines.freed.values()):
            if family is not None:
                touched.update(dict.fromkeys(family.clusters))
        for cluster in touched:
            # The widest first: what one leaves over may do for another, not the other way round.
            for head in sorted(heads.get(cluster, ()), key=lambda head: -head.bucket.weight):
                if not self._held_back(head.bucket):
                    self._push(self._rank_of(head), head)
            self._enter_all(cluster)

    def _held_back(self, bucket: Bucket) -> bool:
        """Whether its owner has all that they may; then no machines are kept for it, either."""
        rules = self.scheduler.rules
        if not rules.limited or not rules.holds_back(bucket):
            return False
        for head in self.reservations.of(bucket):
            self.reservations.let_go(head)
        return True

    def _rank_of(self, head: Reservation) -> Rank:
        if self._penalties.fair:
            return self._penalties.rank(head.bucket)
        return (-head.bucket.priority, -inf, 0.0, 0)

    def _enter_all(self, cluster: str) -> None:
        """Let a cluster's shapes take part, and all of its buckets where a head is wanted."""
        everyone = self.scheduler.queue.everyone.get(cluster)
        if everyone is not None:
            stale = self.reservations.walked.get(cluster) != self.changes.potential
            if stale and self._lacks_head(cluster, self._best_rank(everyone)):
                self._walks.add(cluster)
                self._enter(everyone)
            for shape in self._hopeful(cluster):
                self._enter(shape)

    def _best_rank(self, everyone: OwnerQueues) -> Rank:
        if self._penalties.fair:
            best = everyone.best(self.number, self._penalties)
            return best[0] if best is not None else (0, inf, 0.0, 0)
        return (-next(iter(everyone.priorities)), 0.0, 0.0, 0)

    def _hopeful(self, cluster: str) -> list[ShapeClass]:
        """The shapes of a cluster of which a bucket may fit now."""
        queue, hosts = self.scheduler.queue, self.machines.freed.values()
        most_idle = max((host.idle for host in hosts), default=0)
        found = [shape for shape in queue.fresh if shape.cluster == cluster]
        for idle, shapes in queue.shapes[cluster].items():
            if idle <= most_idle:
                found += [
                    shape for shape in shapes.values() if not shape.fresh and self._may_fit(shape)
                ]
        return found

    def _enter(self, queues: OwnerQueues) -> None:
        if queues not in self._queued:
            best = queues.best(self.number, self._penalties)
            if best is not None:
                self._queued.add(queues)
                self._push(best[0], queues)

    def _push(self, rank: Rank, item: OwnerQueues | Reservation) -> None:
        self._pushed += 1
        heappush(self._heap, (rank, self._pushed, item))

    def _may_fit(self, shape: ShapeClass) -> bool:
        """Whether trying the buckets of a shape has a point."""
        if shape.fresh:
            return True
        if shape.looked_at != self.changes.any:
            shape.looked_at = self.changes.any
            shape.possible = len(self.machines.freed) > FLOOD or self._fits_on_a_freed(shape)
        return shape.possible

    def _fits_on_a_freed(self, shape: ShapeClass) -> bool:
        """Whether a freed machine may take a process of a shape; a no is sure, a yes is not."""
        cpu, mem, idle = shape.cpu, shape.mem, shape.idle
        # In a team it is for the search to say from whom something is kept.
        kept = {} if self._penalties.fair else self.reservations.by_host
        for host in self.machines.freed.values():
            if host.cpu_free >= cpu and host.mem_free >= mem and host.idle >= idle:
                head = kept.get(host.name)
                alone = shape.plain and not host.held and head is None
                if alone or may_take(host, shape, head):
                    return True
        return False

    def _try_head(self, head: Reservation) -> None:
        bucket = head.bucket
        if head not in self.reservations.heads.get(bucket.cluster, ()):
            return
        seats = head.ready() if not self.machines.freed.keys().isdisjoint(head.shadows) else None
        assert bucket.shape is not None
        if seats is None and self._is_news(bucket) and self._may_fit(bucket.shape):
            found = self._seats(bucket, self.scheduler.search(bucket, self.now))
            seats = None if isinstance(found, Lacking) else found
        if seats is not None:
            self._start(bucket, seats, head)
        else:
            bucket.round_number = self.number

    def _try_best(self, rank: Rank, queues: OwnerQueues) -> None:
        """Try the best bucket of a shape or cluster; if it is refused, it may become the head."""
        cluster = queues.cluster
        if not queues.priorities:
            return
        if isinstance(queues, ShapeClass):
            if not self._may_fit(queues):
                return
        elif not self._lacks_head(cluster, rank):
            return
        best = queues.best(self.number, self._penalties)
        if best is None:
            return
        rank_now, owner_queue, bucket = best
        if rank_now > rank and self._heap and rank_now > self._heap[0][0]:
            self._enter(queues)
            return
        assert bucket.shape is not None
        if self._held_back(bucket):
            bucket.round_number = self.number
            owner_queue.refuse(self.number)
            go_on = True
        elif self._may_fit(bucket.shape) and self._is_news(bucket):
            go_on = self._try(bucket, owner_queue, queues)
        else:
            self._refuse(bucket, owner_queue)
            go_on = not self._too_many(self._passed, cluster, MOST_PASSED)
        if go_on:
            self._enter(queues)

    def _try(self, bucket: Bucket, owner_queue: OwnerQueue, queues: OwnerQueues) -> bool:
        """Start the first job of a bucket or refuse it; False if its queues need no more trying."""
        search = self.scheduler.search(bucket, self.now)
        seats = self._seats(bucket, search)
        if not isinstance(seats, Lacking):
            self._start(bucket, seats)
            return True
        self._refuse(bucket, owner_queue)
        if self._too_many(self._refused, bucket.cluster, DEPTH):
            return False
        if search.hindered or not self._all_alike(bucket):
            return True
        assert bucket.shape is not None
        bucket.shape.lack = seats
        bucket.shape.blocked = True
        return queues is not bucket.shape

    def _refuse(self, bucket: Bucket, owner_queue: OwnerQueue) -> None:
        """Note that a bucket fits nowhere."""
        bucket.blocked = True
        bucket.round_number = self.number
        bucket.refused_at = self.changes.free
        owner_queue.refuse(self.number)
        self._reserve(bucket)

    def _too_many(self, counts: dict[str, int], cluster: str, most: int) -> bool:
        """Count a refusal; True if the cluster has had enough of them in this round."""
        counts[cluster] = counts.get(cluster, 0) + 1
        if counts[cluster] > most:
            self._complete = False
            return True
        return False

    def _all_alike(self, bucket: Bucket) -> bool:
        """Whether what lacks for a bucket lacks for all others of its shape as well."""
        shape = bucket.shape
        if shape is None or not shape.alike or bucket.avoid:
            return False
        mine = self.machines.families(bucket.cluster, bucket.owner)
        owners = {owner for found in shape.priorities.values() for owner in found}
        return all(self.machines.families(bucket.cluster, owner) is mine for owner in owners)

    def _is_news(self, bucket: Bucket) -> bool:
        """Whether a bucket was not yet refused on the very same machines."""
        if bucket.round_number == self.number:
            return False
        return not bucket.blocked or bucket.refused_at != self.changes.free

    def _lacks_head(self, cluster: str, rank: Rank) -> bool:
        """Whether a job of this rank that does not fit should become the head."""
        if cluster in self._no_head or self._heads_tried.get(cluster, 0) >= MOST_HEADS:
            return False
        heads = self.reservations.heads.get(cluster, ())
        if len(heads) < self.reservations.most(cluster):
            return True
        return any(self._gives_way(head, rank) for head in heads)

    def _gives_way(self, head: Reservation, rank: Rank) -> bool:
        """Whether what is kept for a head is to be kept for another."""
        if self._penalties.fair:
            return rank[1] + SOONER_S < self._penalties.rank(head.bucket)[1]
        return head.bucket.priority < -rank[0]

    def _standing(self, bucket: Bucket) -> Rank:
        """The rank of a bucket as far as it matters for what is kept for it."""
        if self._penalties.fair:
            return self._penalties.rank(bucket)
        return (-bucket.priority, 0.0, 0.0, 0)

    def _start(self, bucket: Bucket, seats: list[Seat], head: Reservation | None = None) -> None:
        scheduler, cluster = self.scheduler, bucket.cluster
        head = head or self.reservations.last_of(bucket)
        self._started.append(scheduler.start(bucket, seats, self.now, head))
        assert bucket.shape is not None
        bucket.shape.lack = None
        if head is not None:
            # A head has started: whoever ranks first now and does not fit is the next one.
            self._enter_all(cluster)
            families = [host.family for host in head.hosts()]
            self.again |= any(
                family is not None and len(family.clusters) > 1 for family in families
            )

    def _seats(self, bucket: Bucket, search: Search) -> list[Seat] | Lacking:
        """Seats for the first job of a bucket, looking no further than there is news."""
        freed = self.machines.freed
        assert bucket.shape is not None
        if (bucket.blocked or bucket.shape.blocked) and len(freed) <= FLOOD:
            hosts = [host for host in freed.values() if search.may_use(host)]
            if bucket.single:
                return search.find_among(bucket.groups[0][1], hosts)
            lack = bucket.shape.lack
            if lack is not None:
                lack.count -= sum(contribution(host, lack) for host in hosts)
                if lack.count > 0:
                    return lack
        return search.find(bucket.groups)

    def _reserve(self, bucket: Bucket) -> None:
        """Keep machines for a job that does not fit, if it is the first of its cluster."""
        scheduler, cluster, reservations = self.scheduler, bucket.cluster, self.reservations
        hopeless = bucket.unkept_at == self.changes.potential
        if hopeless or not self._lacks_head(cluster, self._standing(bucket)):
            return
        if len(reservations.of(bucket)) >= bucket.count:
            return
        self._heads_tried[cluster] = self._heads_tried.get(cluster, 0) + 1
        families = self.machines.families(cluster, bucket.owner)
        barred = scheduler.barred(bucket)
        heads = reservations.heads.get(cluster, [])
        old = None
        if len(heads) >= reservations.most(cluster):
            old = max(reversed(heads), key=lambda head: self._standing(head.bucket))

        def usable(host: HostState) -> bool:
            mine = reservations.on(host) in (None, old)
            return mine and host.up and not host.shut and host.name not in barred

        found = reserve(bucket, families, usable, scheduler.ends, self.now)
        if found is not None:
            if old is not None:
                reservations.let_go(old)
            reservations.keep(found)
        elif any(
            host.family in families
            for other, heads in reservations.heads.items()
            if other != cluster
            for head in heads
            for host in head.hosts()
        ):
            self._no_head.add(cluster)
        else:
            bucket.unkept_at = self.changes.potential


def may_take(host: HostState, shape: ShapeClass, head: Reservation | None) -> bool:
    """Whether a host may take one process of a shape, next to whom it is kept for."""
    demands = shape.loosest if shape.lack is None else (shape.lack.demand, *shape.lack.harder)
    for demand in demands:
        if fits_loosely(host, demand):
            if head is None or head.start_at < inf:
                return True
            if shape.highest() > head.bucket.priority or head.bucket.shape is shape:
                return True
            if fits_loosely(head.shadows[host.name], demand):
                return True
    return False


def fits_loosely(host: HostState, demand: Demand) -> bool:
    """Whether a demand may fit on a host; quick, and never wrong when it says no."""
    if not host.has_capacity(demand):
        return False
    if not demand.gpus:
        return True
    assert host.family is not None
    if host.family.match(demand) is None:
        return False
    if demand.whole and len(host.family.kinds) == 1:
        return host.idle >= demand.gpu_count
    taking = 0
    for gpu in host.gpus:
        if gpu.takes(demand):
            taking += 1
    return taking >= demand.gpu_count


def contribution(host: HostState, lack: Lacking) -> int:
    """How many of the processes that lacked a place a freed host may give one to, at most."""
    return max(fitting(host, demand, lack.count) for demand in (lack.demand, *lack.harder))


def fitting(host: HostState, demand: Demand, most: int) -> int:
    """How many processes with the same demand fit on a host as it is, up to `most`."""
    twin = host.copy()
    for count in range(most):
        gpus = twin.choose(demand)
        if gpus is None:
            return count
        twin.take(0, demand, gpus)
    return most
