"""What must always hold between queue, index and reservations; tests ask after every step."""

from typing import TYPE_CHECKING

from towline.core.machines.demand import CPU_OVERLOAD, GPU_OVERLOAD
from towline.core.machines.host_state import HostState
from towline.core.machines.machine_index import FamilyIndex, free_level, part_level
from towline.core.scheduling.backfill import HEAD

if TYPE_CHECKING:
    from towline.core.scheduling.scheduler import Scheduler


def check(scheduler: "Scheduler") -> None:
    for host in scheduler.machines.hosts.values():
        check_sums(host)
        check_index(host)
        assert host.offered or host.name not in scheduler.machines.freed, host.name
        if not host.excused:
            check_not_over_full(host)
    check_jobs(scheduler)
    check_queue(scheduler)
    check_heads(scheduler)
    check_series(scheduler)
    check_caps(scheduler)
    scheduler.rules.check()


def check_sums(host: HostState) -> None:
    """What a host says is free is what its jobs leave."""
    fresh = host.emptied()
    if fresh.family is None:
        return
    for job, processes in host.jobs.items():
        for demand, gpus in processes:
            fresh.take(job, demand, gpus)
    for name in ("cpu_free", "mem_free", "processes", "held", "idle"):
        assert getattr(fresh, name) == getattr(host, name), f"{host.name}: {name}"
    for counted, gpu in zip(fresh.gpus, host.gpus, strict=True):
        same = (counted.users, counted.held, counted.mem_free, counted.util_free)
        assert same == (gpu.users, gpu.held, gpu.mem_free, gpu.util_free), f"{host.name}: GPU"


def check_index(host: HostState) -> None:
    """A host stands where it belongs."""
    family = host.family
    if isinstance(family, FamilyIndex):
        assert family.hosts[host.name] is host
        offered = host.offered and not host.held
        assert host.free_level == (free_level(host, family) if offered else None), host.name
        assert host.part_level == (part_level(host) if offered else None), host.name


def check_not_over_full(host: HostState) -> None:
    """Our jobs never take more than the machine has; what others do on it is not ours to say."""
    machine = host.machine
    if machine is None:
        return
    processes = [process for found in host.jobs.values() for process in found]
    assert sum(demand.cpu for demand, _ in processes) <= round(machine.cpus * CPU_OVERLOAD), (
        host.name
    )
    assert sum(demand.mem for demand, _ in processes) <= machine.mem_mb, host.name
    assert not host.held or len(processes) == 1, f"{host.name} is not shared"
    for gpu in machine.gpus:
        users = [demand for demand, gpus in processes if gpu.index in gpus]
        assert len(users) <= 1 or not any(demand.reserved for demand in users), host.name
        assert sum(demand.gpu_mem for demand in users) <= gpu.mem_mb, host.name
        assert sum(demand.gpu_util for demand in users) <= GPU_OVERLOAD, host.name


def check_jobs(scheduler: "Scheduler") -> None:
    """Every running job is on its machines and no other, and waits nowhere."""
    seats = {(job, host.name) for host in scheduler.machines.hosts.values() for job in host.jobs}
    placed = {
        (job, slot.machine)
        for job, running in scheduler.running.items()
        for slot in running.placement
        if not scheduler.series.is_ahead(job)
    }
    assert seats == placed
    assert not scheduler.running.keys() & scheduler.queue.waiting.keys()


def check_queue(scheduler: "Scheduler") -> None:
    """Every waiting job is in its bucket once, and the first of a bucket is its first."""
    queue = scheduler.queue
    found: list[int] = []
    for cluster in queue.shapes:
        here = 0
        for bucket in queue.buckets_in(cluster):
            ids = [n for n in bucket.ids[bucket.start :] if n not in bucket.gone]
            assert len(ids) == bucket.count > 0
            assert (
                bucket.entry is not None and bucket.entry[1] == ids[0] == bucket.ids[bucket.start]
            )
            assert all(queue.waiting[job] is bucket for job in ids)
            here += bucket.count
            found += ids
        assert here == queue.count_in(cluster)
    assert len(found) == len(set(found)) == len(queue.waiting)


def check_heads(scheduler: "Scheduler") -> None:
    """What is kept is kept for a job that waits, and the shadows know who came later."""
    heads = [head for found in scheduler.reservations.heads.values() for head in found]
    names = [name for head in heads for name in head.shadows]
    kept = set(names)
    assert len(kept) == len(names), "a machine is kept for two jobs"
    assert scheduler.reservations.by_host.keys() == kept
    for cluster, found in scheduler.reservations.heads.items():
        assert found and all(head.bucket.cluster == cluster for head in found)
    for head in heads:
        assert len(scheduler.reservations.of(head.bucket)) <= head.bucket.count
        for host in head.hosts():
            assert scheduler.reservations.on(host) is head
            assert scheduler.machines.hosts[host.name] is host and host.up and not host.shut
            later = head.shadows[host.name].jobs.keys() - {HEAD}
            assert later <= host.jobs.keys(), host.name


def check_series(scheduler: "Scheduler") -> None:
    """Who has a place of a series is on its machine; who was sent ahead runs nowhere yet."""
    for series in scheduler.series:
        host = scheduler.machines.hosts.get(series.machine)
        for job in series.places:
            assert host is not None and [(series.demand, ())] == host.jobs[job], job
        for job in series.ahead:
            assert host is None or job not in host.jobs, job
            assert scheduler.running[job].placement[0].machine == series.machine, job
        assert series.places or series.ahead
        assert bool(series.ahead) == (series in scheduler.series.with_ahead), series.name


def check_caps(scheduler: "Scheduler") -> None:
    """Of a batch with a cap, each job is in one place, and none waits that could not begin."""
    series, running, waiting = scheduler.series, scheduler.running, scheduler.queue.waiting
    for capped in scheduler.caps.all.values():
        assert capped.queued.keys() <= waiting.keys(), capped.key
        assert capped.placed | capped.ahead <= running.keys(), capped.key
        assert not capped.spare.keys() & (running.keys() | waiting.keys()), capped.key
        assert all(series.is_ahead(job) for job in capped.ahead), capped.key
        assert not any(series.is_ahead(job) for job in capped.placed), capped.key
