"""A job: what was asked, where it stands, how it ended."""

import re
from enum import StrEnum

from msgspec import Struct, field

from towline.model.machine import Placement
from towline.model.names import ANY, OK
from towline.model.reason import NO_REASON, Reason
from towline.model.request import Packing
from towline.model.results import NOTHING, ResultsState
from towline.model.service import Service


class State(StrEnum):
    NEW = "new"
    STAGING = "staging"
    #: For other jobs, which it was submitted to run after; for a time; or until it is let go.
    WAITING = "waiting"
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"
    #: What it waited for can never come true.
    SKIPPED = "skipped"

    @property
    def final(self) -> bool:
        return self in FINAL


FINAL = frozenset({State.DONE, State.FAILED, State.STOPPED, State.LOST, State.SKIPPED})


#: What comes home can be read by others, unless the submitter says otherwise.
UMASK = 0o022


class Queueing(Struct, frozen=True, omit_defaults=True):
    """How a job goes into the queue that its cluster has of its own."""

    #: Kind of that cluster.
    kind: str
    #: Words for the command that queues it, one tuple for each kind of process.
    options: tuple[tuple[str, ...], ...] = ()
    #: The queue may start it again by itself after a failed node or for a more important job.
    requeue: bool = False
    #: A signal it gets some time before its limit, e.g. "USR1@120".
    signal: str = ""
    #: "resubmit": at its time limit it goes into the queue again, with what it kept.
    on_timeout: str = ""
    #: Of its batch, so many run at a time, and the queue itself sees to that; 0: it does not.
    at_once: int = 0


#: A job by its number, or a batch by its name.
Unit = int | str


class Awaited(Struct, frozen=True, omit_defaults=True):
    """One job or batch that must end before another job begins."""

    #: How it must end: `ok`, `any` or `failed`.
    when: str
    job: int = 0
    batch: str = ""

    @property
    def unit(self) -> Unit:
        return self.batch or self.job

    def met_by(self, state: State) -> bool:
        """Whether what has ended in this state has ended as it was to."""
        return is_met(self.when, state)


def is_met(when: str, state: State) -> bool:
    return when == ANY or (state is State.DONE) == (when == OK)


class Sandbox(Struct, frozen=True, omit_defaults=True):
    """Walls around a job."""

    #: Folders of its machine that it sees besides, read-only.
    shows: tuple[str, ...] = ()


class JobSpec(Struct, frozen=True, omit_defaults=True):
    """What the user asked for. Never changes once accepted."""

    argv: tuple[str, ...]
    cluster: str
    owner: str
    #: Canonical text of the request (model/grammar.py).
    request: str = "[]"
    title: str = ""
    #: Folder the job was submitted from, on the submitter's machine.
    folder: str = ""
    #: Id of the snapshot its tree is made from; empty: an empty tree.
    snapshot: str = ""
    #: Sub-folder of the snapshot in which the command runs.
    subfolder: str = ""
    #: Its git commit; for a dirty tree, the one that `branch` records.
    commit: str = ""
    branch: str = ""
    #: What differed from HEAD, as (letter, path); long lists are cut.
    changed: tuple[tuple[str, str], ...] = ()
    #: What travels: number of files and bytes.
    files: int = 0
    bytes: int = 0
    #: The largest of them, where they are very large, as (path, bytes).
    large: tuple[tuple[str, int], ...] = ()
    #: Variables set by `-e`; values may be secrets, so they never reach a log or a repr.
    env: dict[str, str] = field(default_factory=dict)
    #: Hash of the submitter's whole environment (store), for jobs on this very machine.
    environment: str = ""
    setup: str = ""
    time_s: float = 0.0
    grace_s: float = 10.0
    retries: int = 0
    priority: int = 0
    #: Run in the folder itself, on this machine, not in a tree of its own.
    in_place: bool = False
    #: Name in the tree -> what it leads to on the machine.
    links: dict[str, str] = field(default_factory=dict)
    #: Snapshot of what an earlier job kept, that this one starts with.
    keep: str = ""
    #: Whether what it makes comes home, and which paths; no paths: all it made or changed.
    results: bool = True
    back: tuple[str, ...] = ()
    #: Patterns of this submission for what travels, besides those of the configuration.
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    #: Only these paths below the folder travelled; None: whatever belongs to it.
    only: tuple[str, ...] | None = None
    #: What `back` names comes home even where the job did not change it.
    whole: bool = False
    #: Its results are in `job_results/<name>`; empty: under its number.
    name: str = ""
    #: What comes home gets no permissions that are in here: the submitter's own choice.
    umask: int = UMASK
    #: What it printed comes home as two files, also where that was nothing.
    empty_outputs: bool = False
    #: The batch it belongs to, and which of its commands it is.
    batch: str = ""
    line: int = 0
    #: Of that batch, at most so many run at a time, and the scheduler sees to that; 0: others do.
    at_most: int = 0
    #: None: Towline itself decides when and where it runs.
    queue: Queueing | None = None
    #: Its batch goes into allocations of several lines; None: each of them has one of its own.
    pack: Packing | None = None
    #: What runs beside its first process, for people to look at it.
    services: tuple[Service, ...] = ()
    #: It begins once all of these have ended as they were to; of a batch's jobs, the batch does.
    after: tuple[Awaited, ...] = ()
    #: It is walled in on its machine; None: it is not.
    sandbox: Sandbox | None = None
    #: Submitted to be held, until somebody lets it go; and not to begin before a time.
    hold: bool = False
    begin: float = 0.0
    #: Groups of its owner that it was shared with from the beginning (a team's server).
    groups: tuple[str, ...] = ()
    #: It is over as soon as one of its processes is, also where that ended well.
    ends_together: bool = False
    #: Where the version in its folder comes from, in words, as whoever submitted it says.
    origin: str = ""

    @property
    def begin_here(self) -> float:
        """The time that Towline itself waits for: a queue sees to that by itself, lid closed."""
        return self.begin if self.queue is None else 0.0

    def __repr__(self) -> str:
        return f"JobSpec({self.title or ' '.join(self.argv)!r} on {self.cluster})"


#: Cause of an end that is none: the machine was silent for too long, and the attempt was given up.
SILENT = "silent"


#: Cause of a start whose contents were removed from its machine.
ABSENT = "absent"


class Ending(Struct, frozen=True, omit_defaults=True):
    """How one process ended, as its supervisor recorded it."""

    code: int | None = None
    signal: int | None = None
    #: stopped, timeout, oom, not_found, not_executable, setup, snapshot, no_space, void, lost,
    #: silent (given up, and its machine still owes its word)
    #: absent (what it needs was removed from its machine: it is sent again)
    #: skipped (what it was to run after ended otherwise: `because` says what, and how)
    cause: str = ""
    text: str = ""
    started: float = 0.0
    ended: float = 0.0
    #: Files it made or changed, and how much it printed; -1 where nobody counted.
    made: int = -1
    #: The most memory that it used, as far as that was measured.
    peak_kb: int = 0
    out_size: int = 0
    err_size: int = 0
    because: Reason = NO_REASON

    @property
    def ok(self) -> bool:
        return self.code == 0 and not self.cause


class Entry(Struct, frozen=True, omit_defaults=True):
    """An attempt as the queue of its cluster knows it."""

    #: Its number there; a task of an array has one like `4711_3`.
    number: str = ""
    partition: str = ""
    account: str = ""
    #: As the queue writes it, e.g. `1-00:00:00`.
    time_limit: str = ""
    #: When and why the queue last took it back, to start it again by itself.
    requeued_at: float = 0.0
    requeued: str = ""


class Attempt(Struct, frozen=True, omit_defaults=True):
    """One try at running a job. Late words from an older attempt are dropped."""

    number: int
    placement: Placement
    #: A part of its keys that nobody can have given out before, not even a copy of this Engine.
    #: Empty for attempts that an older version made.
    token: str = ""
    #: Jobs alike that follow one another on its machine; empty where none of them is sent ahead.
    series: str = ""
    #: It was sent ahead, to a machine where so many of its series run at a time; 0: it was not.
    places: int = 0
    started: float = 0.0
    #: rank -> how that process ended.
    endings: dict[int, Ending] = field(default_factory=dict)
    #: rank -> the node that it runs on, where the cluster chose that.
    nodes: dict[int, str] = field(default_factory=dict)
    #: What that cluster's queue calls it.
    entry: Entry = Entry()
    #: It is in that queue before what its job is to run after has ended: the queue waits for it.
    follows: bool = False

    def machine_of(self, rank: int) -> str:
        """What people call the machine that a process runs on."""
        return self.nodes.get(rank) or self.placement[rank].machine

    def heard(self) -> set[int]:
        """Processes whose end is certain."""
        return self.endings.keys() - set(self.unheard())

    def unheard(self) -> list[int]:
        """Processes that were given up, and whose machines have not said what became of them."""
        return [rank for rank, ending in self.endings.items() if ending.cause == SILENT]

    def machines(self) -> list[str]:
        """Of all its processes, each once; of those that a queue has, the nodes it chose."""
        return list(dict.fromkeys(map(self.machine_of, range(len(self.placement)))))


class Job(Struct, frozen=True):
    """A job and where it stands; one row of the store."""

    id: int
    spec: JobSpec
    state: State = State.NEW
    submitted: float = 0.0
    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    #: Why it waits, or why it ended as it did.
    reason: Reason = NO_REASON
    #: Tries that counted against `retries`.
    failures: int = 0
    #: True once the user asked to stop it; nothing starts it again but `tow retry`.
    stop_asked: bool = False
    attempt: Attempt | None = None
    results: ResultsState = NOTHING
    #: Machines an earlier attempt failed or was lost on; avoided while there are others.
    avoid: tuple[str, ...] = ()


def key_of(engine: str, job_id: int, attempt: Attempt, rank: int) -> str:
    """The name of one process of one attempt, unique over all Engines and for all time."""
    token = f"-{attempt.token}" if attempt.token else ""
    return f"{engine}-{job_id}-{attempt.number}{token}-{rank}"


_PROCESS = re.compile(r"-([0-9]+)-([0-9]+)(?:-([0-9a-f]{8}))?-([0-9]+)\Z")


def process_of(engine: str, key: str) -> tuple[int, int, str, int] | None:
    """The job, attempt, token and rank of a key; None for what is not this Engine's."""
    found = _PROCESS.match(key, len(engine)) if key.startswith(f"{engine}-") else None
    if found is None:
        return None
    return int(found[1]), int(found[2]), found[3] or "", int(found[4])


def standing(job: Job) -> str:
    """The state as people see it: a job is queued until it runs in the queue of its cluster, or on
    the machine that it was sent ahead to."""
    if job.state is State.STARTING and job.attempt is not None and job.attempt.follows:
        return State.WAITING.value
    elsewhere = job.spec.queue is not None or (job.attempt is not None and job.attempt.places)
    waits = elsewhere and job.state is State.STARTING
    return State.QUEUED.value if waits else job.state.value
