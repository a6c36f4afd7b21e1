"""Why a job waits: its place in the queue, and what keeps it from each machine; data, no words."""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from towline.core.machines.demand import Demand
from towline.core.machines.host_state import GpuState, HostState
from towline.core.machines.machine_index import MachineIndex
from towline.core.scheduling.bucket import Bucket
from towline.core.scheduling.obstacles import (
    AvoidedMachine,
    BatchLimit,
    ClosedNow,
    CpusInUse,
    Explanation,
    ForGroups,
    ForOthers,
    GpuShare,
    GpusInUse,
    GpuUse,
    JobsFirst,
    KeptForJob,
    MachineObstacles,
    MemoryInUse,
    NeverFits,
    NextOn,
    NoSuchGpu,
    NotAllGpus,
    NotTogether,
    NotWaiting,
    Obstacle,
    PacedStarts,
    SetAside,
    SilentMachine,
    TooFewCpus,
    TooFewGpus,
    TooLittleMemory,
    TooSmallGpus,
    UsedByJobs,
    WholeTaken,
    WholeWanted,
)
from towline.core.scheduling.placement import Lacking, Search, bare_host
from towline.core.scheduling.reservations import MOST_KEPT, Reservations

if TYPE_CHECKING:
    from towline.core.scheduling.scheduler import Scheduler

#: Machines a job is explained on, and looked at for the closest one.
MOST_MACHINES = 50
MOST_CLOSEST = 500
#: Jobs that are named one by one.
MOST_NAMED = 3


def explain_waiting(scheduler: "Scheduler", job_id: int, now: float) -> Explanation:
    bucket = scheduler.queue.waiting.get(job_id)
    if behind := scheduler.series.behind(job_id):
        where = scheduler.running[job_id].placement[0].machine
        return NextOn(machine=where, behind=tuple(behind))
    if capped := scheduler.caps.spare_in(job_id):
        return BatchLimit(most=capped.most)
    if bucket is None:
        return NotWaiting(placed=job_id in scheduler.running)
    if over := scheduler.rules.over(bucket.owner, bucket.gpu_count):
        return replace(over, cluster=bucket.cluster)
    position = 1 + jobs_before(scheduler, bucket, job_id, now)
    waiting = scheduler.queue.count_in(bucket.cluster)
    ahead = islice((job for job in bucket.ids[bucket.start :] if job not in bucket.gone), MOST_KEPT)
    head = dict(zip(ahead, scheduler.reservations.of(bucket), strict=False)).get(job_id)
    kept = tuple(host.name for host in head.hosts()) if head is not None else ()
    reasons = reasons_for(scheduler, bucket, now)
    more = count_machines(scheduler.machines, bucket.cluster) - sum(
        len(reason.machines) for reason in reasons
    )
    return Explanation(bucket.cluster, position, waiting, kept, reasons, more)


def jobs_before(scheduler: "Scheduler", bucket: Bucket, job_id: int, now: float) -> int:
    """How many jobs of its cluster rank before a job."""
    if scheduler.penalties.fair:
        return in_turn(scheduler, bucket.cluster, now).index(job_id)
    penalty = scheduler.shares.penalty_s
    return scheduler.queue.before(bucket, job_id, lambda owner: penalty(owner, now))


def in_turn(scheduler: "Scheduler", cluster: str, now: float) -> list[int]:
    """All that wait in a cluster of a team, as they rank now."""
    penalties = scheduler.penalties.at(now)
    owners: dict[str, list[tuple[float, int, float]]] = {}
    for bucket in scheduler.queue.buckets_in(cluster):
        bucket.close_holes()
        own = owners.setdefault(bucket.owner, [])
        for submitted, job_id in zip(
            bucket.submitted[bucket.start :], bucket.ids[bucket.start :], strict=True
        ):
            own.append((submitted - bucket.lead, job_id, submitted))
    ranked: list[tuple[float, float, int]] = []
    for owner, own in owners.items():
        turn = 0.0
        for place, job_id, submitted in sorted(own):
            turn = max(turn, penalties.turn(submitted, owner))
            ranked.append((turn, place, job_id))
    return [job_id for _, _, job_id in sorted(ranked)]


def why_not_now(scheduler: "Scheduler", bucket: Bucket, now: float) -> Explanation:
    """Why a job that is not submitted yet would wait."""
    return Explanation(bucket.cluster, reasons=reasons_for(scheduler, bucket, now))


def reasons_for(scheduler: "Scheduler", bucket: Bucket, now: float) -> tuple[MachineObstacles, ...]:
    """What keeps it from each machine, machines with the same together."""
    search = scheduler.search(bucket, now)
    grouped: dict[tuple[Obstacle, ...], list[str]] = {}
    for host in islice(machines_in(scheduler.machines, bucket.cluster), MOST_MACHINES):
        obstacles = tuple(obstacles_on(host, bucket, search, scheduler.reservations))
        grouped.setdefault(obstacles, []).append(host.name)
    return tuple(MachineObstacles(tuple(names), why) for why, names in grouped.items())


def machines_in(machines: MachineIndex, cluster: str) -> Iterator[HostState]:
    for family in machines.all_families():
        if cluster in family.clusters:
            yield from family.hosts.values()


def count_machines(machines: MachineIndex, cluster: str) -> int:
    return sum(
        len(family.hosts) for family in machines.all_families() if cluster in family.clusters
    )


def obstacles_on(
    host: HostState, bucket: Bucket, search: Search, reservations: Reservations
) -> list[Obstacle]:
    """All that keeps a machine from taking a job now; never nothing."""
    assert host.family is not None
    if not host.up:
        return [SilentMachine()]
    if not host.family.allows(bucket.cluster, bucket.owner):
        return [ForOthers(tuple(host.family.owners))]
    if host.aside is not None:
        return [SetAside(host.aside)]
    if host.machine is not None and host.machine.closed:
        return [ClosedNow(host.machine.closed)]
    if host.name in search.barred:
        return [AvoidedMachine()]
    demands = [demand for _, demand in bucket.groups]
    for demand in demands:
        if found := lack(host, demand) or shortage(host, demand):
            return found
    for demand in demands:
        head = reservations.on(host)
        if head is not None and search.choose(host, demand) is None:
            return [KeptForJob(head.first_job())]
    if host.paced:
        assert host.machine is not None
        return [PacedStarts(host.machine.stagger_s)]
    return [JobsFirst() if bucket.single else NotTogether()]


def lack(host: HostState, demand: Demand) -> list[Obstacle]:
    """All that a machine could not give even if nobody used it."""
    bare = bare_host(host)
    if bare.choose(demand) is not None:
        return []
    assert host.machine is not None and host.family is not None
    found: list[Obstacle] = []
    if not host.family.admits(demand):
        found.append(ForGroups(tuple(sorted(host.machine.groups))))
    if bare.cpu_free < demand.cpu:
        found.append(TooFewCpus(host.machine.cpus, demand.cpu / 1000))
    if bare.mem_free < demand.mem:
        found.append(TooLittleMemory(bare.mem_free, demand.mem))
    if demand.gpus and bare.choose_gpus(demand) is None:
        found.append(lack_of_gpus(bare, demand))
    return found


def lack_of_gpus(bare: HostState, demand: Demand) -> Obstacle:
    assert bare.family is not None
    for count, name in demand.gpus:
        kinds = bare.family.named(name)
        named = [gpu for gpu in bare.gpus if gpu.kind in kinds]
        if not named:
            return NoSuchGpu(name or "", inventory(bare))
        usable = bare.family.usable(name, demand.rights)
        named, others = [gpu for gpu in named if gpu.kind in usable], named
        if len(named) < count <= len(others):
            groups = {group for gpu in others for group in bare.family.kinds[gpu.kind][1]}
            return ForGroups(tuple(sorted(groups)), name)
        if len(named) < count:
            return TooFewGpus(name or "", len(named), count)
        if sum(1 for gpu in named if gpu.takes(demand)) < count:
            return TooSmallGpus(max(gpu.total for gpu in named), demand.gpu_mem)
    return NotAllGpus(inventory(bare))


def shortage(host: HostState, demand: Demand) -> list[Obstacle]:
    """All that is in use on a machine and would be enough when free."""
    assert host.machine is not None
    if host.held:
        return [WholeTaken(jobs(host))]
    if demand.exclusive and host.claimed_by and not host.processes:
        return [WholeWanted(jobs(host), host.claimed_by)]
    if demand.exclusive and host.processes:
        return [WholeWanted(jobs(host))]
    found: list[Obstacle] = []
    if demand.gpus and host.choose_gpus(demand) is None:
        found.append(shortage_of_gpus(host, demand))
    if host.mem_free < demand.mem:
        found.append(MemoryInUse(host.mem_free, demand.mem, host.machine.foreign_mem_mb))
    if host.cpu_free < demand.cpu:
        free = max(0, host.cpu_free) / 1000
        found.append(CpusInUse(free, demand.cpu / 1000, host.machine.foreign_cpus))
    return found


def shortage_of_gpus(host: HostState, demand: Demand) -> Obstacle:
    assert host.family is not None
    kinds: set[int] = set()
    for _, name in demand.gpus:
        kinds |= host.family.usable(name, demand.rights)
    matching = [gpu for gpu in host.gpus if gpu.kind in kinds]
    names = tuple(dict.fromkeys(name for _, name in demand.gpus if name))
    uses: dict[GpuUse, int] = {}
    for gpu in matching:
        if not gpu.takes(demand):
            use = used_by(host, gpu)
            uses[use] = uses.get(use, 0) + 1
    share = None if demand.reserved else GpuShare(demand.gpu_mem, demand.gpu_util / 1000)
    return GpusInUse(len(matching), names, tuple(uses.items()), share)


def used_by(host: HostState, gpu: GpuState) -> GpuUse:
    assert host.machine is not None
    ours = tuple(
        job
        for job, processes in host.jobs.items()
        if any(gpu.index in gpus for _, gpus in processes)
    )
    if ours:
        return GpuUse(ours)
    foreign = next(seen for seen in host.machine.gpus if seen.index == gpu.index)
    if foreign.claimed_by:
        return GpuUse(user=foreign.claimed_by)
    return GpuUse(mem_mb=foreign.foreign_mem_mb, util=foreign.foreign_util)


def closest(machines: MachineIndex, cluster: str, owner: str, lacking: Lacking) -> NeverFits:
    """The machine that comes closest to a request nobody can satisfy."""
    hosts = [
        host
        for host in islice(machines_in(machines, cluster), MOST_CLOSEST)
        if host.family is not None and host.family.allows(cluster, owner)
    ]
    if not hosts:
        return NeverFits(cluster, owner)
    host = min(hosts, key=lambda host: distance(host, lacking.demand))
    lacks = tuple(lack(host, lacking.demand))
    return NeverFits(cluster, owner, host.name, lacks, 0 if lacks else lacking.count)


def distance(host: HostState, demand: Demand) -> tuple[int, float]:
    """How far a machine is from ever taking a process: things lacking, then how much."""
    bare = bare_host(host)
    if bare.choose(demand) is not None:
        return (0, 0.0)
    assert bare.family is not None
    short = [
        max(0.0, 1 - bare.cpu_free / demand.cpu) if demand.cpu else 0.0,
        max(0.0, 1 - bare.mem_free / demand.mem) if demand.mem else 0.0,
        0.0 if bare.family.admits(demand) else 1.0,
    ]
    for count, name in demand.gpus:
        kinds = bare.family.usable(name, demand.rights)
        named = sum(1 for gpu in bare.gpus if gpu.kind in kinds)
        taking = sum(1 for gpu in bare.gpus if gpu.kind in kinds and gpu.takes(demand))
        short += [max(0.0, 1 - named / count), max(0.0, 1 - taking / count)]
    return (sum(1 for part in short if part), sum(short))


def inventory(host: HostState) -> tuple[tuple[str, int], ...]:
    """The GPUs of a machine: how many of each model."""
    assert host.machine is not None
    counts: dict[str, int] = {}
    for gpu in host.machine.gpus:
        counts[gpu.model] = counts.get(gpu.model, 0) + 1
    return tuple(counts.items())


def jobs(host: HostState) -> UsedByJobs:
    return UsedByJobs(tuple(islice(host.jobs, MOST_NAMED)), max(0, len(host.jobs) - MOST_NAMED))
