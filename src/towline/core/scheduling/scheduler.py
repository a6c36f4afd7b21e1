"""The scheduler: who starts next, and where. Pure: facts in, placements out.

Waiting jobs are in `queue`, machines in `machines`; a `Round` takes decisions. What keeps one cheap
is what need not be looked at again: a bucket of equal jobs that fitted nowhere is
blocked, and until a machine is freed that may take one of its processes, nobody asks again.
"""

from collections.abc import Callable
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from towline.core.machines.demand import Demand, demands_of
from towline.core.machines.host_state import HostState
from towline.core.machines.machine_index import MachineIndex
from towline.core.scheduling import prefetch
from towline.core.scheduling.backfill import Reservation
from towline.core.scheduling.bucket import Bucket, Waiting
from towline.core.scheduling.caps import Caps
from towline.core.scheduling.explain import closest, explain_waiting, why_not_now
from towline.core.scheduling.fairshare import FairShares, Penalties
from towline.core.scheduling.invariants import check
from towline.core.scheduling.obstacles import Explanation, NeverFits
from towline.core.scheduling.placement import Groups, Lacking, Search, Seat, ever_fits, placement_of
from towline.core.scheduling.queue import WaitingQueue
from towline.core.scheduling.reservations import Reservations
from towline.core.scheduling.round import Round
from towline.core.scheduling.rules import TeamRules
from towline.core.scheduling.series import AllSeries, Sent, Series, name_of
from towline.core.scheduling.start_limiter import StartLimiter
from towline.model.machine import Aside, Machine, Placement
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
        self.machines = MachineIndex()
        self.start_limiter = StartLimiter(self.machines)
        self.queue = WaitingQueue()
        self.shares = FairShares()
        self.penalties = Penalties(self.shares)
        self.reservations = Reservations(self.machines)
        self.running: dict[int, Running] = {}
        self.series = AllSeries()
        self.caps = Caps()
        self.rules = TeamRules(self)
        self._rounds = 0
        self._impossible: dict[tuple[str, Request, str], NeverFits | None] = {}
        self._impossible_at = -1

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
        if job.id in self.queue.waiting or job.id in self.running or self.caps.spare_in(job.id):
            return
        job = self.rules.member(job)
        if not self.caps.add_spare(job):
            self._enqueue(job)

    def withdraw(self, job_id: int) -> bool:
        """Take a waiting job out; False if it was not waiting."""
        spare = self.caps.spare_in(job_id) is not None
        waited = self._dequeue(job_id) or spare
        if waited:
            self.caps.leave(job_id)
        return waited

    def move(self, old: Waiting, new: Waiting) -> None:
        """Let a waiting job wait as another, in its old place by age."""
        self._dequeue(old.id)
        self._enqueue(new)

    def _enqueue(self, job: Waiting) -> None:
        self.queue.add(job)
        self.reservations.walked.pop(job.cluster, None)

    def _dequeue(self, job_id: int) -> bool:
        bucket = self.queue.waiting.get(job_id)
        if bucket is None:
            return False
        mine = self.reservations.of(bucket)
        if mine and (len(mine) == bucket.count or mine[0].first_job() == job_id):
            self.reservations.let_go(mine[-1])
        self.queue.drop(job_id)
        return True

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
        self.rules.ended(job.owner, job.placement)
        self.penalties.pop(job.owner, None)
        names = dict.fromkeys(slot.machine for slot in job.placement)
        self.caps.leave(job_id, self._succeed(job_id, now))
        left = [host for name in names if (host := self.machines.give(job_id, name)) is not None]
        for host in left:
            head = self.reservations.on(host)
            if head is not None and not head.freed(host, job_id, self.ends, now):
                self.reservations.let_go(head)
            self.start_limiter.ended(host, ran_s, well, now)

    def adopt(self, job: Waiting, placement: Placement, started: float, series: str = "") -> None:
        """Count a job that runs already, even where it does not fit."""
        self.withdraw(job.id)
        self.release(job.id, started)
        job = self.rules.member(job)
        self.caps.adopt(job)
        groups = demands_of(job.request, job.rights)
        demands = [demand for count, demand in groups for _ in range(count)]
        for slot, demand in zip(placement, demands, strict=False):
            host = self.machines.hosts.get(slot.machine)
            fits = host is not None and host.accepts(demand, slot.gpus)
            host = self.machines.take(job.id, slot.machine, demand, slot.gpus)
            host.excused = host.excused or not fits
            self.series.join(slot.machine, series, demand, job.id, None, job.batch)
        self._run(job.id, job.owner, placement, demands, started, job.time_s)

    def see(self, machine: Machine) -> None:
        """Take over an observation of a machine."""
        known = self.machines.hosts.get(machine.name)
        was_shut = known.shut if known is not None else ""
        groups = self.machines.named_groups
        host = self.machines.see(machine)
        if self.machines.named_groups != groups:
            self.rules.regroup()
        if host is not None:
            if host.shut and not was_shut:
                self._lost_host(host)
            else:
                self._follow(host)

    def gone(self, name: str) -> None:
        """A machine does not answer: nothing new goes there, what runs there stays counted."""
        host = self.machines.gone(name)
        if host is not None:
            self._lost_host(host)

    def remove(self, name: str) -> None:
        """A machine is no longer part of any cluster."""
        host = self.machines.remove(name)
        self.start_limiter.forget(name)
        self.series.away_s.pop(name, None)
        if host is not None:
            self._lost_host(host)

    def set_aside(self, name: str, why: Aside | None) -> None:
        """Start nothing more on a machine (or one job, to try it out); None: as before."""
        host = self.machines.hosts.get(name)
        if host is None:
            return
        was_shut = host.shut
        is_open = why is not None and why.is_tried
        host.aside, host.one_only = (None, why) if is_open else (why, None)
        self.machines.changes.potential += 1
        self.machines.opened_or_closed(host)
        if host.shut and not was_shut:
            self._lost_host(host)

    def closed(self, name: str) -> str:
        """Why a machine takes no jobs now, as its settings say; empty if it does."""
        host = self.machines.hosts.get(name)
        return host.machine.closed if host is not None and host.machine is not None else ""

    def aside(self, name: str) -> Aside | None:
        """Why a machine is set aside or being tried out; None if it is not."""
        host = self.machines.hosts.get(name)
        return host.aside or host.one_only if host is not None else None

    def wake_at(self, now: float) -> float | None:
        """When there may be something to decide though nothing happens before."""
        paced = self.start_limiter.wake_at() if self.queue.waiting else None
        return min(filter(None, (paced, prefetch.wake_at(self, now))), default=None)

    def decide(self, now: float, most: int = 1000) -> list[Placed]:
        """All jobs that can start now, at most `most`, and those to be sent ahead; what they need
        is taken."""
        started: list[Placed] = []
        self.start_limiter.open_due(now)
        for job, is_next in self.caps.moves():
            if is_next:
                self._enqueue(job)
            else:
                self._dequeue(job.id)
        again = True
        while again and len(started) < most:
            self._rounds += 1
            round_number = Round(self, self._rounds, now)
            started += round_number.take(most - len(started))
            again = round_number.again
        return started + prefetch.send_ahead(self, now)

    def recall(self, now: float) -> list[int]:
        """Those of the jobs sent ahead that are to come back, if they have not begun."""
        return prefetch.to_recall(self, now)

    def explain(self, job_id: int, now: float) -> Explanation:
        """Why a job waits, and what keeps it from each machine."""
        return explain_waiting(self, job_id, now)

    def impossible(self, cluster: str, request: Request, owner: str) -> NeverFits | None:
        """Why no machines could ever satisfy a request; None if they could, or none is known."""
        if self._impossible_at != self.machines.changes.potential:
            self._impossible.clear()
            self._impossible_at = self.machines.changes.potential
        key = (cluster, request, owner)
        if key not in self._impossible:
            groups = demands_of(request, self.rules.rights_of(owner))
            self._impossible[key] = self._never(cluster, groups, owner)
        if (over := self.rules.never(owner, request)) is not None:
            return NeverFits(cluster, owner, over=over)
        return self._impossible[key]

    def forbidden(self, cluster: str, request: Request, owner: str) -> bool:
        """Whether machines could satisfy a request, and only its owner's rights do not let them."""
        if self.impossible(cluster, request, owner) is None:
            return False
        return self._never(cluster, demands_of(request, self.machines.named_groups), owner) is None

    def plan(self, job: Waiting, now: float) -> Placement | Explanation | NeverFits:
        """Where a job would go if it were submitted now, or why it would wait; nothing changes."""
        never = self.impossible(job.cluster, job.request, job.owner)
        if never is not None:
            return never
        job = self.rules.member(job)
        bucket = Bucket(job)
        bucket.add(job)
        found = self.search(bucket, now).find(bucket.groups)
        if isinstance(found, Lacking):
            return why_not_now(self, bucket, now)
        return placement_of(found)

    def search(self, bucket: Bucket, now: float) -> Search:
        """Where the first job of a bucket may look."""
        limit_s = bucket.limit_s

        def shadow(host: HostState) -> HostState | None:
            return self.reservations.shadow(host, bucket, limit_s, now)

        families = self.machines.families(bucket.cluster, bucket.owner)
        pack = self.queue.harder_waits(bucket.cluster, bucket.groups)
        return Search(families, self.barred(bucket), shadow, pack)

    def barred(self, bucket: Bucket) -> tuple[str, ...]:
        """The machines a bucket avoids, as long as others could take it."""
        if bucket.avoid and bucket.barred_at != self.machines.changes.potential:
            families = self.machines.families(bucket.cluster, bucket.owner)
            lacking = ever_fits(
                families,
                bucket.groups,
                lambda host: host.up and not host.shut and host.name not in bucket.avoid,
            )
            bucket.barred = bucket.avoid if lacking is None else ()
            bucket.barred_at = self.machines.changes.potential
        return bucket.barred

    def start(
        self, bucket: Bucket, seats: list[Seat], now: float, head: Reservation | None = None
    ) -> Placed:
        """Give the first job of a bucket its seats, instead of what was kept for it."""
        assert bucket.entry is not None
        job_id, limit_s = bucket.entry[1], bucket.limit_s
        if head is not None:
            self.reservations.let_go(head)
        placement = placement_of(seats)
        for host, demand, gpus in seats:
            self.machines.take(job_id, host.name, demand, gpus)
            shadow = self.reservations.shadow(host, bucket, limit_s, now)
            if shadow is not None:
                shadow.take(job_id, demand, gpus)
        for name in dict.fromkeys(slot.machine for slot in placement):
            host = self.machines.hosts[name]
            if not self.start_limiter.started(host, job_id, now):
                self._lost_host(host)
        self.queue.drop(job_id)
        self.caps.place(job_id)
        demands = [demand for _, demand, _ in seats]
        self._run(job_id, bucket.owner, placement, demands, now, limit_s)
        if len(demands) == 1:
            name = self.series_name(job_id, demands[0])
            batch = self.caps.batch_of(job_id)
            self.series.join(placement[0].machine, name, demands[0], job_id, now, batch)
        return Placed(job_id, placement)

    def series_name(self, job_id: int, demand: Demand) -> str:
        return name_of(demand, self.tree_of(job_id), self.caps.batch_of(job_id))

    def send_ahead(self, job: prefetch.Next, series: Series, now: float) -> Placed:
        """Let a job be on a machine before it has a place there."""
        host = self.machines.hosts[series.machine]
        placement = placement_of([(host, series.demand, ())])
        self._dequeue(job.id)
        self.caps.send_ahead(job.id)
        self._run(job.id, job.owner, placement, [series.demand], now, job.limit_s)
        sent = Sent(now, job.cluster, job.owner, job.priority, job.limit_s)
        self.series.send(series, job.id, sent)
        return Placed(job.id, placement, len(series.places))

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
        demands: list[Demand],
        started: float,
        limit_s: float,
    ) -> None:
        weight = sum(demand.weight for demand in demands)
        ends = started + limit_s if limit_s else inf
        self.running[job_id] = Running(owner, weight, placement, started, ends)
        self.shares.start(owner, weight, started)
        self.rules.started(owner, placement)
        self.penalties.pop(owner, None)

    def _succeed(self, job_id: int, now: float) -> int | None:
        """A job ended: who was sent ahead for its place has begun there by now."""
        heir = self.series.leave(job_id, now)
        if heir is None:
            return None
        job, demand = self.running[heir], self.series.demand_of(heir)
        self.running[heir] = replace(job, started=now, ends=now + job.ends - job.started)
        # Taken before it is given, so that nobody sees the host without either.
        host = self.machines.take(heir, job.placement[0].machine, demand, ())
        head = self.reservations.on(host)
        if head is not None:
            head.shadows[host.name].take(heir, demand, ())
        if not self.start_limiter.started(host, heir, now):
            self._lost_host(host)
        return heir

    def _follow(self, host: HostState) -> None:
        """After a change of a machine: whatever is kept there must still fit."""
        head = self.reservations.on(host)
        if head is not None and not head.see(host):
            self.reservations.let_go(head)

    def _lost_host(self, host: HostState) -> None:
        self._follow(host)
        for bucket in self.queue.avoiders:
            self.queue.wake(bucket)

    def _never(self, cluster: str, groups: Groups, owner: str) -> NeverFits | None:
        if not self.machines.knows(cluster):
            return None
        families = self.machines.families(cluster, owner)
        lacking = ever_fits(families, groups, lambda host: True)
        return None if lacking is None else closest(self.machines, cluster, owner, lacking)
