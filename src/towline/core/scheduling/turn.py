"""One round of decisions: ranked jobs against the machines that were freed.

A kind of request takes part if it has a bucket that was never tried, or if a freed machine may take
one of its processes. While a cluster may keep machines for one job more, all of its buckets are
walked in the order of their ranks as well, because the best-ranked job that does not fit must
become a head before any job behind it is placed.
"""

from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from towline.core.machines.room import Room
from towline.core.machines.want import Want
from towline.core.scheduling.backfill import Reservation, reserve
from towline.core.scheduling.bucket import Bucket
from towline.core.scheduling.lanes import Kind, Lane, Lanes, Rank
from towline.core.scheduling.placement import Lacking, Search, Seat

if TYPE_CHECKING:
    from towline.core.scheduling.scheduler import Placed, Scheduler

#: Buckets tried in vain, and passed over, per cluster and turn: a queue of nothing but odd shapes
#: costs no more than this.
DEPTH = 200
MOST_PASSED = 2000
#: Jobs that may ask for a reservation in one turn before the cluster goes without.
MOST_HEADS = 8
#: More freed machines than this are found faster through the index.
FLOOD = 64


class Turn:
    def __init__(self, scheduler: "Scheduler", number: int, now: float) -> None:
        self.scheduler = scheduler
        self.pool = scheduler.pool
        self.number = number
        self.now = now
        #: Machines were let go that jobs of another cluster, refused before, may use.
        self.again = False
        self._complete = True
        self._started: list[Placed] = []
        self._heap: list[tuple[Rank, int, Lanes | Reservation]] = []
        self._pushed = 0
        self._queued: set[Lanes] = set()
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
        if self.pool.freed or queue.fresh:
            self._gather()
        while self._heap and len(self._started) < most:
            rank, _, item = heappop(self._heap)
            if isinstance(item, Reservation):
                self._try_head(item)
            else:
                self._queued.discard(item)
                self._try_best(rank, item)
        if self._complete and not self._heap and not self.again:
            self.pool.freed.clear()
            for kind in queue.fresh:
                kind.fresh = False
            queue.fresh.clear()
            for cluster in self._walks - self._no_head:
                if cluster not in self._heads_tried:
                    self.scheduler.walked[cluster] = self.pool.relief
        return self._started

    def _gather(self) -> None:
        """Who takes part in this turn."""
        queue, heads = self.scheduler.queue, self.scheduler.heads
        touched = dict.fromkeys(kind.cluster for kind in queue.fresh)
        for family in dict.fromkeys(room.family for room in self.pool.freed.values()):
            if family is not None:
                touched.update(dict.fromkeys(family.clusters))
        for cluster in touched:
            # The widest first: what one leaves over may do for another, not the other way round.
            for head in sorted(heads.get(cluster, ()), key=lambda head: -head.bucket.weight):
                self._push((-head.bucket.priority, -inf, 0), head)
            self._enter_all(cluster)

    def _enter_all(self, cluster: str) -> None:
        """Let a cluster's kinds take part, and all of its buckets where a head is wanted."""
        everyone = self.scheduler.queue.everyone.get(cluster)
        if everyone is not None:
            stale = self.scheduler.walked.get(cluster) != self.pool.relief
            if stale and self._wants_head(cluster, next(iter(everyone.priorities))):
                self._walks.add(cluster)
                self._enter(everyone)
            for kind in self._hopeful(cluster):
                self._enter(kind)

    def _hopeful(self, cluster: str) -> list[Kind]:
        """The kinds of a cluster of which a bucket may fit now."""
        queue, rooms = self.scheduler.queue, self.pool.freed.values()
        most_idle = max((room.idle for room in rooms), default=0)
        found = [kind for kind in queue.fresh if kind.cluster == cluster]
        for idle, kinds in queue.kinds[cluster].items():
            if idle <= most_idle:
                found += [kind for kind in kinds.values() if not kind.fresh and self._may_fit(kind)]
        return found

    def _enter(self, lanes: Lanes) -> None:
        if lanes not in self._queued:
            best = lanes.best(self.number, self._penalties)
            if best is not None:
                self._queued.add(lanes)
                self._push(best[0], lanes)

    def _push(self, rank: Rank, item: Lanes | Reservation) -> None:
        self._pushed += 1
        heappush(self._heap, (rank, self._pushed, item))

    def _may_fit(self, kind: Kind) -> bool:
        """Whether trying the buckets of a kind has a point."""
        pool = self.pool
        if kind.fresh:
            return True
        if kind.version == pool.version:
            return kind.possible
        kind.version = pool.version
        kind.possible = len(pool.freed) > FLOOD
        if not kind.possible:
            cpu, mem, idle = kind.cpu, kind.mem, kind.idle
            for room in pool.freed.values():
                if (
                    room.cpu_free >= cpu
                    and room.mem_free >= mem
                    and room.idle >= idle
                    and ((kind.plain and not room.held and not room.kept) or may_take(room, kind))
                ):
                    kind.possible = True
                    break
        return kind.possible

    def _try_head(self, head: Reservation) -> None:
        bucket = head.bucket
        if head not in self.scheduler.heads.get(bucket.cluster, ()):
            return
        seats = head.ready() if not self.pool.freed.keys().isdisjoint(head.ghosts) else None
        assert bucket.kind is not None
        if seats is None and self._is_news(bucket) and self._may_fit(bucket.kind):
            found = self._seats(bucket, self.scheduler.search(bucket, self.now))
            seats = None if isinstance(found, Lacking) else found
        if seats is not None:
            self._start(bucket, seats, head)
        else:
            bucket.turn = self.number

    def _try_best(self, rank: Rank, lanes: Lanes) -> None:
        """Try the best bucket of a kind or cluster; if it is refused, it may become the head."""
        cluster = lanes.cluster
        if not lanes.priorities:
            return
        if isinstance(lanes, Kind):
            if not self._may_fit(lanes):
                return
        elif not self._wants_head(cluster, -rank[0]):
            return
        best = lanes.best(self.number, self._penalties)
        if best is None:
            return
        rank_now, lane, bucket = best
        if rank_now > rank and self._heap and rank_now > self._heap[0][0]:
            self._enter(lanes)
            return
        assert bucket.kind is not None
        if self._may_fit(bucket.kind) and self._is_news(bucket):
            go_on = self._try(bucket, lane, lanes)
        else:
            self._refuse(bucket, lane)
            go_on = not self._too_many(self._passed, cluster, MOST_PASSED)
        if go_on:
            self._enter(lanes)

    def _try(self, bucket: Bucket, lane: Lane, lanes: Lanes) -> bool:
        """Start the first job of a bucket or refuse it; False if its lanes need no more trying."""
        search = self.scheduler.search(bucket, self.now)
        seats = self._seats(bucket, search)
        if not isinstance(seats, Lacking):
            self._start(bucket, seats)
            return True
        self._refuse(bucket, lane)
        if self._too_many(self._refused, bucket.cluster, DEPTH):
            return False
        if search.hindered or not self._all_alike(bucket):
            return True
        assert bucket.kind is not None
        bucket.kind.lack = seats
        bucket.kind.blocked = True
        return lanes is not bucket.kind

    def _refuse(self, bucket: Bucket, lane: Lane) -> None:
        """Note that a bucket fits nowhere."""
        bucket.blocked = True
        bucket.turn = self.number
        bucket.news = self.pool.news
        lane.refuse(self.number)
        self._reserve(bucket)

    def _too_many(self, counts: dict[str, int], cluster: str, most: int) -> bool:
        """Count a refusal; True if the cluster has had enough of them in this turn."""
        counts[cluster] = counts.get(cluster, 0) + 1
        if counts[cluster] > most:
            self._complete = False
            return True
        return False

    def _all_alike(self, bucket: Bucket) -> bool:
        """Whether what lacks for a bucket lacks for all others of its kind as well."""
        kind = bucket.kind
        if kind is None or not kind.alike or bucket.avoid:
            return False
        mine = self.pool.shelves(bucket.cluster, bucket.owner)
        owners = {owner for found in kind.priorities.values() for owner in found}
        return all(self.pool.shelves(bucket.cluster, owner) is mine for owner in owners)

    def _is_news(self, bucket: Bucket) -> bool:
        """Whether a bucket was not yet refused on the very same machines."""
        if bucket.turn == self.number:
            return False
        return not bucket.blocked or bucket.news != self.pool.news

    def _wants_head(self, cluster: str, priority: int) -> bool:
        """Whether a job of this priority that does not fit should become the head."""
        if cluster in self._no_head or self._heads_tried.get(cluster, 0) >= MOST_HEADS:
            return False
        heads = self.scheduler.heads.get(cluster, ())
        if len(heads) < self.scheduler.most_heads(cluster):
            return True
        return any(head.bucket.priority < priority for head in heads)

    def _start(self, bucket: Bucket, seats: list[Seat], head: Reservation | None = None) -> None:
        scheduler, cluster = self.scheduler, bucket.cluster
        head = head or scheduler.last_head(bucket)
        self._started.append(scheduler.start(bucket, seats, self.now, head))
        assert bucket.kind is not None
        bucket.kind.lack = None
        if head is not None:
            # A head has started: whoever ranks first now and does not fit is the next one.
            self._enter_all(cluster)
            families = [room.family for room in head.rooms()]
            self.again |= any(
                family is not None and len(family.clusters) > 1 for family in families
            )

    def _seats(self, bucket: Bucket, search: Search) -> list[Seat] | Lacking:
        """Seats for the first job of a bucket, looking no further than there is news."""
        freed = self.pool.freed
        assert bucket.kind is not None
        if (bucket.blocked or bucket.kind.blocked) and len(freed) <= FLOOD:
            rooms = [room for room in freed.values() if search.may_use(room)]
            if bucket.single:
                return search.find_among(bucket.groups[0][1], rooms)
            lack = bucket.kind.lack
            if lack is not None:
                lack.count -= sum(contribution(room, lack) for room in rooms)
                if lack.count > 0:
                    return lack
        return search.find(bucket.groups)

    def _reserve(self, bucket: Bucket) -> None:
        """Keep machines for a job that does not fit, if it is the first of its cluster."""
        scheduler, cluster = self.scheduler, bucket.cluster
        if not self._wants_head(cluster, bucket.priority) or bucket.unkept == self.pool.relief:
            return
        if sum(head.bucket is bucket for head in scheduler.heads.get(cluster, ())) >= bucket.count:
            return
        self._heads_tried[cluster] = self._heads_tried.get(cluster, 0) + 1
        shelves = self.pool.shelves(cluster, bucket.owner)
        barred = scheduler.barred(bucket)
        heads = scheduler.heads.get(cluster, [])
        old = None
        if len(heads) >= scheduler.most_heads(cluster):
            old = min(reversed(heads), key=lambda head: head.bucket.priority)

        def usable(room: Room) -> bool:
            mine = room.kept is None or room.kept is old
            return mine and room.up and not room.shut and room.name not in barred

        found = reserve(bucket, shelves, usable, scheduler.ends, self.now)
        if found is not None:
            if old is not None:
                scheduler.let_go(old)
            found.keep()
            scheduler.heads.setdefault(cluster, []).append(found)
        elif any(
            room.family in shelves
            for other, heads in scheduler.heads.items()
            if other != cluster
            for head in heads
            for room in head.rooms()
        ):
            self._no_head.add(cluster)
        else:
            bucket.unkept = self.pool.relief


def may_take(room: Room, kind: Kind) -> bool:
    """Whether a room may take one process of a kind, next to whom it is kept for."""
    wants = kind.loosest if kind.lack is None else (kind.lack.want, *kind.lack.harder)
    for want in wants:
        if fits_loosely(room, want):
            head = room.kept
            if not isinstance(head, Reservation) or head.start_at < inf:
                return True
            if kind.highest() > head.bucket.priority or head.bucket.kind is kind:
                return True
            if fits_loosely(head.ghosts[room.name], want):
                return True
    return False


def fits_loosely(room: Room, want: Want) -> bool:
    """Whether a want may fit on a room; quick, and never wrong when it says no."""
    if not room.has_room(want):
        return False
    if not want.gpus:
        return True
    assert room.family is not None
    if room.family.match(want) is None:
        return False
    if want.whole and len(room.family.kinds) == 1:
        return room.idle >= want.gpu_count
    taking = 0
    for gpu in room.gpus:
        if gpu.takes(want):
            taking += 1
    return taking >= want.gpu_count


def contribution(room: Room, lack: Lacking) -> int:
    """How many of the processes that lacked a place a freed room may give one to, at most."""
    return max(fitting(room, want, lack.count) for want in (lack.want, *lack.harder))


def fitting(room: Room, want: Want, most: int) -> int:
    """How many processes with the same want fit on a room as it is, up to `most`."""
    twin = room.copy()
    for count in range(most):
        gpus = twin.choose(want)
        if gpus is None:
            return count
        twin.take(0, want, gpus)
    return most
