"""Facts that reach the core, and orders it gives. One struct per fact, one per order."""

from msgspec import Struct

from towline.model.job import Attempt, Awaited, Ending, Entry, Job, JobSpec, State, Unit
from towline.model.machine import Machine
from towline.model.reason import Reason
from towline.model.request import Request
from towline.model.team.rules import Rulebook, Share

# --- facts -----------------------------------------------------------------------------------


class Submitted(Struct, frozen=True):
    id: int
    spec: JobSpec
    request: Request


class Fed(Struct, frozen=True):
    """The next jobs of a batch: the store has them all, the core only those that are next."""

    jobs: tuple[tuple[Job, Request], ...]


class StopAsked(Struct, frozen=True):
    ids: tuple[int, ...]
    #: Killed at once, without the time to end by themselves.
    now: bool = False


class RetryAsked(Struct, frozen=True):
    """Of jobs that have ended; the store has them, the core no more."""

    jobs: tuple[tuple[Job, Request], ...]


class WaitingStopped(Struct, frozen=True):
    """Jobs of a batch that was stopped; the store has them, the core was not given them."""

    jobs: tuple[Job, ...]
    reason: Reason


class WaitingSkipped(Struct, frozen=True):
    """Jobs of a batch that waits for what can never come true; the core was not given them."""

    jobs: tuple[Job, ...]
    because: Reason


class BatchHeld(Struct, frozen=True):
    """A batch is to run after others; none of its jobs is given to the core before that."""

    name: str
    after: tuple[Awaited, ...]
    #: Somebody holds it; and the time before which it does not begin.
    held: bool = False
    begin: float = 0.0
    #: Where it goes into a queue of the cluster's own; empty where it does not.
    cluster: str = ""


class HoldAsked(Struct, frozen=True):
    """Hold jobs that have not begun, or let jobs and batches go that are held."""

    units: tuple[Unit, ...]
    held: bool


class UnitEnded(Struct, frozen=True):
    """A whole batch has ended, or a job that the core does not know of."""

    unit: Unit
    state: State


class SetWaiting(Struct, frozen=True):
    """Jobs of a batch that ended and are to wait again, until the core is given them."""

    jobs: tuple[Job, ...]


class GiveUpAsked(Struct, frozen=True):
    """Stop a job without waiting for the machines of some processes, which do not answer."""

    id: int
    #: rank -> why it is not heard of.
    silent: dict[int, str]


class Recovered(Struct, frozen=True):
    """After a restart: every job that has not ended, as the store remembers it."""

    jobs: tuple[tuple[Job, Request], ...]
    #: Attempts that were given up and are still unheard of, each with its job as it is now.
    given_up: tuple[tuple[Job, Attempt, Request], ...] = ()


class MachineSeen(Struct, frozen=True):
    machine: Machine


class MachineAway(Struct, frozen=True):
    """How long word to a machine and back takes, which may have changed."""

    name: str
    away_s: float


class MachineGone(Struct, frozen=True):
    name: str


class MachineRemoved(Struct, frozen=True):
    name: str


class TeamSeen(Struct, frozen=True):
    """The rules of the team that an Engine serves, at its start and whenever they changed."""

    team: Rulebook
    #: At the start: what everybody had used.
    shares: tuple[Share, ...] = ()
    #: Somebody may have lost rights: who waits for what they may not use any more ends.
    check: bool = False


class ProcessStarted(Struct, frozen=True):
    job: int
    attempt: int
    rank: int
    at: float
    #: Where, if its cluster chose that.
    node: str = ""


class ProcessSilent(Struct, frozen=True):
    """The machine of a process has been silent for so long that another attempt may be made."""

    job: int
    attempt: int
    rank: int
    text: str


class AttemptWaits(Struct, frozen=True):
    """A cluster with a queue of its own says why an attempt does not run now, in words."""

    job: int
    attempt: int
    reason: str
    #: It did run, and the queue took it back to start it again.
    again: bool = False


class AttemptEntered(Struct, frozen=True):
    """A cluster with a queue of its own says what it calls an attempt."""

    job: int
    attempt: int
    entry: Entry


class ProcessEnded(Struct, frozen=True):
    job: int
    attempt: int
    rank: int
    ending: Ending
    #: All that it printed, output and errors, if that is little and came with the ending.
    said: tuple[bytes, bytes] | None = None
    #: Where it was, if its cluster chose that and it never began.
    node: str = ""

    @property
    def start(self) -> ProcessStarted:
        """That it began, as its end tells it."""
        return ProcessStarted(self.job, self.attempt, self.rank, self.ending.started, self.node)


Fact = (
    Submitted
    | Fed
    | StopAsked
    | RetryAsked
    | WaitingStopped
    | WaitingSkipped
    | BatchHeld
    | HoldAsked
    | UnitEnded
    | SetWaiting
    | GiveUpAsked
    | Recovered
    | MachineSeen
    | MachineAway
    | MachineGone
    | MachineRemoved
    | TeamSeen
    | ProcessStarted
    | ProcessSilent
    | AttemptWaits
    | AttemptEntered
    | ProcessEnded
)

# --- orders ----------------------------------------------------------------------------------


class Ahead(Struct, frozen=True):
    """An attempt in a queue that must end before another of the same queue begins."""

    job: int
    attempt: Attempt
    #: No other attempt is made when it fails.
    last: bool = True


class Follow(Struct, frozen=True):
    """One job or batch that must end first, and all its attempts that have not."""

    awaited: Awaited
    attempts: tuple[Ahead, ...]
    #: Of a batch: a line of it has ended, and not well.
    failed: bool = False


class StartAttempt(Struct, frozen=True):
    """Start every process of the job's present attempt; again is the same as once."""

    job: Job


class FollowAttempt(Struct, frozen=True):
    """Say what the job's present attempt follows in its queue; () once nothing any more, None while
    that cannot be said. Given before the attempt is started, and whenever it changes."""

    job: Job
    follows: tuple[Follow, ...] | None


class FindAttempt(Struct, frozen=True):
    """After a restart: find again what may have been started of the job's present attempt."""

    job: Job


class StopAttempt(Struct, frozen=True):
    """Stop every process of the job's present attempt that has not ended; it may be given again."""

    job: Job
    now: bool = False


class RecallAttempt(Struct, frozen=True):
    """Let the job's present attempt, which was sent ahead, come back unless it has begun."""

    job: Job


class Conclude(Struct, frozen=True):
    """The attempt is over; whoever watches it may let go."""

    job: Job


Order = StartAttempt | FollowAttempt | FindAttempt | StopAttempt | RecallAttempt | Conclude
