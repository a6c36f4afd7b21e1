"""The seam between the Engine and whoever submits: what each of the two is told of the other.

The Engine knows no folder, no project's configuration and no git of a submitter. It is given a
`Draft` (a specification whose folder is still to be frozen, once it is certain that the job can run
at all), and gets a `Submission` of it, which names contents by their hashes. What it wants done in
the submitter's folder it asks of the `Workspace` that it was built with. On a laptop both run in
one process (local.py), so that contents travel while they are being read.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Protocol

from msgspec import Struct, field

from towline.config.settings import CleanupSettings, Cluster, Config
from towline.errors import NotFound
from towline.model.batch import Line
from towline.model.job import JobSpec

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


class Workspace(Protocol):
    """What the Engine asks of the submitter's side."""

    async def pack(self, folder: str) -> str:
        """Make a snapshot of a whole folder of the Engine's own; its id, "" if it is empty."""
        ...

    def cleanup(self) -> CleanupSettings:
        """Say how long what ended jobs left behind is kept."""
        ...
