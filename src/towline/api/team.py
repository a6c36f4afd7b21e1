"""What a team's server answers about accounts, groups, tokens and others' jobs."""

from typing import TypedDict


class Hello(TypedDict):
    server: str
    version: str
    #: open, invitation or approval
    registration: str
    #: `none`: jobs run under one account on each node, with no walls between them.
    isolation: str


class ServerHealth(TypedDict):
    ok: bool


class ExistsView(TypedDict):
    exists: bool


class AccountView(TypedDict):
    name: str
    fullname: str
    email: str
    administrator: bool
    #: active, pending or deleted
    state: str
    groups: list[str]
    #: New jobs are shared with these.
    autoshare: list[str]
    created: float


class AccountList(TypedDict):
    accounts: list[AccountView]


class NewToken(TypedDict):
    #: Told once, and remembered nowhere.
    token: str
    id: str
    expires: float
    account: AccountView


class TokenView(TypedDict):
    id: str
    machine: str
    created: float
    expires: float
    used: float
    #: Whether the question came with it.
    this: bool


class TokenList(TypedDict):
    tokens: list[TokenView]


class _GroupName(TypedDict):
    name: str
    title: str


class GroupView(_GroupName, total=False):
    #: For its members and administrators.
    members: list[str]


class GroupList(TypedDict):
    groups: list[GroupView]


class JobGroups(TypedDict):
    groups: list[str]


class _ShortFacts(TypedDict):
    id: int
    title: str
    owner: str
    request: str
    cluster: str
    state: str
    submitted: float
    started: float | None
    ended: float | None
    exit_code: int | None


class ShortJob(_ShortFacts, total=False):
    """What everybody may know of a job; its groups, for those who may look at it."""

    groups: list[str]


class StatusRow(ShortJob):
    """A job of a report."""

    #: Since when it is in its state.
    since: float
    #: Percent of the computing, and of the memory, of its GPUs: now, or of one that ended, on the
    #: whole.
    util_compute: int
    util_memory: int
    #: Node and GPU indexes of each process, in the order of ranks; empty until it has them.
    allocation: list[list[str | list[int]]]
    #: Place among those that wait for machines, from 1; 0: it does not.
    position: int


class TeamStatus(TypedDict):
    now: float
    running: list[StatusRow]
    waiting: list[StatusRow]
    done: list[StatusRow]
    #: So many more wait than are told of.
    more_waiting: int


class TeamJobs(TypedDict):
    jobs: list[StatusRow]


class GpuResource(TypedDict):
    index: int
    #: As its driver calls the model.
    name: str
    alias: str | None
    mem_mb: int
    #: Whose members may use it; empty: everyone.
    groups: list[str]


class _NodeFacts(TypedDict):
    name: str
    #: online, offline or drain
    state: str
    since: float
    #: walls or none
    isolation: str
    #: Why its jobs cannot be walled in, where that is so; and what its walls leave open.
    walls: str
    open: list[str]
    #: Whose members may have processes without GPUs here; empty: everyone.
    groups: list[str]
    cpus: float
    mem_mb: int
    resources: list[GpuResource]
    #: Where jobs find the server's data there; empty: nowhere.
    data: str


class NodeView(_NodeFacts, total=False):
    #: For administrators.
    endpoint: str
    #: Why jobs there have no data, where one node is asked for; empty: they have.
    data_problem: str


class NodeList(TypedDict):
    nodes: list[NodeView]


class AliasView(TypedDict):
    name: str
    resource: str


class AliasList(TypedDict):
    aliases: list[AliasView]


class LimitsView(TypedDict):
    gpus: int
    jobs: int
    time_s: float
    data_bytes: int


class LimitsList(TypedDict):
    users: dict[str, LimitsView]
    groups: dict[str, LimitsView]


class MissingContents(TypedDict):
    missing: list[str]


class KeptContents(TypedDict):
    kept: int


class SentSnapshot(TypedDict):
    snapshot: str
    files: int
    bytes: int


class MadeFile(TypedDict):
    """A file that a process of a job made, or an output (`stream` is out or err then)."""

    process: str
    name: str
    stream: str
    mode: int
    size: int
    #: Where it leads, if it is a link.
    link: str


class MadeList(TypedDict):
    files: list[MadeFile]


class MadePiece(MadeFile):
    """What stands before a piece of such a file, where all of them come one after the other."""

    #: Its place in the list, where the piece begins in it, and whether it is its last.
    index: int
    offset: int
    last: bool


class DataEntry(TypedDict):
    name: str
    #: file, dir, link or other
    kind: str
    size: int
    mtime: float
    mode: int


class DataListing(TypedDict):
    entries: list[DataEntry]
    #: There are more, behind the last of these names.
    more: bool


class DataStat(DataEntry):
    #: Another one as soon as the file has changed.
    version: str
    #: Of the content, where it was asked for.
    sha256: str


class DataArrival(TypedDict):
    """How much of a file has arrived; once it is complete it has its name, and is on disk."""

    offset: int
    complete: bool


class DataDomainView(TypedDict):
    #: shared, group:NAME or user:NAME
    domain: str
    writable: bool
    bytes: int
    #: How many bytes it may have; 0: no limit.
    quota: int


class DataDomains(TypedDict):
    domains: list[DataDomainView]
