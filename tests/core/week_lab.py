"""The lab of the simulated week: machines, what others and our jobs use of them, sorts of jobs."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache

from core.packing_bound import (
    CPU_OVERLOAD,
    GPU_OVERLOAD,
    NOBODY,
    OTHERS,
    OURS,
    CpuState,
    HostState,
    Sort,
    fill_of,
)
from towline.model.machine import Gpu, Machine
from towline.model.request import Need

#: As in `core/machines/host_state.py`: less than this on a GPU is a driver or a desktop, not work.
NOISE_MB, NOISE_UTIL = 300, 0.1

#: kind of machine: (how many of 200, CPUs, memory in GB, GPU model, its memory in MB, GPUs)
KINDS = {
    "server": (40, 16, 64, "", 0, 0),
    "big": (20, 64, 256, "", 0, 0),
    "desk": (30, 8, 32, "GeForce GTX 1060", 6_144, 1),
    "lab": (40, 16, 64, "GeForce RTX 3060", 12_288, 2),
    "node": (40, 32, 128, "GeForce RTX 3090", 24_576, 4),
    "rack": (30, 64, 512, "RTX A6000", 49_152, 8),
}
#: sort of job: (request, share of all jobs, median and most hours)
SORTS = {
    "cpu": ("[cpus=4,mem=4G]", 12, 2.0, 20),
    "wide": ("[cpus=12,mem=16G]", 12, 2.0, 20),
    "tiny": ("[cpus=1,mem=1G]", 9, 0.1, 1),
    "machine": ("[cpus=8,exclusive]", 0.3, 1.0, 6),
    "gpu": ("[gpu,cpus=2,mem=6G]", 16, 0.6, 20),
    "3090": ("[rtx3090,cpus=3,mem=10G]", 9, 0.6, 20),
    "a6000": ("[a6000,cpus=4,mem=20G]", 6, 0.8, 20),
    "two": ("[2:gpu,cpus=4,mem=10G]", 4, 0.6, 12),
    "four": ("[4:gpu,cpus=8,mem=30G]", 1.2, 0.8, 12),
    "eight": ("[8:a6000,cpus=16,mem=60G]", 0.3, 1.0, 12),
    "quarter": ("[gpumem=1536M,gpuutil=0.25,mem=2G]", 10, 0.3, 8),
    "half": ("[gpumem=3G,gpuutil=0.5,mem=4G]", 8, 0.4, 8),
    "fat": ("[gpumem=6G,gpuutil=0.25,mem=4G]", 5, 0.4, 8),
    "alone": ("[gpumem=1G,gpuutil=0.75,reserve,mem=7G]", 6, 0.5, 8),
    "gang": ("4:[gpu,cpus=2,mem=6G]", 0.8, 0.6, 8),
    "pair": ("2:[4:rtx3090,cpus=8,mem=20G]", 0.2, 1.0, 8),
    "crowd": ("16:[cpus=2,mem=2G]", 0.6, 0.5, 4),
}
#: Sorts that need much of one machine, or several at once.
BIG = ("machine", "four", "eight", "gang", "pair", "crowd")


@dataclass
class Use:
    """What our jobs have of one GPU: granted memory, what they really take, utilisation."""

    granted_mb: int = 0
    taken_mb: float = 0.0
    util: float = 0.0
    users: int = 0
    reserved: int = 0
    fill: float = 0.0


@dataclass
class Host:
    """One machine: what it has, who else is on it, and what our jobs were given of it."""

    name: str
    kind: str
    cpus: float
    mem_mb: int
    model: str
    gpu_mb: int
    uses: list[Use]
    closed: str = ""
    up: bool = True
    #: Of others: CPUs, memory, and per GPU memory and utilisation.
    foreign_cpus: float = 0.0
    foreign_mb: int = 0
    foreign_gpus: list[list[float]] = field(default_factory=list)
    granted_cpus: float = 0.0
    gpu_job_cpus: float = 0.0
    granted_mb: int = 0
    whole: int = 0

    def seen(self) -> Machine:
        return Machine(
            name=self.name,
            cpus=self.cpus,
            mem_mb=self.mem_mb,
            gpus=tuple(
                Gpu(n, self.model, self.gpu_mb, "", int(mem), min(1.0, util))
                for n, (mem, util) in enumerate(self.foreign_gpus)
            ),
            foreign_cpus=self.foreign_cpus,
            foreign_mem_mb=self.foreign_mb,
            clusters=("lab",),
            stagger_s=0.25,
            closed=self.closed,
        )

    @property
    def fixed(self) -> bool:
        """Whether nothing more may start here, whoever decides."""
        return not self.up or bool(self.closed) or self.whole > 0

    def others(self, gpu: int) -> int:
        mem, util = self.foreign_gpus[gpu]
        noise = max(NOISE_MB, 0.02 * self.gpu_mb)
        return OTHERS if mem > noise or util >= NOISE_UTIL else NOBODY

    def left(self, gpu: int) -> tuple[int, float]:
        """Memory and utilisation of a GPU that other people's programs leave."""
        mem, util = self.foreign_gpus[gpu]
        return int(self.gpu_mb - mem), round(GPU_OVERLOAD - min(1.0, util), 2)

    def has_cpus(self, sort: Sort) -> bool:
        """Whether CPUs and memory are left for one process."""
        cpus = CPU_OVERLOAD * self.cpus - self.foreign_cpus - self.granted_cpus
        mem_mb = self.mem_mb - self.foreign_mb - self.granted_mb
        return self.kind in sort.allowed and cpus >= sort.need.cpus and mem_mb >= sort.need.mem_mb

    def really_free_mb(self, gpu: int) -> float:
        """What a person who looks at the GPU sees."""
        return self.gpu_mb - self.foreign_gpus[gpu][0] - self.uses[gpu].taken_mb

    def check(self, started: bool) -> None:
        """Nothing is given away that is not there; what is really used never is more than all."""
        for gpu, use in enumerate(self.uses):
            assert self.really_free_mb(gpu) >= 0, f"{self.name}: GPU {gpu} is oversubscribed"
            assert use.granted_mb <= self.gpu_mb, f"{self.name}: GPU {gpu} is given away twice"
            assert not use.reserved or use.users == 1, f"{self.name}: GPU {gpu} is not alone"
        if started:
            assert self.granted_cpus + self.foreign_cpus <= CPU_OVERLOAD * self.cpus + 1e-6
            assert self.granted_mb + self.foreign_mb <= self.mem_mb, self.name

    def check_gpu(self, gpu: int) -> None:
        """A GPU that was just given to a process has room for all that was granted on it."""
        mem, util = self.foreign_gpus[gpu]
        use = self.uses[gpu]
        assert use.granted_mb + mem <= self.gpu_mb, f"{self.name}: GPU {gpu}: {use}, {mem}"
        assert use.util + min(1.0, util) <= GPU_OVERLOAD + 1e-6, (
            f"{self.name}: GPU {gpu}: {use}, {util}"
        )


def make_hosts(scale: float) -> dict[str, Host]:
    hosts = {}
    for kind, (count, cpus, mem_gb, model, gpu_mb, gpus) in KINDS.items():
        for number in range(max(1, round(count * scale))):
            host = Host(f"{kind}{number}", kind, cpus, mem_gb * 1024, model, gpu_mb, [])
            host.uses = [Use() for _ in range(gpus)]
            host.foreign_gpus = [[0.0, 0.0] for _ in range(gpus)]
            hosts[host.name] = host
    return hosts


@cache
def allowed(need: Need) -> dict[str, float]:
    """Kinds of machine that can take a process, and how much of their GPUs or CPUs it fills."""
    found = {}
    for kind, (_, cpus, mem_gb, model, gpu_mb, gpus) in KINDS.items():
        named = all(g.name in model.lower().replace(" ", "") for g in need.gpus)
        fits = need.cpus <= CPU_OVERLOAD * cpus and need.mem_mb <= mem_gb * 1024
        if fits and named and need.gpu_count <= gpus and need.gpu_mem_mb <= gpu_mb:
            found[kind] = fill_of(need, gpu_mb) if need.gpus else need.cpus
    return found


# --- the lab as the bounds see it ----------------------------------------------------------------


def states(hosts: Iterable[Host]) -> tuple[dict[HostState, int], float]:
    """All machines as others leave them; and how full those are on which nothing may start."""
    found: Counter[HostState] = Counter()
    kept = 0.0
    for host in hosts:
        gpus = []
        for gpu, use in enumerate(host.uses):
            if host.fixed:
                kept += use.fill
            else:
                # Others may have come to those who share it since, never to one who is alone.
                shared = 0.0 if use.reserved else use.fill
                gpus.append((*host.left(gpu), host.others(gpu), shared))
        if gpus:
            found[host.kind, tuple(sorted(gpus))] += 1
    return dict(found), kept


def left_over(hosts: Iterable[Host], waiting: list[Sort]) -> dict[HostState, int]:
    """What those who run leave for those who wait."""
    found: Counter[HostState] = Counter()
    for host in hosts:
        if host.fixed or not any(host.has_cpus(sort) for sort in waiting):
            continue
        gpus = []
        for gpu, use in enumerate(host.uses):
            if not use.reserved:
                mem_mb, util = host.left(gpu)
                left = max(0, mem_mb - use.granted_mb), max(0.0, round(util - use.util, 2))
                gpus.append((*left, OURS if use.users else host.others(gpu), 0.0))
        if gpus:
            found[host.kind, tuple(sorted(gpus))] += 1
    return dict(found)


def free_cpus(hosts: Iterable[Host]) -> tuple[dict[CpuState, int], float]:
    """What jobs without GPUs may have of machines; and what they use where no more may start."""
    found: Counter[CpuState] = Counter()
    kept = 0.0
    for host in hosts:
        ours = host.granted_cpus - host.gpu_job_cpus
        if host.fixed:
            kept += ours
        else:
            free = CPU_OVERLOAD * host.cpus - host.foreign_cpus - host.gpu_job_cpus
            empty = not any(use.users for use in host.uses)
            found[host.kind, max(0.0, free), ours, empty] += 1
    return dict(found), kept
