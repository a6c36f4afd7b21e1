"""The reserved heads of a cluster's queue, and who may still use the machines kept for them.

The highest-ranked job that fits nowhere gets a reservation (and so do some behind it in a cluster
of many machines, or big jobs would have their turns one by one): seats on machines as they will be
once the jobs that run there now have ended. For each such machine a shadow holds its processes and
those of every job placed there later. Another job may join only if it also fits on the shadow, or
if its time limit ends it before the head can start. So the head starts no later than when the last
of the jobs that ran before its reservation ends, however many small jobs come after it.

Machines are chosen by how many jobs must end there, not by how much is free: to empty a machine of
many small jobs leaves most of it idle for long, while one that a single big job has is free at once
when that ends, so big jobs follow each other. The head sits on whatever GPUs come free first there.
"""

from collections.abc import Callable, Iterator
from itertools import chain, islice
from math import ceil, inf

from towline.core.machines.demand import Demand
from towline.core.machines.host_state import HostState, pick
from towline.core.machines.machine_index import FamilyIndex
from towline.core.scheduling.bucket import Bucket
from towline.core.scheduling.placement import Lacking, Seat, fill, total_hosts

#: Machines considered per family and process; enough to find a good one, too few to be slow.
CONSIDERED = 8
#: Up to so many machines, all are considered.
FEW = 50
#: Machines tried before a job is held to fit nowhere because of what others use.
MOST_TRIED = 200
#: The head's own processes on a shadow; no job has this id.
HEAD = -1


class Reservation:
    """The seats kept for the first job of a bucket, and when it can start at the latest."""

    __slots__ = ("bucket", "seats", "shadows", "start_at")

    def __init__(self, bucket: Bucket, seats: list[Seat], start_at: float) -> None:
        self.bucket = bucket
        self.seats = seats
        #: Infinite when a job without a time limit stands before it.
        self.start_at = start_at
        self.shadows: dict[str, HostState] = {}
        for host, demand, gpus in seats:
            if host.name not in self.shadows:
                self.shadows[host.name] = host.emptied()
            self.shadows[host.name].take(HEAD, demand, gpus)

    def hosts(self) -> list[HostState]:
        return list({host.name: host for host, _, _ in self.seats}.values())

    def first_job(self) -> int:
        entry = self.bucket.entry
        return entry[1] if entry is not None else 0

    def binds(self, bucket: Bucket, limit_s: float, now: float) -> bool:
        """Whether a job must fit beside the head on the machines kept for it."""
        if bucket is self.bucket or bucket.priority > self.bucket.priority:
            return False
        return not limit_s or now + limit_s > self.start_at

    def ready(self) -> list[Seat] | None:
        """Its seats, if all of them are free now."""
        twins: dict[str, HostState] = {}
        for host, demand, gpus in self.seats:
            twin = twins.get(host.name) or twins.setdefault(host.name, host.copy())
            if not host.offered or not twin.accepts(demand, gpus):
                return None
            twin.take(HEAD, demand, gpus)
        return self.seats

    def see(self, host: HostState) -> bool:
        """Follow a new observation of a kept machine; False if the head does not fit any more."""
        shadow = self.shadows[host.name]
        if host.machine is None or host.family is None or not host.up or host.shut:
            return False
        if not host.family.allows(self.bucket.cluster, self.bucket.owner):
            return False
        shadow.give(HEAD)
        shadow.measure(host.machine, host.family)
        return self._seat_anew(host, shadow)

    def freed(self, host: HostState, job_id: int, ends: "Ends", now: float) -> bool:
        """A job left a kept machine: its GPUs may be the head's; False if that does not fit now."""
        shadow = self.shadows[host.name]
        shadow.give(job_id)
        shadow.give(HEAD)
        self.start_at = min(self.start_at, latest(self.seats, ends, now))
        return self._seat_anew(host, shadow)

    def _seat_anew(self, host: HostState, shadow: HostState) -> bool:
        """Give the head's processes on a machine the GPUs that are free first."""
        alone, now = host.emptied(), host.copy()
        moved: list[Seat] = []
        for seat in self.seats:
            if seat[0] is not host:
                moved.append(seat)
                continue
            gpus = soonest(alone, seat[1], now, shadow) or soonest(alone, seat[1], now)
            if gpus is None:
                return False
            for twin in (alone, shadow, now):
                twin.take(HEAD, seat[1], gpus)
            moved.append((host, seat[1], gpus))
        self.seats = moved
        return True


Ends = Callable[[int], float]


def reserve(
    bucket: Bucket,
    families: list[FamilyIndex],
    accept: Callable[[HostState], bool],
    ends: Ends,
    now: float,
) -> Reservation | None:
    """Seats where a bucket's first job can start soonest, or with the least to drain."""
    count = sum(count for count, _ in bucket.groups)

    def hosts_for(demand: Demand) -> Iterator[HostState]:
        found = sorted(
            considered(families, demand, accept, CONSIDERED + count),
            key=lambda host: to_drain(host, demand),
        )
        close = sorted(
            found[: CONSIDERED + count], key=lambda host: free_at(host, [demand], ends, now)
        )
        rest = (host for host in total_hosts(families, demand) if accept(host))
        return chain(close, found[CONSIDERED + count :], islice(rest, MOST_TRIED + count))

    seats = fill(
        bucket.groups,
        hosts_for,
        lambda host: (host.emptied(), None),
        lambda host, demand: host.emptied().choose(demand),
    )
    if isinstance(seats, Lacking):
        return None
    found = Reservation(bucket, seats, latest(seats, ends, now))
    for host in found.hosts():
        found.see(host)
    return found


def considered(
    families: list[FamilyIndex], demand: Demand, accept: Callable[[HostState], bool], most: int
) -> Iterator[HostState]:
    """Some machines of every family that can take a demand when empty, the freest first."""
    for family in families:
        if family.low(demand) is None:
            continue
        if len(family.hosts) <= max(FEW, most):
            yield from filter(accept, family.hosts.values())
        else:
            yield from islice(filter(accept, family.free.from_the_top()), most)


def latest(seats: list[Seat], ends: Ends, now: float) -> float:
    """When all of these seats are free by the time limits of what runs there."""
    demands: dict[str, tuple[HostState, list[Demand]]] = {}
    for host, demand, _ in seats:
        demands.setdefault(host.name, (host, []))[1].append(demand)
    return max(free_at(host, here, ends, now) for host, here in demands.values())


def soonest(
    alone: HostState, demand: Demand, now: HostState, shadow: HostState | None = None
) -> tuple[int, ...] | None:
    """GPUs of an emptied machine for a process, those first that are free on it as it is now."""
    if not demand.gpus or alone.choose(demand, shadow) is None:
        return alone.choose(demand, shadow)
    assert alone.family is not None
    match = alone.family.match(demand)
    assert match is not None
    ready = {gpu.index for gpu in now.gpus if gpu.takes(demand)}
    held = {gpu.index for gpu in (shadow or alone).gpus if not gpu.takes(demand)}
    free = [gpu for gpu in alone.gpus if gpu.takes(demand) and gpu.index not in held]
    return pick(sorted(free, key=lambda gpu: gpu.index not in ready), match)


def free_at(host: HostState, demands: list[Demand], ends: Ends, now: float) -> float:
    """When these demands fit by the time limits of what runs there; infinite if unknown."""
    until = sorted((ends(job), job) for job in host.jobs)
    if until and until[0][0] == inf:
        return inf
    twin = host.copy()
    at = now
    for end, job in [(now, 0), *until]:
        twin.give(job)
        at = max(at, end)
        if all_fit(twin, demands):
            return at
    return inf


def all_fit(host: HostState, demands: list[Demand]) -> bool:
    twin = host.copy() if len(demands) > 1 else host
    for demand in demands:
        gpus = twin.choose(demand)
        if gpus is None:
            return False
        if len(demands) > 1:
            twin.take(HEAD, demand, gpus)
    return True


def to_drain(host: HostState, demand: Demand) -> tuple[float, int]:
    """How long until a demand fits, in lengths of a job if all are alike; and GPUs idle till then.

    The first of n such jobs ends after 1/n of their length, the next 1/(n-1) of it later: one big
    job is over sooner than the last of many small ones, and leaves no GPU idle before.
    """
    jobs = len(host.jobs)
    must_end = jobs if demand.exclusive or host.held else ceil(jobs * share_to_end(host, demand))
    return (sum(1 / (jobs - ended) for ended in range(min(jobs, must_end))), host.idle)


def share_to_end(host: HostState, demand: Demand) -> float:
    """How much of what our jobs have on a machine must be free before a demand fits."""
    processes = [process for found in host.jobs.values() for process in found]
    cpu = (demand.cpu - host.cpu_free) / (sum(used.cpu for used, _ in processes) or 1)
    mem = (demand.mem - host.mem_free) / (sum(used.mem for used, _ in processes) or 1)
    share = max(cpu, mem, 0.0)
    if demand.gpus:
        free = sum(1 for gpu in host.gpus if gpu.takes(demand))
        in_use = sum(1 for gpu in host.gpus if gpu.users)
        share = max(share, (demand.gpu_count - free) / (in_use or 1))
    return min(share, 1.0)
