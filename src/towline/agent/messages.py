"""The one door for what comes from a machine: words of an agent in, checked facts out.

A machine may be damaged, hostile, or run a job that writes where it should not. So everything that
is heard is checked here for its shape, its types and its size before anything relies on it:

- a greeting, an event or an answer of the wrong shape is `Nonsense`: whoever asked is told, and the
  connection is given up where nobody asked;
- the record of one job that cannot be read harms that job alone: it ends as lost;
- a text is cut, and has nothing in it that the store or a terminal cannot keep.
"""

import re
import time
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from towline.errors import AgentError, Nonsense
from towline.model.machine import Walls

Kind = TypeVar("Kind")

#: So much of a text for people, and of a name, is kept.
_MOST_TEXT, _MOST_NAME = 2000, 1 << 16
_WALL_TEXTS = ("why", "network", "network_why", "limits", "limits_why")
#: Lone surrogates cannot be written down, and NUL marks texts that were encoded to be kept.
_UNKEEPABLE = re.compile("[\0\ud800-\udfff]")

#: What converting something of the wrong kind may end in.
UNREADABLE = (msgspec.ValidationError, ValueError, RecursionError)

Time = Annotated[float, Meta(ge=0.0, le=1e11)]
Count = Annotated[int, Meta(ge=0, le=2**62)]
Small = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Name = Annotated[str, Meta(max_length=_MOST_NAME)]
Digest = Annotated[str, Meta(pattern=r"\A[0-9a-f]{16,128}\Z")]
Word = Annotated[str, Meta(pattern=r"\A[a-z_]{0,40}\Z")]
Errno = Annotated[str, Meta(pattern=r"\A[A-Z0-9]{0,20}\Z")]

# --- shapes ----------------------------------------------------------------------------------


class _Hello(Struct):
    """How an agent introduces itself and its machine."""

    time: Time
    root: Name
    protocol: Small = 0
    pid: Small = 0
    python: Name = ""
    hostname: Name = ""
    boot: Name = ""
    user: Name = ""
    home: Name = ""
    address: Name = ""
    cpus: Annotated[float, Meta(ge=0, le=1e6)] = 1
    logout_ends_jobs: bool | None = None
    identity: dict[str, Name | Count] = field(default_factory=dict)


class ProcessState(Struct):
    """Where one process stands, as its machine says."""

    state: Literal["unknown", "held", "running", "ended", "elsewhere"]
    started: Any = None
    ending: Any = None
    host: Name = ""


class Rank(Struct):
    """Where one process of a handed-over attempt stands, as its files say."""

    state: Literal["waiting", "running", "ended"] = "waiting"
    ending: Any = None
    #: Which run of the attempt says so; None where none does.
    run: Annotated[int, Meta(ge=0, le=10**9)] | None = None
    started: Time = 0.0
    node: Name = ""
    #: Why it waits again after it ran.
    why: Name = ""


class Record(Struct):
    """What is written down over there of a handed-over attempt."""

    ticket: str = ""
    claim: str = ""
    returned: str = ""
    said: str = ""
    array: tuple[Name, Annotated[int, Meta(ge=0, le=10**9)]] | None = None
    ranks: list[Any] = field(default_factory=list)


class _File(Struct):
    name: Name
    kind: Literal["file", "dir", "link", "other"]
    size: Count = 0
    mtime: float = 0.0
    mode: Annotated[int, Meta(ge=0, le=0o7777)] = 0
    target: Name = ""
    leads_to: "_File | None" = None
    #: Ours to say, never a machine's: which content of our own store it is.
    blob: None = None
    #: How long its contents are, where they came with it.
    got: Count | None = None


class _Error(Struct):
    text: str
    code: Annotated[str, Meta(max_length=100)] = "agent"


class _Probe(Struct):
    """What a machine measured; parsing it is up to `probes`, which take nothing for granted."""

    time: Time | None = None
    jobs: dict[str, Any] | None = None
    gpus: str | None = None
    gpu_error: str | None = None
    disk_free_mb: Count | None = None


class _Started(Struct):
    refused: dict[str, _Error] = field(default_factory=dict)


class _Raw(Struct):
    raw: _Probe


class _States(Struct):
    states: dict[str, ProcessState]


class _Piece(Struct):
    size: Count
    eof: bool
    version: Name = ""
    z: bool = False


class _Got(Struct):
    size: Count = 0
    got: Count = 0
    error: Any = None


class _Many(Struct):
    files: list[_Got]
    z: bool = False


class _Called(Struct):
    code: Small
    out: str
    err: str


class _Missing(Struct):
    missing: list[Digest]
    begun: dict[Digest, Count] = field(default_factory=dict)


class _Resumed(Struct):
    size: Count
    more: bool


class _Have(Struct):
    have: bool
    recent: list[Digest] = field(default_factory=list)


class _Port(Struct):
    port: Annotated[int, Meta(ge=1, le=65535)]


class _Files(Struct):
    files: list[_File]
    more: bool = False
    #: Where to go on; None: that was all.
    next: Count | None = None


class _Collected(Struct):
    done: bool
    left_out: list[tuple[Name, Errno]] = field(default_factory=list)
    count: Count = 0


class _Samples(Struct):
    #: Lines as the nodes wrote them; read one by one, so that a damaged one costs no other.
    samples: dict[str, list[Any]]


class _Entries(Struct):
    entries: list[_File]
    more: bool = False


class _Handed(Struct):
    handed: dict[str, Any]


class _Service(Struct):
    state: Name = ""
    port: Annotated[int, Meta(ge=0, le=65535)] | None = None
    text: str | None = None


class _Services(Struct):
    services: dict[str, _Service]


class _Sizes(Struct):
    folders: list[tuple[Name, Count, Time | bool | None]]
    more: bool


class _Swept(Struct):
    bytes: Count
    snapshots: Count = 0
    blobs: Count = 0


class _Disk(Struct):
    jobs: Count
    folders: Count
    contents: Count
    free: Count


class _Forgotten(Struct):
    forgotten: list[str]


class _Jobs(Struct):
    held: list[str] = field(default_factory=list)
    started: list[tuple[str, Any, Any]] = field(default_factory=list)
    ended: list[tuple[str, Any]] = field(default_factory=list)


class _News(Struct):
    news: dict[str, Any]


class _Stream(Struct):
    stream: Count
    credit: Annotated[int, Meta(ge=0, le=2**40)] = 0
    more: bool = False
    eof: bool = False
    close: bool = False


#: Operation -> the answer to it; the others have an answer that says nothing.
_ANSWERS: dict[str, type] = {
    "start": _Started,
    "probe": _Raw,
    "observe": _States,
    "void": _States,
    "read": _Piece,
    "get": _Piece,
    "get_many": _Many,
    "list": _Entries,
    "stat": _File,
    **dict.fromkeys(("walk", "changed", "gather"), _Files),
    "collect": _Collected,
    "samples": _Samples,
    "services": _Services,
    "free_port": _Port,
    "missing": _Missing,
    "resume": _Resumed,
    "have_snapshot": _Have,
    "call": _Called,
    "hand_over": _Called,
    "handed": _Handed,
    "sizes": _Sizes,
    "sweep": _Swept,
    "forget": _Forgotten,
    "shrink": _Swept,
    "disk": _Disk,
}
_EVENTS: dict[str, type] = {"jobs": _Jobs, "probe": _Raw, "handed": _News}

# --- the door --------------------------------------------------------------------------------


def check_answer(op: str, header: dict[str, Any]) -> None:
    if (kind := _ANSWERS.get(op)) is not None:
        _read(kind, header, f"its answer to `{op}`")


def check_event(header: dict[str, Any]) -> None:
    event = header.get("event")
    if isinstance(event, str) and event in _EVENTS:
        _read(_EVENTS[event], header, f"its `{event}`")


def check_stream(header: dict[str, Any]) -> None:
    _read(_Stream, header, "a stream of it")


def read_hello(header: dict[str, Any]) -> dict[str, Any]:
    """The greeting, with nothing in it that is not known here."""
    hello = msgspec.structs.asdict(_read(_Hello, header, "its greeting"))
    for name in ("python", "hostname", "boot", "user", "address"):
        hello[name] = readable(hello[name])
    return hello


def read_error(error: Any, name: str) -> AgentError:
    """Why the agent of a machine says no."""
    found = _read(_Error, error, "its refusal")
    failure = AgentError(f"{name}: {readable(found.text)}")
    failure.code = found.code
    return failure


def readable(text: str) -> str:
    """A text for people as the store can keep it."""
    short = text if len(text) <= _MOST_TEXT else text[:_MOST_TEXT] + "…"
    return _UNKEEPABLE.sub("\ufffd", short)


class Clock:
    """Turns times of a machine's clock into ours."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def set(self, hello: dict[str, Any]) -> None:
        """Note how far the clock of a machine that just greeted is ahead of ours."""
        self._ahead_s = hello.get("time", time.time()) - time.time()
        if abs(self._ahead_s) < 1.0:
            self._ahead_s = 0.0

    def here(self, at: Any) -> float:
        """A time of the machine in ours; 0 for what is none."""
        try:
            told = msgspec.convert(at, Time)
        except UNREADABLE:
            return 0.0
        return max(0.0, told - self._ahead_s) if told else 0.0


def read_walls(told: Any) -> Walls:
    """Whether jobs can be walled in on a machine, as it says."""
    walls = _read(Walls, told, "what it says of its walls")
    texts = {name: readable(getattr(walls, name)) for name in _WALL_TEXTS}
    groups = tuple(readable(group) for group in walls.groups[:20])
    return msgspec.structs.replace(walls, groups=groups, **texts)


def read_state(told: Any) -> ProcessState:
    return _read(ProcessState, told, "where a job stands")


def read_record(told: Any) -> Record:
    """What lies in the folder of a handed-over attempt; nothing, where it cannot be read."""
    try:
        return msgspec.convert(told, Record)
    except UNREADABLE:
        return Record()


def read_rank(told: Any) -> Rank:
    """Of a process whose files cannot be read nothing is known: then the queue's word counts."""
    try:
        rank = msgspec.convert(told, Rank)
    except UNREADABLE:
        return Rank()
    rank.node = readable(rank.node)
    return rank


def _read(kind: type[Kind], told: Any, what: str) -> Kind:
    try:
        return msgspec.convert(told, kind)
    except UNREADABLE as error:
        raise Nonsense(f"{what} cannot be understood: {error}") from None
