"""What the Engine uses of clusters, whatever their kind: all that it knows of them is in here.

`Backend` runs jobs and looks into them, `MachineAccess` is one machine that Towline talks to, and
`Fleet` has all of them; what passes between is in `terms`. The Engine gives orders (`start`,
`stop`), which return at once; what came of them arrives as facts through `report`. Starting is
idempotent per attempt.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Protocol

from towline.backends.terms import (
    Collected,
    DiskUse,
    Examined,
    FileEntry,
    FileList,
    FilePage,
    FoundFile,
    Part,
    Port,
    Printed,
    QueueStanding,
    ServiceState,
    Swept,
    UploadPiece,
    WantedFile,
)
from towline.core.garbage import Folder
from towline.core.samples import Reading, Use
from towline.errors import HostError
from towline.hosts.base import Host
from towline.model.events import Fact, Follow
from towline.model.job import Ending, Job, Queueing
from towline.model.machine import Machine, Slot, Walls
from towline.model.request import Request
from towline.probes.nodes import QueueNode
from towline.snapshot.blobs import BlobStore
from towline.snapshot.collecting import Offer

Report = Callable[[Fact], None]
HearUse = Callable[[dict[str, Use]], None]
HearReadings = Callable[[Mapping[str, Sequence[Reading]]], None]


class FileAccess(Protocol):
    """The files of one process of a job. A name that leads out of its folder is refused."""

    async def entries(self, path: str) -> FilePage:
        """What is in a folder."""

    async def stat(self, path: str) -> FileEntry:
        """What a path is; a link inside the job's folder is followed."""

    async def collected(self) -> Collected:
        """Wait until what the process wrote outside of its folder is in it; it has ended."""

    async def walk(self, path: str) -> FilePage:
        """The files below a folder, as many as one answer has room for."""

    def listed(self, of: FileList, path: str = "") -> AsyncIterator[list[FileEntry]]:
        """All files of a list, some at a time."""

    def gathered(self, of: FileList, path: str = "") -> AsyncIterator[list[FoundFile]]:
        """The same with what is in the short files."""

    def read(
        self, path: str, offset: int = 0, end: int | None = None
    ) -> AsyncIterator[tuple[int, bytes]]:
        """The bytes of a file from `offset` up to `end`, each piece with the file's size."""

    def read_all(self, wanted: Sequence[WantedFile]) -> AsyncIterator[Part]:
        """The contents of many files, in parts; `index` says which of them a part is of."""

    async def write(self, path: str, mode: int, pieces: AsyncIterator[bytes]) -> int:
        """Make a file of these bytes; it has its name only once it is whole. Its size."""

    async def write_all(self, pieces: AsyncIterator[UploadPiece]) -> int:
        """Make many files; the pieces of each come in order. How many bytes they have."""

    def output(self, stream: str, offset: int = 0) -> AsyncIterator[bytes]:
        """What was printed until now, from `offset` on."""


class FileSource(Protocol):
    """Where the files of jobs can be read."""

    @property
    def blobs(self) -> BlobStore:
        """The contents that are here."""

    def files(self, job: Job, rank: int) -> FileAccess: ...


class Backend(Protocol):
    def start(self, job: Job, request: Request) -> None:
        """Start every process of the job's present attempt."""

    def follow(self, job: Job, follows: tuple[Follow, ...] | None) -> None:
        """Say, before it is started and later, what the job's present attempt follows in the queue
        of its cluster; () once nothing any more, None while that cannot be said."""

    def find_again(self, job: Job, request: Request) -> None:
        """After a restart: report what has become of the job's present attempt."""

    def stop(self, job: Job, now: bool = False) -> None:
        """Stop every process of the job's present attempt, at once if `now`; asked again, ask it
        again of the machines."""

    def recall(self, job: Job) -> None:
        """Let the job's present attempt, which was sent ahead, come back unless it has begun."""

    def conclude(self, job: Job) -> None:
        """The attempt is over: stop watching it."""

    def sending(self, job: Job) -> tuple[int, int] | None:
        """How much of what the job needs is over there, and of how much, in bytes."""

    async def read_log(
        self, job: Job, rank: int, stream: str, offset: int, wait: bool
    ) -> tuple[bytes, bool]:
        """Bytes from `offset` on, and whether that is all there will ever be."""

    async def log_size(self, job: Job, rank: int, stream: str) -> int:
        """How much a process has printed."""

    def printed(self, job: Job, rank: int, stream: str, offset: int) -> AsyncIterator[bytes]:
        """All that a process printed until now, from `offset` on."""

    def files(self, job: Job, rank: int, kept: bool = False) -> FileAccess:
        """Those of one process; `kept`: what it keeps for the next job."""

    def execute(self, job: Job, rank: int, argv: list[str]) -> AsyncIterator[Printed | Ending]:
        """Run a command beside a process; yields its output and last its ending."""

    async def services(self, job: Job) -> Mapping[str, ServiceState]:
        """How the services beside a running job stand."""

    async def answers(self, job: Job, rank: int, port: Port) -> bool:
        """Whether something takes connections there."""

    async def carry(
        self,
        job: Job,
        rank: int,
        port: Port,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Join a connection that was made here to one over there, until it is over."""


class MachineUpkeep(Protocol):
    """What is done on a machine that answers, besides running jobs."""

    #: The version of Python there.
    python: str

    def folders(self, prefix: str) -> AsyncIterator[list[Folder]]:
        """The job folders whose keys begin like this, by key, some at a time."""

    async def forget(self, keys: Iterable[str]) -> set[str]:
        """Remove job folders; those that went. What has not ended there stays."""

    async def shrink(self, keys: Iterable[str]) -> int:
        """Leave only what the jobs made; the bytes that went."""

    async def sweep(
        self, unused_s: float, full_s: float, keep: float, dry: bool, without: Sequence[str]
    ) -> Swept:
        """Remove contents that were not used for so long; for less time, while more than `keep`
        bytes are there. `without` are job folders that count as gone."""

    async def disk(self) -> DiskUse: ...

    async def examine(self) -> Examined: ...

    async def walls(self) -> Walls:
        """Whether jobs can be walled in there."""


class Connection(Protocol):
    """How the connection to a machine stands."""

    #: Set once it was dialled for the first time.
    called: asyncio.Event
    #: Since when it is as it is.
    since: float

    @property
    def name(self) -> str:
        """What people call the machine."""

    @property
    def state(self) -> str:
        """online, offline or connecting"""

    @property
    def heard_at(self) -> float:
        """When the machine last said anything, or was first asked for."""

    @property
    def silent_since(self) -> float | None:
        """When the machine was last heard of, or first asked for; None while it answers."""

    def redial(self) -> None:
        """Try now, not when the back-off says."""


class MachineAccess(Protocol):
    """A machine that Towline talks to: it runs jobs, or is the access node of a queue."""

    @property
    def name(self) -> str: ...

    @property
    def root(self) -> str:
        """The folder there in which everything is."""

    @property
    def host(self) -> Host: ...

    @property
    def channel(self) -> Connection: ...

    @property
    def error(self) -> HostError | None:
        """Why it cannot be reached, where that is known."""

    @property
    def is_connected(self) -> bool: ...

    async def reach(self, timeout_s: float = 40.0, patient: bool = True) -> object:
        """Wait until it is connected; not `patient`: for one try. HostError where it is not."""

    async def upkeep(self, timeout_s: float) -> MachineUpkeep:
        """Reach it in one try to do something there besides running jobs."""

    def jobs(self) -> set[int]:
        """Those of which something is wanted there."""

    def elsewhere(self, job: int) -> str:
        """Why nothing is heard of a job though the machine answers; empty where that is not so."""

    def expect(self, snapshot: str) -> None:
        """It may be needed soon: a machine that is not connected yet is asked for it first."""

    def forget_staged(self) -> None:
        """Snapshots there may be swept away: ask again before relying on one."""


class QueueSilent(Exception):
    """The queue of a cluster gives no answer, or fails; what it said."""


class ClusterQueue(Protocol):
    """A cluster that was joined and has a queue of its own."""

    #: What people call such a queue, and what to look at where it does not answer.
    title: str
    silent_hint: str

    async def nodes(self) -> list[QueueNode]:
        """List its nodes; QueueSilent where it gives no answer."""

    async def about(self) -> tuple[str, list[QueueNode]]:
        """Which queue it is, in a line, and its nodes; QueueSilent where it gives no answer."""


class Fleet(Backend, Protocol):
    """All machines and clusters that the Engine knows, of every kind; a job goes to its own."""

    @property
    def blobs(self) -> BlobStore:
        """The contents that are here."""

    def on_their_way(self, snapshots: tuple[str, ...]) -> tuple[int, int] | None:
        """How much of these is on whichever machines they go to, and of how much, in bytes."""

    async def reach(self, job: Job) -> None:
        """Until all machines of a job answer; HostError if one does not for a while."""

    @property
    def present(self) -> FileSource:
        """The files of jobs on machines that answer: one that does not is an error at once."""

    @property
    def machines(self) -> Mapping[str, MachineAccess]:
        """Those that are, or are to be, connected, by name."""

    def machine_of(self, slot: Slot) -> MachineAccess | None:
        """The machine that a process was given."""

    def find_machine(self, slot: Slot) -> None:
        """Make a machine known again that an earlier Engine used."""

    def seen(self, name: str) -> Machine | None:
        """What a machine was last seen to have; None: it was never seen."""

    def is_seen(self, name: str) -> bool:
        """Whether it is known what a machine has, under whichever of its names."""

    def counts_as(self, name: str) -> str:
        """The name that counts for a machine: it may have several."""

    def other_names(self, name: str) -> list[str]:
        """Those that count as this one."""

    def clusters_of(self, name: str) -> tuple[str, ...]:
        """The clusters that a machine is in, under all its names."""

    def machines_in(self, cluster: str) -> Sequence[MachineAccess]: ...

    def offer_ahead(self, cluster: str) -> Offer | None:
        """Where only one machine can get a job, what is read of its folder goes there at once."""

    def hear_use(self, hear: HearUse, hear_readings: HearReadings) -> None:
        """Tell from now on what our processes use, by their keys: whenever that is measured, and
        of those on the nodes of queues later, what was measured there."""

    def queue_at(self, cluster: str) -> ClusterQueue | None:
        """The queue of a cluster that has one of its own; None for machines."""

    async def check_possible(self, cluster: str, wish: Queueing) -> str:
        """What the queue of a cluster says to such a job; Impossible if it never could run."""

    def standing(self, job: Job) -> QueueStanding:
        """Where a job that waits stands in its cluster's own queue, as far as that is known."""

    async def clear_error(self, job: Job) -> bool:
        """Have the queue start a job after all that it set aside; False for any other job."""

    async def close(self) -> None: ...
