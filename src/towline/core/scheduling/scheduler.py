"""The scheduler: who starts next, and where. Pure: facts in, placements out.

Waiting jobs are in `queue`, machines in `pool`; `turn` takes one round of decisions. What keeps a
decision cheap is what need not be looked at again: a bucket of equal jobs that fitted nowhere is
blocked, and until a machine is freed that may take one of its processes, nobody asks again.
"""

from collections.abc import Callable
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from towline.core.machines.pool import Pool
from towline.core.machines.room import Room
from towline.core.machines.want import Want, wants_of
from towline.core.scheduling import ahead
from towline.core.scheduling.backfill import MACHINES_PER_HEAD, MOST_KEPT, Reservation
from towline.core.scheduling.bucket import Bucket, Waiting
from towline.core.scheduling.explain import Explanation, closest, explain_waiting, why_not_now
from towline.core.scheduling.fairshare import Penalties, Shares
from towline.core.scheduling.gates import Gates
from towline.core.scheduling.invariants import check
from towline.core.scheduling.placement import Groups, Lacking, Search, Seat, ever_fits
from towline.core.scheduling.queue import Queue
from towline.core.scheduling.series import AllSeries, Sent, Series, name_of
from towline.core.scheduling.turn import Turn
from towline.model.machine import Machine, Placement, Slot
from towline.model.request import Request

__all__ = ["Explanation", "Placed", "Scheduler", "Waiting"]


class Placed(Struct, frozen=True):
    """A job that starts now, and where."""

    id: int
    placement: Placement
    #: How many of its series run there at a time, if it is sent ahead; 0: it has its place.
    places: int = 0


class Running(Struct, frozen=True):
    """A job that has its machines."""

    owner: str
    weight: float
    placement: Placement
    started: float
    #: When its time limit ends it; infinite without one.
    ends: float


class Scheduler:
    def __init__(self, tree_of: Callable[[int], str] = lambda job_id: "") -> None:
        #: What a job starts from.
        self.tree_of = tree_of
        self.pool = Pool()
        self.gates = Gates(self.pool)
        self.queue = Queue()
        self.shares = Shares()
        self.penalties = Penalties(self.shares)
        #: cluster -> what is kept for the jobs that are next there.
        self.heads: dict[str, list[Reservation]] = {}
        #: cluster -> the pool's relief when all who wait there were asked what to keep for them.
        self.walked: dict[str, int] = {}
        self.running: dict[int, Running] = {}
        self.series = AllSeries()
        self._turns = 0
        self._impossible: dict[tuple[str, Request, str], str | None] = {}
        self._impossible_at = -1
        self._most_heads: dict[str, int] = {}
        self._most_heads_at = -1

    @property
    def waiting_count(self) -> int:
        return len(self.queue.waiting)

    @property
    def running_count(self) -> int:
        return len(self.running)

    def waiting_in(self, cluster: str) -> int:
        return self.queue.count_in(cluster)

    def submit(self, job: Waiting) -> None:
        """Let a job wait; a job that waits or runs already is left as it is."""
        if job.id not in self.queue.waiting and job.id not in self.running:
            self.queue.add(job)
            self.walked.pop(job.cluster, None)

    def withdraw(self, job_id: int) -> bool:
        """Take a waiting job out; False if it was not waiting."""
        bucket = self.queue.waiting.get(job_id)
        if bucket is None:
            return False
        mine = self.heads_of(bucket)
        if mine and (len(mine) == bucket.count or mine[0].first_job() == job_id):
            self.let_go(mine[-1])
        self.queue.drop(job_id)
        return True

    def most_heads(self, cluster: str) -> int:
        """For how many jobs of a cluster machines are kept at the same time."""
        if self._most_heads_at != self.pool.make_up:
            self._most_heads.clear()
            self._most_heads_at = self.pool.make_up
        if cluster not in self._most_heads:
            machines = sum(len(s.rooms) for s in self.pool.all_shelves() if cluster in s.clusters)
            self._most_heads[cluster] = min(1 + machines // MACHINES_PER_HEAD, MOST_KEPT)
        return self._most_heads[cluster]

    def heads_of(self, bucket: Bucket) -> list[Reservation]:
        """What is kept for the first jobs of a bucket, in their order."""
        return [head for head in self.heads.get(bucket.cluster, ()) if head.bucket is bucket]

    def last_head(self, bucket: Bucket) -> Reservation | None:
        mine = self.heads_of(bucket)
        return mine[-1] if mine else None

    def release(
        self, job_id: int, now: float, ran_s: float | None = None, well: bool = True
    ) -> None:
        """Free what a job has; unknown jobs have nothing.

        `ran_s` is how long its processes ran, if that is known better than from its start.
        """
        job = self.running.pop(job_id, None)
        if job is None:
            return
        ran_s = now - job.started if ran_s is None else ran_s
        self.shares.stop(job.owner, job.weight, now)
        self.penalties.pop(job.owner, None)
        names = dict.fromkeys(slot.machine for slot in job.placement)
        self._succeed(job_id, now)
        left = [room for name in names if (room := self.pool.give(job_id, name)) is not None]
        for room in left:
            head = room.kept
            if isinstance(head, Reservation) and not head.freed(room, job_id, self.ends, now):
                self.let_go(head)
            self.gates.ended(room, ran_s, well, now)

    def adopt(self, job: Waiting, placement: Placement, started: float, series: str = "") -> None:
        """Count a job that runs already, even where it does not fit."""
        self.withdraw(job.id)
        self.release(job.id, started)
        wants = [want for count, want in wants_of(job.request) for _ in range(count)]
        for slot, want in zip(placement, wants, strict=False):
            room = self.pool.rooms.get(slot.machine)
            fits = room is not None and room.accepts(want, slot.gpus)
            room = self.pool.take(job.id, slot.machine, want, slot.gpus)
            room.excused = room.excused or not fits
            self.series.join(slot.machine, series, want, job.id, None)
        self._run(job.id, job.owner, placement, wants, started, job.time_s)

    def see(self, machine: Machine) -> None:
        """Take over an observation of a machine."""
        known = self.pool.rooms.get(machine.name)
        was_shut = known.shut if known is not None else ""
        room = self.pool.see(machine)
        if room is not None:
            if room.shut and not was_shut:
                self._lost_room(room)
            else:
                self._follow(room)

    def gone(self, name: str) -> None:
        """A machine does not answer: nothing new goes there, what runs there stays counted."""
        room = self.pool.gone(name)
        if room is not None:
            self._lost_room(room)

    def remove(self, name: str) -> None:
        """A machine is no longer part of any cluster."""
        room = self.pool.remove(name)
        self.gates.forget(name)
        self.series.away_s.pop(name, None)
        if room is not None:
            self._lost_room(room)

    def set_aside(self, name: str, why: str, one_only: bool = False) -> None:
        """Start nothing more on a machine (or one job, to try it out); no words: as before."""
        room = self.pool.rooms.get(name)
        if room is None:
            return
        was_shut = room.shut
        room.aside, room.one_only = ("", why) if one_only else (why, "")
        self.pool.make_up += 1
        self.pool.relief += 1
        self.pool.gate(room)
        if room.shut and not was_shut:
            self._lost_room(room)

    def closed(self, name: str) -> str:
        """Why no job starts on a machine for a while, in words; empty if they may."""
        room = self.pool.rooms.get(name)
        return self.aside(name) or room.shut if room is not None else ""

    def aside(self, name: str) -> str:
        """Why a machine is set aside or being tried out, in words; empty if it is not."""
        room = self.pool.rooms.get(name)
        return room.aside or room.one_only if room is not None else ""

    def wake_at(self, now: float) -> float | None:
        """When there may be something to decide though nothing happens before."""
        paced = self.gates.wake_at() if self.queue.waiting else None
        return min(filter(None, (paced, ahead.wake_at(self, now))), default=None)

    def decide(self, now: float, most: int = 1000) -> list[Placed]:
        """All jobs that can start now, at most `most`, and those to be sent ahead; what they need
        is taken."""
        started: list[Placed] = []
        self.gates.open_due(now)
        again = True
        while again and len(started) < most:
            self._turns += 1
            turn = Turn(self, self._turns, now)
            started += turn.take(most - len(started))
            again = turn.again
        return started + ahead.send_ahead(self, now)

    def recall(self, now: float) -> list[int]:
        """Those of the jobs sent ahead that are to come back, if they have not begun."""
        return ahead.to_recall(self, now)

    def explain(self, job_id: int, now: float) -> Explanation:
        """Why a job waits, per machine, in words."""
        return explain_waiting(self, job_id, now)

    def impossible(self, cluster: str, request: Request, owner: str) -> str | None:
        """Why no machines could ever satisfy a request; None if they could, or none is known."""
        if self._impossible_at != self.pool.make_up:
            self._impossible.clear()
            self._impossible_at = self.pool.make_up
        key = (cluster, request, owner)
        if key not in self._impossible:
            self._impossible[key] = self._never(cluster, wants_of(request), owner)
        return self._impossible[key]

    def plan(self, job: Waiting, now: float) -> tuple[Placement | None, str]:
        """Where a job would go if it were submitted now, or why it would wait; nothing changes."""
        never = self.impossible(job.cluster, job.request, job.owner)
        if never is not None:
            return None, never
        bucket = Bucket(job)
        bucket.add(job)
        found = self.search(bucket, now).find(bucket.groups)
        if isinstance(found, Lacking):
            return None, why_not_now(self, bucket, now)
        return placement_of(found), "it would start now"

    def search(self, bucket: Bucket, now: float) -> Search:
        """Where the first job of a bucket may look."""
        limit_s = bucket.limit_s

        def beside(room: Room) -> Room | None:
            head = room.kept
            if isinstance(head, Reservation) and head.binds(bucket, limit_s, now):
                return head.ghosts[room.name]
            return None

        shelves = self.pool.shelves(bucket.cluster, bucket.owner)
        pack = self.queue.wants_more(bucket.cluster, bucket.groups)
        return Search(shelves, self.barred(bucket), beside, pack)

    def barred(self, bucket: Bucket) -> tuple[str, ...]:
        """The machines a bucket avoids, as long as others could take it."""
        if bucket.avoid and bucket.barred_at != self.pool.make_up:
            shelves = self.pool.shelves(bucket.cluster, bucket.owner)
            lacking = ever_fits(
                shelves,
                bucket.groups,
                lambda room: room.up and not room.shut and room.name not in bucket.avoid,
            )
            bucket.barred = bucket.avoid if lacking is None else ()
            bucket.barred_at = self.pool.make_up
        return bucket.barred

    def start(
        self, bucket: Bucket, seats: list[Seat], now: float, head: Reservation | None = None
    ) -> Placed:
        """Give the first job of a bucket its seats, instead of what was kept for it."""
        assert bucket.entry is not None
        job_id, limit_s = bucket.entry[1], bucket.limit_s
        if head is not None:
            self.let_go(head)
        placement = placement_of(seats)
        for room, want, gpus in seats:
            self.pool.take(job_id, room.name, want, gpus)
            kept = room.kept
            if isinstance(kept, Reservation) and kept.binds(bucket, limit_s, now):
                kept.ghosts[room.name].take(job_id, want, gpus)
        for name in dict.fromkeys(slot.machine for slot in placement):
            room = self.pool.rooms[name]
            if not self.gates.started(room, job_id, now):
                self._lost_room(room)
        self.queue.drop(job_id)
        wants = [want for _, want, _ in seats]
        self._run(job_id, bucket.owner, placement, wants, now, limit_s)
        if len(wants) == 1:
            name = name_of(wants[0], self.tree_of(job_id))
            self.series.join(placement[0].machine, name, wants[0], job_id, now)
        return Placed(job_id, placement)

    def send_ahead(self, bucket: Bucket, series: Series, now: float) -> Placed:
        """Let the first job of a bucket be on a machine before it has a place there."""
        assert bucket.entry is not None
        job_id, limit_s = bucket.entry[1], bucket.limit_s
        room = self.pool.rooms[series.machine]
        placement = placement_of([(room, series.want, ())])
        self.withdraw(job_id)
        self._run(job_id, bucket.owner, placement, [series.want], now, limit_s)
        sent = Sent(now, bucket.cluster, bucket.owner, bucket.priority, limit_s)
        self.series.send(series, job_id, sent)
        return Placed(job_id, placement, len(series.places))

    def let_go(self, head: Reservation) -> None:
        """Drop a reservation; others may try the machines it kept."""
        cluster = head.bucket.cluster
        self.heads[cluster].remove(head)
        if not self.heads[cluster]:
            del self.heads[cluster]
        self.pool.relief += 1
        for room in head.let_go():
            self.pool.ease(room)

    def ends(self, job_id: int) -> float:
        return self.running[job_id].ends

    def check_invariants(self) -> None:
        """Raise AssertionError when anything is over-allocated or does not add up."""
        check(self)

    def _run(
        self,
        job_id: int,
        owner: str,
        placement: Placement,
        wants: list[Want],
        started: float,
        limit_s: float,
    ) -> None:
        weight = sum(want.weight for want in wants)
        ends = started + limit_s if limit_s else inf
        self.running[job_id] = Running(owner, weight, placement, started, ends)
        self.shares.start(owner, weight, started)
        self.penalties.pop(owner, None)

    def _succeed(self, job_id: int, now: float) -> None:
        """A job ended: who was sent ahead for its place has begun there by now."""
        heir = self.series.leave(job_id, now)
        if heir is None:
            return
        job, want = self.running[heir], self.series.want_of(heir)
        self.running[heir] = replace(job, started=now, ends=now + job.ends - job.started)
        # Taken before it is given, so that nobody sees the room without either.
        room = self.pool.take(heir, job.placement[0].machine, want, ())
        if isinstance(room.kept, Reservation):
            room.kept.ghosts[room.name].take(heir, want, ())
        if not self.gates.started(room, heir, now):
            self._lost_room(room)

    def _follow(self, room: Room) -> None:
        """After a change of a machine: whatever is kept there must still fit."""
        head = room.kept
        if isinstance(head, Reservation) and not head.see(room):
            self.let_go(head)

    def _lost_room(self, room: Room) -> None:
        self._follow(room)
        for bucket in self.queue.avoiders:
            self.queue.wake(bucket)

    def _never(self, cluster: str, groups: Groups, owner: str) -> str | None:
        if not self.pool.knows(cluster):
            return None
        shelves = self.pool.shelves(cluster, owner)
        lacking = ever_fits(shelves, groups, lambda room: True)
        return None if lacking is None else closest(self.pool, cluster, owner, lacking)


def placement_of(seats: list[Seat]) -> Placement:
    return tuple(
        Slot(room.name, gpus, room.machine.target, room.machine.identity)
        if room.machine
        else Slot(room.name, gpus)
        for room, _, gpus in seats
    )
