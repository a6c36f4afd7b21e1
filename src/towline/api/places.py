"""Clusters, machines and what runs beside jobs, as programs see them."""

from typing import Any, NotRequired, TypedDict

ClusterView = TypedDict(
    "ClusterView",
    {
        "name": str,
        "kind": str,
        "default": bool,
        "from": str,
        "machines": list[str],
        "host": str,
    },
)


class ClusterList(TypedDict):
    clusters: list[ClusterView]


class ClusterName(TypedDict):
    cluster: str


class MachineView(TypedDict):
    """A machine, or a node of a cluster with its own queue (`node`), and what is free on it."""

    name: str
    clusters: list[str]
    state: str
    reason: str
    hint: str
    closed: str
    jobs: list[int]
    seen: float
    cpus: float | None
    gpus: list[dict[str, Any]]
    also: NotRequired[list[str]]
    node: NotRequired[bool]
    cpus_free: NotRequired[float]
    mem_mb: NotRequired[int]
    mem_free_mb: NotRequired[int]
    #: The queues, or partitions, of its cluster that a node is in.
    queues: NotRequired[list[str]]
    #: What its queue says of a node, by the queue's own names.
    facts: NotRequired[dict[str, str]]


class Capacity(TypedDict):
    """What a machine has, and what of it is free."""

    cpus: float
    cpus_free: float
    mem_mb: int
    mem_free_mb: int
    gpus: list[dict[str, Any]]


class MachineList(TypedDict):
    machines: list[MachineView]


class LoginView(TypedDict):
    """How a person logs in to a machine that wants that."""

    machine: str
    target: str
    command: list[str]


class Logins(TypedDict):
    logins: list[LoginView]


class MachineDisk(TypedDict):
    """What Towline takes on a machine, in bytes, or why that is not known."""

    machine: str
    jobs: NotRequired[int]
    folders: NotRequired[int]
    contents: NotRequired[int]
    free: NotRequired[int]
    error: NotRequired[str]
    hint: NotRequired[str]


class Disk(TypedDict):
    machines: list[MachineDisk]


class CleanedHere(TypedDict):
    blobs: int
    bytes: int


class Cleaned(TypedDict):
    dry_run: bool
    machines: list[dict[str, Any]]
    here: CleanedHere


class MachineLimits(TypedDict):
    name: str
    #: The GPUs of each of the jobs that could run there at a time.
    slots: list[list[int]]
    reason: str
    hint: str
    cluster: NotRequired[str]


class MachineLimitList(TypedDict):
    cluster: str
    machines: list[MachineLimits]


class ServiceView(TypedDict):
    job: int
    name: str
    state: str
    text: str
    machine: str
    #: The port of the Engine's machine that leads there; 0 on a team's server, which opens none.
    local: int
    url: str
    #: What of its URL comes behind the port.
    path: str


class ServiceList(TypedDict):
    services: list[ServiceView]


class ForwardView(TypedDict):
    job: int
    port: int
    local: int


class ForwardList(TypedDict):
    forwards: list[ForwardView]


class Forwarded(TypedDict):
    local: int


class EngineView(TypedDict):
    version: str
    pid: int
    engine: str
    started: float
    jobs_active: int
    jobs_waiting: int
    machines: dict[str, str]
    home: str
    keys: bool


class Nothing(TypedDict):
    """It was done."""
