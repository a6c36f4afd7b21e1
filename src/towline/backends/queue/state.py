"""Where an attempt in a queue stands, and all that is known of it. Pure."""

from enum import Enum
from typing import cast

from msgspec import Struct

from towline.backends.terms import QueueStanding
from towline.model.job import Ending, Entry


class Place(Enum):
    """Where an attempt stands on its way through a queue."""

    #: It was never submitted.
    NOT_SENT = "not sent"
    #: The answer to its submission is awaited.
    ASKING = "asking"
    #: It was submitted, and nobody knows what came of it; or nothing did.
    UNANSWERED = "unanswered"
    #: The queue has it, under a number.
    IN_QUEUE = "in queue"
    #: The run that counts has begun.
    CLAIMED = "claimed"
    #: Each of its processes has ended.
    OVER = "over"


P = Place
#: By this the last part of its name begins, where an entry is a pack and not an array.
_PACK = "p"

#: What can happen to an attempt. What cannot happen where it stands is late news, and is dropped.
TRANSITIONS: dict[tuple[Place, str], Place] = {
    (P.NOT_SENT, "submit"): P.ASKING,
    (P.UNANSWERED, "submit"): P.ASKING,
    (P.ASKING, "put off"): P.UNANSWERED,
    (P.UNANSWERED, "put off"): P.UNANSWERED,
    # By the answer, by its ticket over there, or in the queue's list.
    (P.ASKING, "accept"): P.IN_QUEUE,
    (P.UNANSWERED, "accept"): P.IN_QUEUE,
    # The queue has lost it, and it had not begun.
    (P.IN_QUEUE, "lose"): P.UNANSWERED,
    (P.NOT_SENT, "claim"): P.CLAIMED,
    (P.ASKING, "claim"): P.CLAIMED,
    (P.UNANSWERED, "claim"): P.CLAIMED,
    (P.IN_QUEUE, "claim"): P.CLAIMED,
    (P.NOT_SENT, "end"): P.OVER,
    (P.ASKING, "end"): P.OVER,
    (P.UNANSWERED, "end"): P.OVER,
    (P.IN_QUEUE, "end"): P.OVER,
    (P.CLAIMED, "end"): P.OVER,
}


def pack_name(engine: str, token: str) -> str:
    """The name of a pack, by which it is told from an array wherever it is seen."""
    return f"{engine}-{_PACK}{token}"


def is_pack(name: str) -> bool:
    return name.rpartition("-")[2].startswith(_PACK)


class Attempt(Struct, frozen=True):
    """One attempt, as far as it is known. Only `step` makes a new one of it."""

    key: str
    job: int
    number: int
    #: How many processes it has.
    count: int
    #: What people call the queue.
    title: str
    place: Place = Place.NOT_SENT
    #: Its number in the queue, and the array or pack that it is a part of, and which.
    id: str = ""
    array: str = ""
    index: int = 0
    stop: bool = False
    #: Without the time to end by itself.
    stop_now: bool = False
    #: Its last run ended so that the queue starts it again.
    again: bool = False
    started: frozenset[int] = frozenset()
    #: What is told of earlier runs than this one is old.
    run: int = 0
    ended: frozenset[int] = frozenset()
    #: Of processes whose end no file tells: what is said of it.
    verdicts: dict[str, str] = {}
    #: Endings of processes that the queue stopped: it is still to say why.
    evicted: dict[int, Ending] = {}
    #: When the last of them was seen to begin, and when the queue last knew of the attempt.
    begun_at: float = 0.0
    known_at: float = 0.0
    #: The queue has lost it, so its old number counts no more.
    vanished: bool = False
    #: Numbers that it had before, of entries that ended without having begun it.
    given_up: frozenset[str] = frozenset()
    #: The queue let it begin before anybody over there knew how what it follows has ended.
    early: bool = False
    #: Since when the queue says that it is over though its files do not.
    over_since: float = 0.0
    #: It was not even in the queue's last list.
    unlisted: bool = False
    #: It is not submitted again before this; how often the queue did not take or lost it.
    not_before: float = 0.0
    tries: int = 0
    #: Why it waits, as it was told last.
    reason: str = ""
    #: What the queue calls it, as it was told last; where it ran last.
    called: Entry = Entry()
    node: str = ""
    #: While it waits: the queue's own word for why, when it is expected to start (0: nobody knows),
    #: and which it is of how many that wait.
    word: str = ""
    #: It waits because something went wrong, until somebody clears that.
    in_error: bool = False
    #: It runs, and somebody makes it stand still.
    suspended: bool = False
    #: Why the queue will never start it, since what it waits for there ended otherwise.
    never: str = ""
    expected: float = 0.0
    position: tuple[int, int] = (0, 0)
    #: Its running processes have until then to stop by themselves.
    patience_until: float = 0.0
    #: Cancelling kills it at once; and so long it may take to end by itself when it is asked to.
    kills_at_once: bool = False
    grace_s: float = 0.0

    @property
    def claimed(self) -> bool:
        return self.place is Place.CLAIMED

    @property
    def never_began(self) -> bool:
        """By their own records, all its processes were stopped before they started anything."""
        told = len(self.evicted) == self.count and not self.run
        return told and not any(ending.started for ending in self.evicted.values())

    @property
    def is_over(self) -> bool:
        return self.place is Place.OVER

    @property
    def is_packed(self) -> bool:
        """It is in one entry with others, as a line of a pack."""
        return is_pack(self.array)

    @property
    def name(self) -> str:
        """What it is called in the queue's lists."""
        if self.is_packed:
            return self.array
        return f"{self.array}_{self.index}" if self.array else self.key

    def is_unsent(self, now: float) -> bool:
        """Whether the queue did not take it, as far as is known, and may be asked again now."""
        waits = self.place in (Place.NOT_SENT, Place.UNANSWERED)
        return waits and now >= self.not_before

    def number_in(self, ticket: str) -> str:
        """Its number in the queue, from that of the whole entry."""
        is_task = self.array and not self.is_packed
        return f"{ticket}_{self.index}" if is_task and ticket else ticket

    def standing(self) -> QueueStanding:
        """Where it stands in the queue while it waits, as far as that is known; and once it runs,
        whether it stands still."""
        if self.started:
            return {"suspended": True} if self.suspended else {}
        place, waiting = self.position
        found = {"reason": self.word, "expected": self.expected, "place": place, "waiting": waiting}
        known = {name: value for name, value in found.items() if value}
        return cast("QueueStanding", known)


def diagram() -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {_mermaid(Place.NOT_SENT)}"]
    lines += [
        f"    {_mermaid(before)} --> {_mermaid(after)}: {happening}"
        for (before, happening), after in TRANSITIONS.items()
    ]
    return "\n".join([*lines, f"    {_mermaid(Place.OVER)} --> [*]"])


def _mermaid(place: Place) -> str:
    return place.value.replace(" ", "_")
