"""A machine as the core sees it: what it has, and what others use of it."""

from msgspec import Struct

from towline.model.identity import Identity


class Aside(Struct, frozen=True):
    """Why nothing starts on a machine: jobs failed there at once that do well elsewhere."""

    #: So many in a row, and for how long it is set aside.
    failed: int
    for_s: float = 0.0
    #: That time is over: one job tries it, this one; 0: the next that starts there.
    is_tried: bool = False
    tried_by: int = 0


class Gpu(Struct, frozen=True):
    index: int
    #: As the driver says it, e.g. "NVIDIA GeForce GTX 1070".
    model: str
    mem_mb: int
    uuid: str = ""
    #: Used by programs that are not our jobs.
    foreign_mem_mb: int = 0
    #: Share of the compute used by programs that are not our jobs, 0 to 1.
    foreign_util: float = 0.0
    #: Whose jobs, of other Engines, were granted a part of it: "ann, bob".
    claimed_by: str = ""
    #: They have it for themselves alone.
    reserved: bool = False
    #: Whose members may use it; empty means everyone who may use the machine.
    groups: tuple[str, ...] = ()


class Machine(Struct, frozen=True):
    """One observation of one machine; `cpus`, `mem_mb`, `gpus` are what may be used at most."""

    name: str
    cpus: float
    mem_mb: int
    gpus: tuple[Gpu, ...] = ()
    #: Used by programs that are not our jobs, measured; or granted to them.
    foreign_cpus: float = 0.0
    foreign_mem_mb: int = 0
    #: How much of `foreign_cpus` is what jobs of other Engines were granted, used or not.
    claimed_cpus: float = 0.0
    #: Whose jobs, of other Engines, run here: "ann, bob".
    claimed_by: str = ""
    #: Clusters this machine is part of; a job names one.
    clusters: tuple[str, ...] = ()
    #: Who may use it; empty means everyone.
    owners: tuple[str, ...] = ()
    #: Whose members may have processes without GPUs here; empty means everyone.
    groups: tuple[str, ...] = ()
    #: Short names for GPU models, lower case without spaces -> model text it stands for.
    aliases: tuple[tuple[str, str], ...] = ()
    #: A GPU's name is its whole model text or an alias, never a part of it.
    exact_names: bool = False
    #: Seconds between the starts of jobs that run for long; 0: all at once.
    stagger_s: float = 0.0
    #: Why no job starts on it now, in words; empty: jobs may start.
    closed: str = ""
    #: Where it is, whatever its name; and which machine answered there.
    target: str = ""
    identity: Identity | None = None


class Walls(Struct, frozen=True):
    """Whether a machine can wall in jobs, and what its walls leave open."""

    #: Why it cannot; empty: it can.
    why: str = ""
    #: What gives a job a network of its own; and why nothing does.
    network: str = ""
    network_why: str = ""
    #: What bounds its memory and CPUs; and why nothing does.
    limits: str = ""
    limits_why: str = ""
    #: Programs inside can make user namespaces.
    nesting: bool = False
    #: Groups of its account that reach around any wall.
    groups: tuple[str, ...] = ()

    @property
    def open(self) -> tuple[str, ...]:
        """What is left open, in words."""
        if self.why:
            return ()
        left = []
        if not self.network:
            text = "network: that of the machine, with its loopback and abstract sockets"
            left.append(f"{text} ({self.network_why})")
        if not self.limits:
            left.append(f"memory and CPUs: not bounded ({self.limits_why})")
        if self.nesting:
            left.append("programs inside can make user namespaces of their own")
        if self.groups:
            left.append(f"the account is in {', '.join(self.groups)}, which reach around walls")
        return tuple(left)


class Slot(Struct, frozen=True, omit_defaults=True):
    """Where one process of a job runs: its machine and the GPU indexes it was given."""

    machine: str
    gpus: tuple[int, ...] = ()
    #: Where that machine is, and which one it was when the process got its place: names may come
    #: to mean another one. Empty in what older versions noted.
    target: str = ""
    identity: Identity | None = None


#: One slot per process, in the order of `Request.processes()`.
Placement = tuple[Slot, ...]
