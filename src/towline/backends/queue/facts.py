"""What an attempt in a queue is told, and what it wants done about it. Pure."""

import math

from msgspec import Struct

from towline.backends.queue.dialect import ListedEntry, Verdict
from towline.model.events import AttemptEntered, AttemptWaits, ProcessEnded, ProcessStarted
from towline.model.job import Ending

# --- of the one who wants it -------------------------------------------------------------------


class StopAsked(Struct, frozen=True):
    """Somebody wants it stopped; `now`: without the time to end by itself."""

    now: bool = False


class Rechained(Struct, frozen=True):
    """What it follows in its queue is not what it was, or is over."""


class StopDue(Struct, frozen=True):
    """Its runs are about to be told that they are to stop."""


class StopTold(Struct, frozen=True):
    """Its runs were told, and so will be whatever comes of a submission that nobody knows of."""


# --- of submitting -----------------------------------------------------------------------------


class Submitted(Struct, frozen=True):
    """The command that submits it is called, alone or as a task of an array."""

    array: str = ""
    index: int = 0


class Accepted(Struct, frozen=True):
    """The queue gave this number for it, or for the array that it is in."""

    ticket: str


class PutOff(Struct, frozen=True):
    """The queue does not take it now; it may have done so all the same."""

    reason: str
    pause_s: float


class NoAnswer(Struct, frozen=True):
    """The connection broke while the command ran."""

    pause_s: float


class NotAsArray(Struct, frozen=True):
    """The array that it was in certainly does not exist, so it may go in another, or alone."""

    reason: str = ""


class Refused(Struct, frozen=True):
    """It cannot be handed over: the queue will never take it, or what it needs is not there."""

    ending: Ending


# --- of its files ------------------------------------------------------------------------------


class Recorded(Struct, frozen=True):
    """Its folder over there says where it was put, and which entry has claimed to run it."""

    ticket: str = ""
    array: tuple[str, int] | None = None
    #: The number of the entry, the run, and the name of its array; empty: nobody claimed it.
    claim: tuple[str, ...] = ()
    #: Entries whose nodes could not see how what it follows has ended, and left it at that.
    returned: frozenset[str] = frozenset()


class RankSeen(Struct, frozen=True):
    """One of its processes says where it stands."""

    rank: int
    state: str
    #: Which run of the attempt says so; None where none does.
    run: int | None = None
    started: float = 0.0
    node: str = ""
    #: Why it waits again after it ran.
    why: str = ""
    ending: Ending | None = None
    #: The process told it by itself.
    is_news: bool = False


# --- of the queue's word -----------------------------------------------------------------------


class Found(Struct, frozen=True):
    """These are the entries with its name in the queue's list."""

    entries: tuple[ListedEntry, ...] = ()


class Judged(Struct, frozen=True):
    """The queue lists its entry so, or not at all; it was asked at that moment."""

    listed: ListedEntry | None
    asked_at: float
    #: Why the accounts do not yet say how it ended; empty: they have said all that they will.
    late: str = ""


class Settled(Struct, frozen=True):
    """Its files were looked at once more after the queue had called it over."""

    #: None: the queue does not know it any more.
    verdict: Verdict | None
    #: The controller restarted not long ago, while this Engine looked on.
    restarted: bool = False
    #: When the controller was started, as far as it says: what it knew before it may have lost.
    up_since: float = -math.inf
    #: The queue remembers an entry that ended at least for so long.
    remembered_s: float = math.inf
    #: From 0 to 1: how long to wait before it is handed over again, of what is reasonable.
    chance: float = 0.5


class TakenBack(Struct, frozen=True):
    """The queue says why it starts it again by itself."""

    why: str


class Positioned(Struct, frozen=True):
    """Which it is of those that wait, and of how many."""

    position: tuple[int, int]


class Silent(Struct, frozen=True):
    """The queue gives no answer."""

    error: str


class Unreachable(Struct, frozen=True):
    """The access node cannot be reached."""

    reason: str


class HeldBack(Struct, frozen=True):
    """Others have to go before it."""


Fact = (
    StopAsked
    | Rechained
    | StopDue
    | StopTold
    | Submitted
    | Accepted
    | PutOff
    | NoAnswer
    | NotAsArray
    | Refused
    | Recorded
    | RankSeen
    | Found
    | Judged
    | Settled
    | TakenBack
    | Positioned
    | Silent
    | Unreachable
    | HeldBack
)

# --- orders ------------------------------------------------------------------------------------


class Report(Struct, frozen=True):
    """Tell the Engine."""

    fact: AttemptWaits | AttemptEntered | ProcessStarted | ProcessEnded


class Submit(Struct, frozen=True):
    """Hand it over."""


class Stop(Struct, frozen=True):
    """Have its runs stopped."""


class CancelEntry(Struct, frozen=True):
    """Have the queue cancel its entry as well."""


class EndDoubles(Struct, frozen=True):
    """Of these entries only the one that has the claim is to stay."""

    ids: tuple[str, ...]


class Settle(Struct, frozen=True):
    """Look at its files once more: by the queue's word it is over."""


class AskSoon(Struct, frozen=True):
    """Ask the queue before long."""


class ExplainReturn(Struct, frozen=True):
    """Ask the queue why it starts it again."""


Order = Report | Submit | Stop | CancelEntry | EndDoubles | Settle | AskSoon | ExplainReturn
