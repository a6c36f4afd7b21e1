"""Jobs, as programs see them."""

from typing import Any, NotRequired, TypedDict


class QueueEntry(TypedDict):
    """A job as the queue of its cluster knows it; while it waits, also where it stands there."""

    kind: str
    options: list[list[str]]
    number: str
    partition: str
    account: str
    time_limit: str
    requeued_at: float
    requeued: str
    #: It shares that entry: so many lines of its batch at a time; 0: it is alone in it.
    shared_by: int
    since: NotRequired[float]
    reason: NotRequired[str]
    expected: NotRequired[float]
    place: NotRequired[int]
    waiting: NotRequired[int]
    #: It has begun, and stands still there.
    suspended: NotRequired[bool]


class ReasonView(TypedDict):
    """Why a job waits or ended as it did; the kind is empty where there is nothing to say."""

    kind: str
    text: NotRequired[str]
    code: NotRequired[int]
    signal: NotRequired[int]
    peak_kb: NotRequired[int]
    attempt: NotRequired[int]
    machine: NotRequired[str]
    process: NotRequired[str]
    then: NotRequired[str]
    line: NotRequired[int]
    job: NotRequired[int]
    batch: NotRequired[str]
    state: NotRequired[str]


class HomeView(TypedDict):
    """Where what a job made stands: `none`, `pending`, `home` or `failed`."""

    kind: str
    path: NotRequired[str]
    why: NotRequired[str]


class After(TypedDict):
    """What a job waits for before it begins: a job, or else a batch."""

    #: How that must end: `ok`, `any` or `failed`.
    when: str
    job: int
    batch: str
    #: Where that stands; only while it is waited for.
    state: NotRequired[str]


class JobView(TypedDict):
    """A job and where it stands; the values of its environment are left out on purpose."""

    id: int
    title: str
    state: str
    exit_code: int | None
    cluster: str
    machines: list[str]
    queue: QueueEntry | None
    request: str
    submitted: float
    started: float | None
    ended: float | None
    reason: str
    because: ReasonView
    owner: str
    command: list[str]
    folder: str
    attempt: int
    retries: int
    priority: int
    results: str
    home: HomeView
    batch: str
    line: int
    after: list[After]
    #: The time before which it does not begin.
    begin: float | None
    #: Of `after`, what it still waits for; only while it does.
    waits_for: NotRequired[list[After]]
    silent_since: NotRequired[float | None]


class Happened(TypedDict):
    """One line of a job's history."""

    at: float
    kind: str
    attempt: int
    text: str


class Changed(TypedDict):
    letter: str
    path: str


class ProcessView(TypedDict):
    group: int
    process: int
    machine: str
    gpus: list[int]
    state: str
    exit_code: int | None
    signal: int | None
    folder: str | None


class PeaksView(TypedDict):
    """The most that a job used at a time; of GPUs nothing where it had none."""

    cpus: float
    mem_mb: float
    gpu_util: float | None
    gpu_mem_mb: float | None


class UsedView(TypedDict):
    """What one process used: on average, and at most."""

    rank: int
    cpus: float
    most_cpus: float
    most_mem_mb: float
    gpu_util: float | None
    most_gpu_util: float | None
    most_gpu_mem_mb: float | None


class StretchView(TypedDict):
    """What a job used from a moment on, for so many seconds."""

    at: float
    seconds: float
    attempt: int
    processes: list[UsedView]


class JobSamples(TypedDict):
    samples: list[StretchView]
    peaks: PeaksView | None


class JobDetail(JobView):
    """Everything about one job."""

    heard_at: float | None
    time_s: float | None
    setup: str
    subfolder: str
    services: list[str]
    env: list[str]
    commit: str
    branch: str
    #: Where the version in its folder comes from, in words; empty where nobody said so.
    origin: str
    changed: list[Changed]
    files: int
    bytes: int
    processes: list[ProcessView]
    peaks: PeaksView | None
    history: list[Happened]


class AcceptedJobs(TypedDict):
    jobs: list[JobView]


class Retried(AcceptedJobs):
    #: Jobs and batches that were skipped because of these, and stay so until they are retried.
    skipped: list[str]


class JobList(TypedDict):
    jobs: list[JobView]
    #: How many more there are of what was asked for.
    left_out: int
    #: Jobs whose records are damaged.
    unreadable: list[int]


class StoppedJobs(TypedDict):
    jobs: list[JobView]
    unknown: list[int]


class Held(TypedDict):
    jobs: list[JobView]
    #: Those that have begun, or are of a batch: they are not held.
    late: list[int]


class Released(TypedDict):
    jobs: list[JobView]


class MeantView(TypedDict, total=False):
    """The job or the batch that a name means."""

    job: int
    batch: str
    first: int
    count: int


class MachineReason(TypedDict):
    """What keeps a job from a machine: in words, and each thing by its `kind`."""

    machine: str
    reason: str
    because: NotRequired[list[dict[str, Any]]]


class WhyView(TypedDict):
    text: str
    #: The same as data, of a job that waits: its place, and what is kept free for it.
    because: NotRequired[dict[str, Any]]
    machines: list[MachineReason]
    silent_since: NotRequired[float | None]
    queue: NotRequired[QueueEntry]
    #: Of what it is to run after, what has not ended.
    waits_for: NotRequired[list[After]]


class SlotView(TypedDict):
    machine: str
    gpus: list[int]


class PlanView(TypedDict):
    """What a submission would do."""

    cluster: str
    request: str
    command: list[str]
    placement: list[SlotView] | None
    why: str
    queue: list[str] | None
    files: int
    bytes: int
    largest: list[list[str | int]]
    env: list[str]
    folder: str


class RemovedView(TypedDict):
    """What went of some jobs; `stay` are those that do not, and why."""

    jobs: list[int]
    batches: list[str]
    lines: list[int]
    bytes: int
    stay: list[list[int | str]]
