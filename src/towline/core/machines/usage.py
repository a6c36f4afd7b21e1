"""What our jobs take of one machine, for people to look at."""

from msgspec import Struct, field

from towline.core.machines.pool import Pool


class Usage(Struct, frozen=True):
    cpus: float = 0.0
    mem_mb: int = 0
    #: GPU index -> jobs on it.
    gpu_jobs: dict[int, list[int]] = field(default_factory=dict)
    #: GPU index -> memory they asked for.
    gpu_mem_mb: dict[int, int] = field(default_factory=dict)


def usage_of(pool: Pool, name: str) -> Usage:
    room = pool.rooms.get(name)
    if room is None:
        return Usage()
    cpu = mem = 0
    gpu_jobs: dict[int, list[int]] = {}
    gpu_mem: dict[int, int] = {}
    for job, processes in room.jobs.items():
        for want, gpus in processes:
            cpu += want.cpu
            mem += want.mem
            for index in gpus:
                gpu_jobs.setdefault(index, []).append(job)
                gpu_mem[index] = gpu_mem.get(index, 0) + want.gpu_mem
    return Usage(cpu / 1000, mem, gpu_jobs, gpu_mem)
