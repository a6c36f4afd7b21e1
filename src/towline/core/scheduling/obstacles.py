"""Why a job waits, as data: its place in the queue, and for each machine what keeps it from there.

Words are made of it where people look (`engine/obstacle_words.py`).
"""

from typing import Literal

from msgspec import Struct

from towline.model.machine import Aside


class Obstacle(Struct, frozen=True, tag_field="kind"):
    """What keeps a job from a machine; each kind is one of the classes below."""


# --- the machine does not take it, whatever it needs ---------------------------------------------


class SilentMachine(Obstacle, frozen=True, tag="silent"):
    """It does not answer."""


class ForOthers(Obstacle, frozen=True, tag="for_others"):
    """It is for these alone."""

    owners: tuple[str, ...]


class ForGroups(Obstacle, frozen=True, tag="for_groups"):
    """It is for members of these groups alone; with a name, its GPUs of that name are."""

    groups: tuple[str, ...]
    #: None: what is without GPUs; "": all GPUs.
    gpus: str | None = None


class SetAside(Obstacle, frozen=True, tag="set_aside"):
    """Jobs failed there at once that do well elsewhere."""

    why: Aside


class ClosedNow(Obstacle, frozen=True, tag="closed"):
    """It takes no jobs now, as its settings say."""

    text: str


class AvoidedMachine(Obstacle, frozen=True, tag="avoided"):
    """An earlier attempt of the job failed there."""


# --- it never has what is asked for --------------------------------------------------------------


class TooFewCpus(Obstacle, frozen=True, tag="too_few_cpus"):
    has: float
    asked: float


class TooLittleMemory(Obstacle, frozen=True, tag="too_little_memory"):
    has_mb: int
    asked_mb: int


class NoSuchGpu(Obstacle, frozen=True, tag="no_such_gpu"):
    """None of its GPUs, of which it has so many of each model, is called so; "": it has none."""

    name: str
    models: tuple[tuple[str, int], ...]


class TooFewGpus(Obstacle, frozen=True, tag="too_few_gpus"):
    """It has so many that are called so; "": whatever they are called."""

    name: str
    has: int
    asked: int


class TooSmallGpus(Obstacle, frozen=True, tag="too_small_gpus"):
    """The largest that would do has so much memory."""

    has_mb: int
    asked_mb: int


class NotAllGpus(Obstacle, frozen=True, tag="not_all_gpus"):
    """Each of the GPUs asked for is there, but not all of them together."""

    models: tuple[tuple[str, int], ...]


# --- what is asked for is in use -----------------------------------------------------------------


class UsedByJobs(Struct, frozen=True):
    """The first of the jobs that use something, and how many more do."""

    jobs: tuple[int, ...]
    more: int = 0


class WholeTaken(Obstacle, frozen=True, tag="whole_taken"):
    """A job has the whole machine."""

    by: UsedByJobs


class WholeWanted(Obstacle, frozen=True, tag="whole_wanted"):
    """The whole machine is asked for, and these jobs, or those of another user, run there."""

    by: UsedByJobs
    user: str = ""


class GpuUse(Struct, frozen=True):
    """By whom GPUs are used: by jobs, by those of another user, or by other programs."""

    jobs: tuple[int, ...] = ()
    user: str = ""
    #: Of other programs: what they take of it.
    mem_mb: int = 0
    util: float = 0.0


class GpuShare(Struct, frozen=True):
    """What is asked of a GPU that is shared."""

    mem_mb: int
    util: float


class GpusInUse(Obstacle, frozen=True, tag="gpus_in_use"):
    """Of the GPUs that match these names, so many are used by each."""

    matching: int
    names: tuple[str, ...]
    uses: tuple[tuple[GpuUse, int], ...]
    share: GpuShare | None = None


class MemoryInUse(Obstacle, frozen=True, tag="memory_in_use"):
    free_mb: int
    asked_mb: int
    #: What other programs use of it.
    others_mb: int


class CpusInUse(Obstacle, frozen=True, tag="cpus_in_use"):
    free: float
    asked: float
    others: float


# --- there is room for it ------------------------------------------------------------------------


class KeptForJob(Obstacle, frozen=True, tag="kept"):
    """It is kept free for a job that is next."""

    job: int


class PacedStarts(Obstacle, frozen=True, tag="paced"):
    """One start follows another after so long."""

    every_s: float


class JobsFirst(Obstacle, frozen=True, tag="jobs_first"):
    """Jobs before it come first."""


class NotTogether(Obstacle, frozen=True, tag="not_together"):
    """There is room for some of its processes."""


# --- the whole of it -----------------------------------------------------------------------------


class MachineObstacles(Struct, frozen=True):
    """Machines that the same keeps a job from."""

    machines: tuple[str, ...]
    obstacles: tuple[Obstacle, ...]


class Explanation(Struct, frozen=True, tag_field="kind", tag="queued"):
    """Why a job waits: here, because of its place in the queue and of what machines have free."""

    cluster: str = ""
    #: 1 is next; 0: it does not wait.
    position: int = 0
    #: Jobs that wait in the same cluster.
    waiting: int = 0
    #: Machines that are kept free for it.
    kept: tuple[str, ...] = ()
    reasons: tuple[MachineObstacles, ...] = ()
    #: Machines of the cluster that were not looked at.
    more: int = 0

    @property
    def reserved(self) -> bool:
        return bool(self.kept)


class NextOn(Explanation, frozen=True, tag="next_on"):
    """It was sent ahead to a machine, and starts as soon as one of these has ended."""

    machine: str = ""
    behind: tuple[int, ...] = ()


class BatchLimit(Explanation, frozen=True, tag="batch_limit"):
    """So many of its batch run at a time."""

    most: int = 0


class OverLimit(Explanation, frozen=True, tag="over_limit"):
    """Its owner, or the members of a group that they are in, use as much as they may."""

    whose: str = ""
    is_group: bool = False
    what: Literal["gpus", "jobs"] = "jobs"
    most: int = 0
    used: int = 0


class NotWaiting(Explanation, frozen=True, tag="not_waiting"):
    """It has its machines, or is not known to wait."""

    placed: bool = False


class NeverFits(Struct, frozen=True):
    """Why the machines of a cluster can never take a job."""

    cluster: str
    owner: str
    #: The machine that comes closest, and all that it lacks; "": this owner may use none of them.
    closest: str = ""
    lacks: tuple[Obstacle, ...] = ()
    #: Where each process alone would find its place: so many would not beside the others.
    left_over: int = 0
    #: A limit that the job alone would break.
    over: OverLimit | None = None
