"""One machine as the scheduler sees it: what others and our jobs use, and who still fits."""

from collections.abc import Iterable, Sequence

from towline.core.machines.demand import CPU_OVERLOAD, GPU_OVERLOAD, Demand, Rights, plain
from towline.model.machine import Aside, Gpu, Machine

#: Foreign use of a GPU below these is noise (a desktop, a driver), not a program at work.
NOISE_MEM_MB = 300
NOISE_MEM_SHARE = 0.02
NOISE_UTIL = 100


class MachineFamily:
    """Machines alike in clusters, rights and GPU models; they share an index (machine_index.py)."""

    def __init__(self, machine: Machine, number: int) -> None:
        self.number = number
        self.clusters = machine.clusters
        self.owners = machine.owners
        #: Who may have processes without GPUs; None: everyone.
        self.groups = frozenset(machine.groups) or None
        self.aliases = {plain(short): plain(model) for short, model in machine.aliases}
        self.exact_names = machine.exact_names
        models = [(plain(gpu.model), gpu.groups) for gpu in machine.gpus]
        #: Different GPU models of these machines, and who may use them; a GPU's kind is its place
        #: in here.
        self.kinds = sorted(set(models))
        self.counts = [models.count(kind) for kind in self.kinds]
        self.gpu_count = len(models)
        self.named_groups = frozenset(machine.groups).union(*(groups for _, groups in self.kinds))
        self._matches: dict[object, list[tuple[int, frozenset[int]]] | None] = {}

    def allows(self, cluster: str, owner: str) -> bool:
        return cluster in self.clusters and (not self.owners or owner in self.owners)

    def admits(self, demand: Demand) -> bool:
        """Whether a process without GPUs may be here; of others, their GPUs decide."""
        return self.groups is None or bool(demand.gpus) or not self.groups.isdisjoint(demand.rights)

    def kind_of(self, gpu: Gpu) -> int:
        return self.kinds.index((plain(gpu.model), gpu.groups))

    def named(self, name: str) -> frozenset[int]:
        """The kinds of GPU that a plain name stands for."""
        alias = self.aliases.get(name, name)
        if self.exact_names and name:
            return frozenset(
                index for index, (model, _) in enumerate(self.kinds) if model in (name, alias)
            )
        return frozenset(
            index for index, (model, _) in enumerate(self.kinds) if name in model or alias in model
        )

    def usable(self, name: str, rights: Rights) -> frozenset[int]:
        """Those of them that members of these groups may use."""
        return frozenset(
            kind
            for kind in self.named(name)
            if not (groups := self.kinds[kind][1]) or not rights.isdisjoint(groups)
        )

    def match(self, demand: Demand) -> list[tuple[int, frozenset[int]]] | None:
        """(count, kinds that will do) per GPU need, or None if there can never be enough."""
        key = (demand.gpus, demand.rights) if self.named_groups else demand.gpus
        try:
            return self._matches[key]
        except KeyError:
            found = [(count, self.usable(name, demand.rights)) for count, name in demand.gpus]
            enough = demand.gpu_count <= self.gpu_count and all(
                count <= sum(self.counts[kind] for kind in kinds) for count, kinds in found
            )
            return self._matches.setdefault(key, found if enough else None)


def at_work(gpu: Gpu) -> bool:
    """Whether programs that are not ours really use a GPU."""
    noise = max(NOISE_MEM_MB, NOISE_MEM_SHARE * gpu.mem_mb)
    return gpu.foreign_mem_mb > noise or gpu.foreign_util * 1000 >= NOISE_UTIL


class GpuState:
    """One GPU: what is left of it, and who is on it."""

    __slots__ = (
        "busy",
        "held",
        "index",
        "kind",
        "mem_free",
        "others",
        "total",
        "users",
        "util_free",
    )

    def __init__(self, gpu: Gpu, kind: int) -> None:
        self.index = gpu.index
        self.kind = kind
        self.total = gpu.mem_mb
        self.mem_free = gpu.mem_mb - gpu.foreign_mem_mb
        self.util_free = GPU_OVERLOAD - round(gpu.foreign_util * 1000)
        #: Really used by programs that are not ours.
        self.busy = at_work(gpu)
        #: Jobs of other Engines: 0 if none were given a part of it, 2 if they have it alone.
        self.others = 2 if gpu.reserved else 1 if gpu.claimed_by else 0
        self.busy = self.busy or self.others > 0
        self.users = 0
        #: How many of the users reserved it; more than one only after a restart found it so.
        self.held = 0

    def takes(self, demand: Demand) -> bool:
        if self.others == 2:
            return False
        if demand.reserved:
            if self.users or self.others:
                return False
            if demand.whole:
                return not self.busy
        elif self.held:
            return False
        return self.mem_free >= demand.gpu_mem and self.util_free >= demand.gpu_util

    @property
    def load(self) -> int:
        """How much of it is used, of its computing or its memory, in tenths; noise is nothing."""
        if not self.users and not self.busy:
            return 0
        memory = 10 * (self.total - self.mem_free) // self.total if self.total > 0 else 0
        return max((GPU_OVERLOAD - self.util_free) // 100, memory)

    def use(self, demand: Demand, sign: int) -> None:
        self.users += sign
        self.held += sign if demand.reserved else 0
        self.mem_free -= sign * demand.gpu_mem
        self.util_free -= sign * demand.gpu_util

    def copy(self) -> "GpuState":
        twin = GpuState.__new__(GpuState)
        twin.index = self.index
        twin.kind = self.kind
        twin.total = self.total
        twin.mem_free = self.mem_free
        twin.util_free = self.util_free
        twin.busy = self.busy
        twin.others = self.others
        twin.users = self.users
        twin.held = self.held
        return twin


class HostState:
    """One machine, and what its jobs leave free. Without a family it is not known (any more)."""

    __slots__ = (
        "aside",
        "cpu_free",
        "excused",
        "family",
        "free_level",
        "gpus",
        "held",
        "idle",
        "jobs",
        "machine",
        "mem_free",
        "name",
        "one_only",
        "paced",
        "part_level",
        "processes",
        "total_level",
        "up",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.machine: Machine | None = None
        self.family: MachineFamily | None = None
        self.up = False
        #: Why it is set aside; None: it is not.
        self.aside: Aside | None = None
        #: It is tried out: after the next job that starts here it is set aside for this.
        self.one_only: Aside | None = None
        #: Its starts are paced, and none is in hand now.
        self.paced = False
        self.cpu_free = 0
        self.mem_free = 0
        self.gpus: list[GpuState] = []
        #: How many GPUs nobody uses.
        self.idle = 0
        self.processes = 0
        #: Processes here that asked for the whole machine.
        self.held = 0
        #: job -> its processes here, with the GPUs each was given.
        self.jobs: dict[int, list[tuple[Demand, tuple[int, ...]]]] = {}
        #: Over-full through no decision of ours: found so after a restart, or it shrank.
        self.excused = False
        self.free_level: tuple[int, ...] | None = None
        self.part_level: tuple[int, ...] | None = None
        self.total_level: tuple[int, ...] | None = None

    @property
    def claimed_by(self) -> str:
        """Whose jobs, of other Engines, run here."""
        return self.machine.claimed_by if self.machine is not None else ""

    @property
    def shut(self) -> bool:
        """No job starts here for a good while."""
        return self.aside is not None or (self.machine is not None and bool(self.machine.closed))

    @property
    def offered(self) -> bool:
        """Whether jobs may start here now, if they fit."""
        return self.up and not self.paced and not self.shut

    @property
    def load(self) -> float:
        """How much of its CPUs is used, by anyone."""
        cpus = self.machine.cpus if self.machine is not None else 0
        return 1.0 - self.cpu_free / (cpus * CPU_OVERLOAD) if cpus > 0 else 1.0

    def measure(self, machine: Machine, family: MachineFamily) -> None:
        """Take over an observation; what our jobs use is counted anew on it."""
        self.machine = machine
        self.family = family
        self.cpu_free = round(machine.cpus * CPU_OVERLOAD) - round(machine.foreign_cpus * 1000)
        self.mem_free = machine.mem_mb - machine.foreign_mem_mb
        self.gpus = [GpuState(gpu, family.kind_of(gpu)) for gpu in machine.gpus]
        self.idle = sum(1 for gpu in self.gpus if not gpu.busy)
        self.processes = 0
        self.held = 0
        for processes in self.jobs.values():
            for demand, gpus in processes:
                self._use(demand, gpus, 1)

    def has_capacity(self, demand: Demand) -> bool:
        """CPUs, memory and company; the GPUs are `choose`'s."""
        family = self.family
        return (
            self.cpu_free >= demand.cpu
            and self.mem_free >= demand.mem
            and not self.held
            and not (demand.exclusive and (self.processes or self.claimed_by))
            and family is not None
            and (family.groups is None or family.admits(demand))
        )

    def choose(
        self, demand: Demand, shadow: "HostState | None" = None, pack: bool = False
    ) -> tuple[int, ...] | None:
        """The GPUs this process would get, or None if it does not fit here and on `shadow`.

        Of GPUs that may be shared, those that are used least, or if it is to `pack`, the fullest.
        """
        if not self.has_capacity(demand) or (
            shadow is not None and not shadow.has_capacity(demand)
        ):
            return None
        return self.choose_gpus(demand, shadow, pack) if demand.gpus else ()

    def choose_gpus(
        self, demand: Demand, shadow: "HostState | None" = None, pack: bool = False
    ) -> tuple[int, ...] | None:
        """As `choose`, but only the GPUs are looked at."""
        assert self.family is not None
        match = self.family.match(demand)
        if match is None:
            return None
        if shadow is None:
            free = [gpu for gpu in self.gpus if gpu.takes(demand)]
        else:
            twins = zip(self.gpus, shadow.gpus, strict=True)
            free = [gpu for gpu, twin in twins if gpu.takes(demand) and twin.takes(demand)]
        if len(free) < demand.gpu_count:
            return None
        if len(free) > 1:
            if demand.reserved:
                free.sort(key=lambda gpu: (gpu.busy, gpu.total, gpu.index))
            elif pack:
                free.sort(key=lambda gpu: (not gpu.users, gpu.mem_free, gpu.index))
            else:
                free.sort(key=lambda gpu: (gpu.load, gpu.users, gpu.total, gpu.index))
        return pick(free, match)

    def accepts(self, demand: Demand, gpus: Sequence[int]) -> bool:
        """Whether this process fits here on exactly these GPUs."""
        free = {gpu.index for gpu in self.gpus if gpu.takes(demand)}
        return self.has_capacity(demand) and free.issuperset(gpus)

    def take(self, job_id: int, demand: Demand, gpus: tuple[int, ...]) -> None:
        self.jobs.setdefault(job_id, []).append((demand, gpus))
        self._use(demand, gpus, 1)

    def give(self, job_id: int) -> bool:
        """End all processes of a job here; False if it has none."""
        processes = self.jobs.pop(job_id, None)
        for demand, gpus in processes or ():
            self._use(demand, gpus, -1)
        if not self.jobs:
            self.excused = False
        return processes is not None

    def _use(self, demand: Demand, gpus: Iterable[int], sign: int) -> None:
        self.cpu_free -= sign * demand.cpu
        self.mem_free -= sign * demand.mem
        self.processes += sign
        if demand.exclusive:
            self.held += sign
        for index in gpus:
            gpu = self._gpu(index)
            if gpu is not None:
                gpu.use(demand, sign)
                if not gpu.busy and gpu.users == (sign > 0):
                    self.idle -= sign

    def _gpu(self, index: int) -> GpuState | None:
        """The GPU of this index, which mostly is its place as well."""
        if index < len(self.gpus) and self.gpus[index].index == index:
            return self.gpus[index]
        return next((gpu for gpu in self.gpus if gpu.index == index), None)

    def copy(self) -> "HostState":
        """A twin to try things on."""
        twin = HostState.__new__(HostState)
        twin.name = self.name
        twin.machine = self.machine
        twin.family = self.family
        twin.up = self.up
        twin.cpu_free = self.cpu_free
        twin.mem_free = self.mem_free
        twin.gpus = [gpu.copy() for gpu in self.gpus]
        twin.idle = self.idle
        twin.processes = self.processes
        twin.held = self.held
        # The lists are shared: a twin lets jobs go, and takes only ones the host does not have.
        twin.jobs = dict(self.jobs)
        twin.excused = self.excused
        twin.free_level = self.free_level
        return twin

    def emptied(self) -> "HostState":
        """A twin without our jobs; what others use stays used."""
        twin = HostState(self.name)
        twin.up = self.up
        if self.machine is not None and self.family is not None:
            twin.measure(self.machine, self.family)
        return twin


def pick(free: list[GpuState], match: list[tuple[int, frozenset[int]]]) -> tuple[int, ...] | None:
    """Distinct GPUs for every need, tightest first, in the order of the needs."""
    if len(match) == 1:
        count, kinds = match[0]
        fitting = [gpu.index for gpu in free if gpu.kind in kinds]
        return tuple(sorted(fitting[:count])) if len(fitting) >= count else None
    # Every single GPU asked for is a seat; augmenting paths find seats for all if there are any.
    seats = [(number, kinds) for number, (count, kinds) in enumerate(match) for _ in range(count)]
    taken: dict[int, int] = {}

    def seat(place: int, tried: set[int]) -> bool:
        for position, gpu in enumerate(free):
            if gpu.kind in seats[place][1] and position not in tried:
                tried.add(position)
                if position not in taken or seat(taken[position], tried):
                    taken[position] = place
                    return True
        return False

    # The choosiest first, so that "any" is left with what nobody named.
    for place in sorted(range(len(seats)), key=lambda place: len(seats[place][1])):
        if not seat(place, set()):
            return None
    given = sorted((seats[place][0], free[position].index) for position, place in taken.items())
    return tuple(index for _, index in given)
