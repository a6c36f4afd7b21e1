"""What passes between the Engine and backends, as data."""

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

from msgspec import Struct, field

from towline.errors import AgentError
from towline.model.machine import Walls

#: Files up to this size travel many in one message.
SHORT = 64 << 10


class FileEntry(TypedDict):
    """What stands under a name in a job's folder."""

    name: str
    #: file, dir, link or other
    kind: str
    size: NotRequired[int]
    mtime: NotRequired[float]
    mode: NotRequired[int]
    #: Where a link leads.
    target: NotRequired[str]
    #: Of a file that is as it was submitted: the name of its content in our own store.
    blob: NotRequired[str]
    #: How much of its content comes along.
    got: NotRequired[int | None]


class FilePage(Struct, frozen=True):
    """Files of a list, as many as there is room for; `more`: there are others."""

    files: list[FileEntry]
    more: bool = False


#: All files below a folder, or those that a process made or changed.
FileList = Literal["walk", "changed"]


class FoundFile(Struct, frozen=True):
    """A file as its machine describes it, and all that is in it, if it is short."""

    entry: FileEntry
    content: bytes | memoryview | None = None


class Collected(Struct, frozen=True):
    """What a process wrote outside of its folder is in it now, but for what could not be copied:
    each with the machine's name for why (`ENOSPC`), and how many there are of it altogether."""

    left_out: list[tuple[str, str]] = field(default_factory=list)
    count: int = 0


class WantedFile(Struct, frozen=True):
    """A file to be read: how much of it is here already, and how long it is said to be."""

    path: str
    size: int
    offset: int = 0


class Part(Struct, frozen=True):
    """A piece of one of the files; the parts of one file come in order, up to its `last`."""

    #: Which of the wanted files.
    index: int
    offset: int
    data: bytes | memoryview
    last: bool
    #: Why there is none: the file is gone, or may not be had.
    error: AgentError | None = None


class UploadPiece(Struct, frozen=True):
    """Bytes of a file that goes to a machine."""

    path: str
    mode: int
    offset: int
    data: bytes
    last: bool


class Printed(Struct, frozen=True):
    """What a command that runs beside a job printed."""

    stream: str
    offset: int
    data: bytes


class Port(Struct, frozen=True):
    """Where a connection goes: to a port beside a process, or to a service by its name."""

    number: int = 0
    service: str = ""


class ServiceState(TypedDict):
    """How a service stands on its machine: `state` is starting, running or failed."""

    state: str
    port: NotRequired[int | None]
    text: NotRequired[str | None]


class DiskUse(Struct, frozen=True):
    """What Towline takes on a machine, and what is free there, in bytes."""

    jobs: int
    folders: int
    contents: int
    free: int


class Swept(Struct, frozen=True):
    """What went of the contents of snapshots that nothing needs any more."""

    snapshots: int
    blobs: int
    bytes: int


class Examined(Struct, frozen=True):
    """What a machine that answers tells the doctor."""

    #: What it measured, as the agent tells it; `probes` read it.
    raw: Mapping[str, Any]
    #: How far its clock is ahead of ours.
    clock_s: float
    root: str
    #: What runs there ends when its user logs out.
    logout_ends_jobs: bool
    #: Whether jobs can be walled in there.
    walls: Walls = Walls("it did not say")


class QueueStanding(TypedDict, total=False):
    """Where an attempt stands that waits in the queue of its cluster."""

    #: The queue's word for why it waits; when it is expected to start.
    reason: str
    expected: float
    #: Which it is of those that wait, and how many these are.
    place: int
    waiting: int
    #: It has begun, and stands still.
    suspended: bool
