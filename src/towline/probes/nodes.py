"""A node behind the access node of a queue, in terms that all queues share. Pure."""

from msgspec import Struct


class QueueNode(Struct, frozen=True):
    name: str
    cpus: int
    mem_mb: int
    #: Kind of GPU -> how many; the kind is empty where the site names none.
    gpus: dict[str, int] = {}
    cpus_free: int = 0
    mem_free_mb: int = 0
    gpus_free: dict[str, int] = {}
    #: Why nothing starts on it, and why nothing can run on it; empty when that is not so.
    closed: str = ""
    down: str = ""
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    #: The queue's own word for that, and the reason that somebody gave it.
    word: str = ""
    #: What the queue says of the host itself, by its own names: its load, its kind of processor.
    facts: dict[str, str] = {}


def largest(nodes: list[QueueNode]) -> str:
    """What the largest node has, and all kinds of GPUs."""
    kinds: dict[str, int] = {}
    for node in nodes:
        for kind, count in node.gpus.items():
            kinds[kind or "gpu"] = max(kinds.get(kind or "gpu", 0), count)
    gpus = ", ".join(f"{count}:{kind}" for kind, count in sorted(kinds.items()))
    cpus, mem_mb = max(n.cpus for n in nodes), max(n.mem_mb for n in nodes)
    most = f"at most {cpus} CPUs, {mem_mb} MB"
    return f"{most}, GPUs {gpus}" if gpus else f"{most} and no GPUs"
