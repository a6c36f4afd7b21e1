"""The seam between the Engine and whoever submits: what each of the two is told of the other.

The Engine knows no folder, no project's configuration and no git of a submitter. It is given a
`Draft` (a specification whose folder is still to be frozen, once it is certain that the job can run
at all), and gets a `Submission` of it, which names contents by their hashes. What it wants done in
the submitter's folder it asks of the `Workspace` that it was built with; what jobs made it hands to
that workspace's `Receiver`, as names and bytes. On a laptop both run in one process (local.py), so
that contents travel while they are being read, and no second copy is made of results.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from towline.config.settings import CleanupSettings, Cluster, Config
from towline.errors import NotFound
from towline.model.batch import Line
from towline.model.job import Job, JobSpec
from towline.model.results import ResultsState

if TYPE_CHECKING:
    from towline.workspace.ask import JobAsk

#: What a receiver remembers of what it brought: nobody else reads it.
Memory = bytes
#: Is told the hash and the content of every small file that was read.
Offer = Callable[[str, bytes], None]


class Places(Struct, frozen=True):
    """The clusters that there are for somebody who asks, and which file defines each."""

    config: Config
    sources: Mapping[str, str] = field(default_factory=dict)
    #: The file of those that none defines.
    user_file: str = ""

    def cluster(self, name: str | None) -> tuple[str, Cluster]:
        """One of them, or the one that is meant where none is named."""
        name = name or self.config.default_cluster
        cluster = self.config.clusters.get(name)
        if cluster is None:
            raise NotFound(f"there is no cluster {name!r}", hint=_other_cluster(name, self.config))
        return name, cluster

    def source(self, name: str) -> str:
        return self.sources.get(name) or self.user_file


def _other_cluster(name: str, config: Config) -> str:
    known = ", ".join(config.clusters)
    if name.isdecimal():
        return f"-c names a cluster ({known}); CPUs are asked for with --cpus {name}"
    if close := get_close_matches(name, config.clusters, n=1):
        return f"did you mean {close[0]}? clusters: {known}"
    return f"clusters: {known}; `tow clusters add {name} MACHINE...` makes one"


class Frozen(Struct, frozen=True):
    """A folder at the moment of submission, by the hashes of what is in it."""

    #: Id of the snapshot; empty: there is nothing in it.
    snapshot: str = ""
    #: Where the command runs in it.
    subfolder: str = ""
    #: Number of files and their bytes in all, and the largest where they are very large.
    files: int = 0
    bytes: int = 0
    large: tuple[tuple[str, int], ...] = ()
    #: What git calls it, and what differs from the commit before it.
    commit: str = ""
    branch: str = ""
    changed: tuple[tuple[str, str], ...] = ()


class Submission(Struct, frozen=True):
    """One job as the Engine accepts it: what was asked, and the snapshot that it runs in."""

    spec: JobSpec
    frozen: Frozen = Frozen()
    #: The whole environment of the submitter, for a job on the submitter's own machine.
    environ: Mapping[str, str] = field(default_factory=dict)
    #: The job whose `keep` folder this one starts with.
    continued: int = 0
    #: Jobs and batches as people name them that must have ended first, each with how.
    after: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"Submission({self.spec!r})"


class Measured(Struct, frozen=True):
    """What would travel."""

    files: int
    bytes: int
    #: The largest files, with their sizes.
    largest: list[tuple[str, int]]
    subfolder: str


class Draft(Protocol):
    """A submission whose folder is not frozen yet: everything that can be wrong is found first."""

    @property
    def spec(self) -> JobSpec: ...
    @property
    def places(self) -> Places: ...
    @property
    def environ(self) -> Mapping[str, str] | None:
        """The submitter's whole environment; None: it was not sent, and has to be asked for."""
        ...

    @property
    def tree(self) -> str:
        """The same for drafts that have the same contents: those are frozen once."""
        ...

    async def rehearse(self) -> str:
        """Read the folder while machines are being called: its snapshot as it is now, or ""."""
        ...

    async def measure(self) -> Measured:
        """Say what would travel."""
        ...

    async def freeze(self, offer: Offer | None) -> Frozen:
        """Freeze the folder as it is now; what is read is offered at once."""
        ...

    def submission(self, frozen: Frozen) -> Submission:
        """Complete the draft."""
        ...


class BatchDraft(Struct, frozen=True):
    """A batch whose folder is not frozen yet: its lines, and what they share."""

    name: str
    lines: list[Line]
    base: Draft
    #: Place of a line -> the draft of one whose contents are its own.
    own: dict[int, Draft]
    max_parallel: int = 0
    fail_fast: bool = False


class Item(Struct, frozen=True):
    """A file that a process made, or one of its outputs, as the job names it."""

    #: Which process, where a job has several.
    process: str
    #: Its path in the folder of the process; empty: it is an output.
    name: str = ""
    #: out or err
    stream: str = ""
    mode: int = 0o666
    #: Which content it is, once that is certain: what is there of the same is gone on with.
    content: str = ""


class Whole(Struct, frozen=True):
    """A file that came whole."""

    item: Item
    data: bytes | memoryview = b""
    #: Instead: the hash of a content that was submitted with the job.
    blob: str = ""


class PlacedResults(Struct):
    """What is in the submitter's folder now; paths are for people, the Engine goes by none."""

    folder: str
    #: What the receiver wants to be told when more comes of the same job.
    memory: Memory = b""
    files: int = 0
    bytes: int = 0
    #: Files that a person has there with other content, and where the newer copy went.
    conflicts: list[tuple[str, str]] = field(default_factory=list)
    #: The same, by their paths in the folder that was submitted.
    kept: list[tuple[str, str]] = field(default_factory=list)
    #: Names that were left out: they would lead out of the folder.
    refused: list[str] = field(default_factory=list)
    #: Where something of a person's is in place of a folder that is needed.
    in_the_way: list[str] = field(default_factory=list)


class Delivery(Protocol):
    """What comes of one attempt of a job, on its way into the submitter's folder.

    Where that cannot be written to, `CannotPlace` says so.
    """

    async def make_folder(self, process: str) -> bool:
        """Make the folder of a process, be there nothing to put into it; False: it cannot be."""
        ...

    async def put(self, files: Sequence[Whole]) -> None:
        """Put files into place that came whole."""
        ...

    async def put_link(self, item: Item, target: str) -> None:
        """Put a link into place, once nothing is to be written through it."""
        ...

    async def put_output(self, item: Item, content: bytes) -> str:
        """Put a short output into place; where that is, "" if it cannot be."""
        ...

    async def sizes(self, items: Sequence[Item]) -> list[int]:
        """Say how much is there of each that once did not come whole; -1: it has no place."""
        ...

    async def write(self, item: Item, offset: int, content: bytes, last: bool) -> str:
        """Go on with what comes in pieces; where it is, once it is in place."""
        ...

    async def let_go(self, items: Sequence[Item], go_on: bool) -> None:
        """Drop what has not come whole, unless somebody may go on with it later."""
        ...

    async def finish(self, is_all: bool) -> PlacedResults:
        """Return once it is on disk; `is_all`: what an earlier attempt brought besides may go."""
        ...

    def close(self) -> None:
        """Nothing more comes, finished or not: what came whole is where people find it."""
        ...


class Receiver(Protocol):
    """Puts results where the submitter looks for them."""

    def deliver(self, job: Job, memory: Memory | None) -> Delivery:
        """Begin with the results of an attempt; `memory` is what was remembered of earlier ones."""
        ...

    def put_printed(
        self, job: Job, printed: tuple[bytes, bytes]
    ) -> tuple[ResultsState, Memory] | None:
        """Put into place at once all that a job printed, if it made nothing else.

        Where it is now, and what is to be remembered of it. None leaves it to be delivered, which
        also mends what is half written. It is called in a thread.
        """
        ...

    def settle_soon(self, job: Job) -> None:
        """See to it that what was put into place so is on disk before long."""
        ...

    def tidy(self, jobs: Iterable[Job]) -> None:
        """Remove what a killed Engine was just writing; only before anything is delivered."""
        ...

    async def sync(self, jobs: Iterable[Job]) -> None:
        """Return once all that was brought of these jobs is on disk."""
        ...

    def has_output(self, job: Job, streams: Sequence[str]) -> bool:
        """Say whether what an ended job printed can be read here. It may be called in a thread."""
        ...

    def read_output(self, job: Job, stream: str, offset: int) -> bytes:
        """Read the next piece of it. It may be called in a thread."""
        ...

    def close(self) -> None:
        """Begin nothing more."""
        ...


class Workspace(Protocol):
    """What the Engine asks of the submitter's side."""

    @property
    def receiver(self) -> Receiver: ...

    def cleanup(self) -> CleanupSettings:
        """Say how long what ended jobs left behind is kept."""
        ...


#: Finds a cluster that no configuration names, and that was made for an earlier submission.
Made = Callable[[str], Cluster | None]


class Submitters(Workspace, Protocol):
    """What the API asks of the submitter's side, besides."""

    def places(self, folder: str | None) -> Places:
        """The clusters that there are for somebody in a folder."""
        ...

    def drafts(self, asks: "Iterable[JobAsk]", owner: str, made: Made) -> "Iterator[Draft]":
        """What is asked, checked as far as that is possible; nothing is read yet."""
        ...
