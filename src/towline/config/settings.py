"""The configuration as data; docs/configuration.md describes every field for users."""

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from towline.config.targets import THIS

Seconds = Annotated[float, Meta(ge=0)]
Amount = Annotated[float, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=0)]


def hours_of(quiet_hours: str | list[str] | None) -> list[str]:
    """`quiet_hours` as a list, however it was written."""
    texts = [quiet_hours] if isinstance(quiet_hours, str) else quiet_hours or []
    return [text for text in texts if text.strip()]


class MachineEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """One machine of a cluster, and how much of it Towline may use at most."""

    ssh: str
    name: str | None = None
    #: File of the ssh key that opens it; None: those that ssh finds itself.
    key: str | None = None
    max_cpus: Positive | None = None
    max_mem: str | None = None
    #: Indexes of the GPUs that may be used; None: all.
    gpus: list[Count] | None = None
    folder: str | None = None
    owners: list[str] | None = None
    #: Seconds between starts, and hours in which no job starts; None: as in the cluster.
    stagger: Seconds | None = None
    quiet_hours: str | list[str] | None = None
    #: Older names of `max_cpus` and `max_mem`.
    cpus: Positive | None = None
    mem: str | None = None

    @property
    def label(self) -> str:
        """What the machine is called everywhere."""
        return self.name or self.ssh


class MachinesCluster(
    Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="machines"
):
    """Machines that Towline schedules itself."""

    machines: list[str | MachineEntry]
    setup: str = ""
    #: Where jobs live on each machine.
    folder: str = "~/.towline"
    lost_after_s: Positive | None = None
    #: Who may use these machines; empty: everyone.
    owners: list[str] = field(default_factory=list)
    #: Name in the job's folder -> folder or file that is on the machines already.
    links: dict[str, str] = field(default_factory=dict)
    #: Seconds between the starts of two jobs on one machine, once some have started at once.
    stagger: Seconds = 0.25
    #: Hours in which no job starts on these machines.
    quiet_hours: str | list[str] = ""
    #: Variables of every job there.
    env: dict[str, str] = field(default_factory=dict)
    #: Every job is walled in; and folders of the machines that it sees besides, read-only.
    sandbox: bool = False
    sandbox_shows: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        # Values of variables may be secrets.
        return f"MachinesCluster({self.machines!r}, env={sorted(self.env)})"

    @property
    def kind(self) -> str:
        return "machines"

    def entries(self) -> list[MachineEntry]:
        """Every machine in its long form, with what the cluster says for all filled in."""
        return [self._entry(machine) for machine in self.machines]

    def _entry(self, machine: str | MachineEntry) -> MachineEntry:
        entry = MachineEntry(machine) if isinstance(machine, str) else machine
        return MachineEntry(
            ssh=entry.ssh,
            name=entry.label,
            key=entry.key,
            max_cpus=entry.max_cpus or entry.cpus,
            max_mem=entry.max_mem or entry.mem,
            gpus=entry.gpus,
            folder=entry.folder or self.folder,
            owners=self.owners if entry.owners is None else entry.owners,
            stagger=self.stagger if entry.stagger is None else entry.stagger,
            quiet_hours=self.quiet_hours if entry.quiet_hours is None else entry.quiet_hours,
        )


class QueueCluster(Struct, frozen=True, forbid_unknown_fields=True):
    """A cluster with a queue of its own, reached through a machine that has its commands."""

    host: str = THIS
    setup: str = ""
    options: dict[str, str | int | float | bool] = field(default_factory=dict)
    #: Where jobs live, on the access node and on all nodes alike.
    folder: str = "~/.towline"
    #: Name in the job's folder -> folder or file that is on the nodes already.
    links: dict[str, str] = field(default_factory=dict)
    #: Shell text that the queue's commands need before them, on the access node.
    setup_login: str = ""
    #: Variables of every job there.
    env: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        # Values of variables may be secrets.
        return f"{type(self).__name__}({self.host!r}, env={sorted(self.env)})"

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)

    @property
    def configured(self) -> dict[str, str | int | float | bool]:
        """What its dialect is told of it: options, and what the site calls things."""
        return self.options


class SlurmCluster(
    QueueCluster, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="slurm"
):
    """A Slurm, reached through a machine that has `sbatch`."""


class GridEngineCluster(
    QueueCluster, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="gridengine"
):
    """A Grid Engine, reached through a machine that has `qsub`."""

    #: What the site calls its parallel environment for several CPUs, and the complexes by which it
    #: counts memory and GPUs; empty: the one that is found there.
    pe: str = ""
    memory: str = ""
    gpus: str = ""

    @property
    def configured(self) -> dict[str, str | int | float | bool]:
        named = {"--pe": self.pe, "--memory": self.memory, "--gpus": self.gpus}
        return {**self.options, **{name: value for name, value in named.items() if value}}


class ServerCluster(
    Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="server"
):
    """A team's server."""

    url: str
    setup: str = ""
    options: dict[str, str | int | float | bool] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return "server"


#: Those with a queue of their own.
AnyQueue = SlurmCluster | GridEngineCluster
Cluster = MachinesCluster | AnyQueue | ServerCluster
CLUSTER_KINDS: dict[str, type[Struct]] = {
    "machines": MachinesCluster,
    "slurm": SlurmCluster,
    "gridengine": GridEngineCluster,
    "server": ServerCluster,
}


class Defaults(Struct, frozen=True, forbid_unknown_fields=True):
    """What a job gets when its command line does not say otherwise."""

    request: str = ""
    time: str = ""
    retries: Count = 0
    priority: int = 0
    setup: str = ""
    env: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        # Values of variables may be secrets.
        return f"Defaults(request={self.request!r}, time={self.time!r}, env={sorted(self.env)})"


class EngineSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How the Engine behaves; one for all projects."""

    #: The Engine exits after this long with nothing to do; 0: never.
    idle_exit_s: Seconds = 1800
    #: A machine silent for this long has lost its jobs.
    lost_after_s: Positive = 86400
    probe_every_s: Annotated[float, Meta(ge=0.1)] = 5
    #: From TERM to KILL when a job is stopped.
    grace_s: Seconds = 10


class SnapshotSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What of a folder travels to a machine."""

    limit_mb: Positive = 1024
    #: Patterns of paths left out, though git does not ignore them.
    exclude: list[str] = field(default_factory=list)
    #: Patterns of paths that travel, though git ignores them.
    include: list[str] = field(default_factory=list)


class CleanupSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What of ended jobs is removed from machines; one for all projects."""

    #: The folder of a job goes so many days after its end.
    after_days: Amount = 14
    #: The oldest go earlier while the job folders on a machine take more than this.
    keep_mb: Amount = 20480
    #: Once a day, without being asked.
    automatic: bool = True


def local_only() -> dict[str, Cluster]:
    return {"local": MachinesCluster([THIS])}


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The user's file and the project's, merged."""

    default_cluster: str = "local"
    clusters: dict[str, Cluster] = field(default_factory=local_only)
    #: GPU short name -> model it stands for.
    aliases: dict[str, str] = field(default_factory=dict)
    defaults: Defaults = Defaults()
    engine: EngineSettings = EngineSettings()
    snapshot: SnapshotSettings = SnapshotSettings()
    cleanup: CleanupSettings = CleanupSettings()


#: Sections that are one struct each, by their key.
SECTIONS: dict[str, type[Any]] = {
    "defaults": Defaults,
    "engine": EngineSettings,
    "snapshot": SnapshotSettings,
    "cleanup": CleanupSettings,
}
