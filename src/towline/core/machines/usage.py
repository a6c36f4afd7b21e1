"""What our jobs take of one machine, for people to look at."""

from msgspec import Struct, field

from towline.core.machines.machine_index import MachineIndex


class MachineUsage(Struct, frozen=True):
    cpus: float = 0.0
    mem_mb: int = 0
    #: GPU index -> jobs on it.
    gpu_jobs: dict[int, list[int]] = field(default_factory=dict)
    #: GPU index -> memory they asked for.
    gpu_mem_mb: dict[int, int] = field(default_factory=dict)


def usage_of(machines: MachineIndex, name: str) -> MachineUsage:
    host = machines.hosts.get(name)
    if host is None:
        return MachineUsage()
    cpu = mem = 0
    gpu_jobs: dict[int, list[int]] = {}
    gpu_mem: dict[int, int] = {}
    for job, processes in host.jobs.items():
        for demand, gpus in processes:
            cpu += demand.cpu
            mem += demand.mem
            for index in gpus:
                gpu_jobs.setdefault(index, []).append(job)
                gpu_mem[index] = gpu_mem.get(index, 0) + demand.gpu_mem
    return MachineUsage(cpu / 1000, mem, gpu_jobs, gpu_mem)
