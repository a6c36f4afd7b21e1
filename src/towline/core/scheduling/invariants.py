"""What must always hold between queue, pool and reservations; tests ask after every step."""

from typing import TYPE_CHECKING

from towline.core.machines.pool import Shelf, free_level, part_level
from towline.core.machines.room import Room
from towline.core.machines.want import CPU_OVERLOAD, GPU_OVERLOAD
from towline.core.scheduling.backfill import HEAD, Reservation

if TYPE_CHECKING:
    from towline.core.scheduling.scheduler import Scheduler


def check(scheduler: "Scheduler") -> None:
    for room in scheduler.pool.rooms.values():
        check_sums(room)
        check_index(room)
        assert room.offered or room.name not in scheduler.pool.freed, room.name
        if not room.excused:
            check_not_over_full(room)
    check_jobs(scheduler)
    check_queue(scheduler)
    check_heads(scheduler)
    check_series(scheduler)


def check_sums(room: Room) -> None:
    """What a room says is free is what its jobs leave."""
    fresh = room.emptied()
    if fresh.family is None:
        return
    for job, processes in room.jobs.items():
        for want, gpus in processes:
            fresh.take(job, want, gpus)
    for name in ("cpu_free", "mem_free", "processes", "held", "idle"):
        assert getattr(fresh, name) == getattr(room, name), f"{room.name}: {name}"
    for counted, gpu in zip(fresh.gpus, room.gpus, strict=True):
        same = (counted.users, counted.held, counted.mem_free, counted.util_free)
        assert same == (gpu.users, gpu.held, gpu.mem_free, gpu.util_free), f"{room.name}: GPU"


def check_index(room: Room) -> None:
    """A room stands where it belongs."""
    shelf = room.family
    if isinstance(shelf, Shelf):
        assert shelf.rooms[room.name] is room
        offered = room.offered and not room.held
        assert room.free_level == (free_level(room, shelf) if offered else None), room.name
        assert room.part_level == (part_level(room) if offered else None), room.name


def check_not_over_full(room: Room) -> None:
    """Our jobs never take more than the machine has; what others do on it is not ours to say."""
    machine = room.machine
    if machine is None:
        return
    processes = [process for found in room.jobs.values() for process in found]
    assert sum(want.cpu for want, _ in processes) <= round(machine.cpus * CPU_OVERLOAD), room.name
    assert sum(want.mem for want, _ in processes) <= machine.mem_mb, room.name
    assert not room.held or len(processes) == 1, f"{room.name} is not shared"
    for gpu in machine.gpus:
        users = [want for want, gpus in processes if gpu.index in gpus]
        assert len(users) <= 1 or not any(want.reserved for want in users), room.name
        assert sum(want.gpu_mem for want in users) <= gpu.mem_mb, room.name
        assert sum(want.gpu_util for want in users) <= GPU_OVERLOAD, room.name


def check_jobs(scheduler: "Scheduler") -> None:
    """Every running job is on its machines and no other, and waits nowhere."""
    seats = {(job, room.name) for room in scheduler.pool.rooms.values() for job in room.jobs}
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
    for cluster in queue.kinds:
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
    """What is kept is kept for a job that waits, and the ghosts know who came later."""
    heads = [head for found in scheduler.heads.values() for head in found]
    names = [name for head in heads for name in head.ghosts]
    kept = set(names)
    assert len(kept) == len(names), "a machine is kept for two jobs"
    for room in scheduler.pool.rooms.values():
        assert (room.kept is not None) == (room.name in kept), room.name
    for cluster, found in scheduler.heads.items():
        assert found and all(head.bucket.cluster == cluster for head in found)
    for head in heads:
        assert len(scheduler.heads_of(head.bucket)) <= head.bucket.count
        for room in head.rooms():
            assert isinstance(room.kept, Reservation) and room.kept is head
            assert scheduler.pool.rooms[room.name] is room and room.up and not room.shut
            later = head.ghosts[room.name].jobs.keys() - {HEAD}
            assert later <= room.jobs.keys(), room.name


def check_series(scheduler: "Scheduler") -> None:
    """Who has a place of a series is on its machine; who was sent ahead runs nowhere yet."""
    for series in scheduler.series:
        room = scheduler.pool.rooms.get(series.machine)
        for job in series.places:
            assert room is not None and [(series.want, ())] == room.jobs[job], job
        for job in series.ahead:
            assert room is None or job not in room.jobs, job
            assert scheduler.running[job].placement[0].machine == series.machine, job
        assert series.places or series.ahead
        assert bool(series.ahead) == (series in scheduler.series.with_ahead), series.name
