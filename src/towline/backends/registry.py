"""The kinds of clusters that jobs run on: the one place that knows them all.

A kind with a queue of its own is its settings (`config/settings.py`) and its dialect
(`backends/queue/dialect.py`), and a row here. Whatever else is to be known of it (how it is joined,
checked, shown by `tow machines` and examined by `tow doctor`) is asked of these two.
"""

from collections.abc import Callable

import msgspec
from msgspec import Struct

from towline.backends.base import Report
from towline.backends.gridengine.dialect import GridEngineDialect
from towline.backends.machines.backend import Machines
from towline.backends.queue.backend import QueueBackend
from towline.backends.queue.dialect import Dialect
from towline.backends.router import Backends
from towline.backends.slurm.dialect import SlurmDialect
from towline.config.settings import AnyQueue, GridEngineCluster, SlurmCluster
from towline.errors import UsageError
from towline.model.job import Queueing
from towline.snapshot.blobs import BlobStore


class QueueKind(Struct, frozen=True):
    #: What `tow clusters add` writes.
    settings: type[AnyQueue]
    dialect: Dialect


#: By the word in `kind = "..."`.
QUEUES: dict[str, QueueKind] = {
    "slurm": QueueKind(SlurmCluster, SlurmDialect()),
    "gridengine": QueueKind(GridEngineCluster, GridEngineDialect()),
}
KINDS = ("machines", *QUEUES)


def queue_kind(kind: str) -> QueueKind:
    """Look one up that somebody named."""
    if kind not in QUEUES:
        raise UsageError(
            f"there is no kind of queue called {kind!r}", hint=f"there are: {', '.join(QUEUES)}"
        )
    return QUEUES[kind]


def dialect_of(kind: str) -> Dialect:
    return queue_kind(kind).dialect


def shown_words(title: str, queue: Queueing) -> list[str]:
    """Tell the command line of a submission as far as people care."""
    return dialect_of(queue.kind).shown_words(title, queue)


def queue_from(body: bytes) -> AnyQueue:
    """Read the settings of a cluster as they were remembered."""
    found: AnyQueue = msgspec.json.decode(body, type=AnyQueue)
    return found


def make_backends(
    engine_id: str,
    report: Report,
    blobs: BlobStore,
    environment: Callable[[str], dict[str, str] | None],
    probe_every_s: float,
) -> Backends:
    """Make a backend of every kind, behind one door.

    `environment` has those of the terminals that jobs on this machine came from, by name.
    """
    machines = Machines(engine_id, report, blobs, environment, probe_every_s)
    queues = {
        kind: QueueBackend(found.dialect, engine_id, report, machines)
        for kind, found in QUEUES.items()
    }
    return Backends(machines, queues)
