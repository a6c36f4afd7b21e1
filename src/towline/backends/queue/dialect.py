"""What a queue has to say for itself: the words of its commands, and readers of what they print.

A dialect is pure. Every question is a pair: one method makes the words of a command, another reads
its answer into terms that all queues share. What it cannot read it leaves out; where a queue has no
such command, the words are None.

Numbers: an entry is `NUMBER`, a task of an array `NUMBER_TASK`, whatever the queue itself writes.
"""

import math
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Protocol

from msgspec import Struct

from towline.model.job import Ending, Job, Queueing
from towline.model.request import Request
from towline.probes.nodes import QueueNode

Words = list[str]
#: What an option may be given as.
Value = str | int | float | bool
#: An agent's answer to a command: `code`, `out` and `err`.
Answer = Mapping[str, Any]

#: The exit code of a command that is not there.
NOT_FOUND = 127


class Phase(Enum):
    """Where an entry of a queue stands."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    #: It is listed although the queue never accepted it.
    REFUSED = "refused"


class ListedEntry(Struct, frozen=True):
    """One entry as a queue lists it."""

    id: str
    phase: Phase
    #: The name under which it was handed over, with its task; empty where the queue does not say.
    name: str = ""
    #: Why it waits, for people, and the queue's own word for that.
    why: str = ""
    word: str = ""
    #: When it is expected to start; 0 where nobody knows.
    expected: float = 0.0
    nodes: str = ""
    partition: str = ""
    account: str = ""
    time_limit: str = ""
    #: It waits because something went wrong, and will until somebody clears that.
    has_error: bool = False
    #: It has begun, and somebody makes it stand still.
    suspended: bool = False
    #: It waits for another entry that ended otherwise than the user wants it to.
    never: bool = False
    #: As the queue describes it; only its dialect reads this.
    own: Any = None

    @property
    def has_ended(self) -> bool:
        return self.phase in (Phase.ENDED, Phase.REFUSED)


class Verdict(Struct, frozen=True):
    """What a queue's word means for an attempt whose own files do not tell how it ended."""

    ending: Ending
    #: The queue's word explains the end: no record of it is to be waited for.
    certain: bool = False
    #: The queue killed it, and whatever could have left a record of it.
    killed: bool = False
    #: Why it ended without a fault of its own, where it had not begun; empty otherwise.
    not_begun: str = ""
    #: Somebody cancelled it, or the queue itself did.
    cancelled: bool = False
    #: Why the queue stopped a process that left a record, with its cause; empty: it does not say.
    cause: str = ""
    reason: str = ""


class Refusal(Enum):
    """Why a submission was not accepted, as far as that decides what to do next."""

    #: There is no such command.
    MISSING = "missing"
    #: Asking again later can help.
    PASSING = "passing"
    #: There is no room for so many.
    FULL = "full"
    #: It takes no arrays, or none like this.
    NO_ARRAYS = "no arrays"
    #: Something is wrong with what was asked.
    WRONG = "wrong"


class Test(Enum):
    """What a queue says when it is asked whether it would accept a job."""

    YES = "yes"
    #: It could not be asked, which is no reason to refuse anything.
    UNKNOWN = "unknown"
    #: No node can do it at the moment.
    NOT_NOW = "not now"
    NO = "no"


class Site(Struct, frozen=True):
    """What a site says of its queue."""

    #: How many tasks an array may have; None when it does not say, 0 when it takes none.
    longest: int | None = None
    #: For how long the queue remembers an entry that ended.
    memory_s: float = math.inf
    #: When its controller was started, as it writes that; and for how long it has been up.
    booted: str = ""
    uptime_s: float = math.inf
    #: What else it says; only its dialect reads this.
    own: Any = None


class Dialect(Protocol):
    #: The kind of cluster, as configurations call it, and its name for people.
    kind: str
    title: str
    #: The command that submits, as people know it.
    submit_command: str
    #: What to look at where the queue does not answer.
    silent_hint: str
    #: The number of the first task of an array.
    first_task: int
    #: Cancelling kills what runs without a word: it is asked to stop by its files first.
    kills_at_once: bool
    #: A submission takes the environment along in which it is made.
    takes_environment: bool

    # --- accepting: what is wrong with what was asked for is a UsageError ---------------------

    def check_options(self, options: Mapping[str, Value]) -> None:
        """Refuse options that cannot be given to its jobs."""

    def options(
        self,
        request: Request,
        time_s: float,
        configured: Mapping[str, Value],
        given: Mapping[str, Value],
    ) -> list[Words]:
        """Say what a job needs in the options of the submission, one list for each of its parts;
        what is given for the job wins over all else."""

    def check_time(self, typed: str) -> None:
        """Refuse a time limit that means another one to the queue's own commands."""

    def checked_signal(self, text: str) -> str:
        """Read the signal that a job gets before its limit, as `Queueing` has it."""

    def shown_words(self, title: str, queue: Queueing) -> Words:
        """Tell the command line of a submission as far as people care."""

    # --- submitting --------------------------------------------------------------------------

    def submit_words(
        self, job: Job, name: str, root: str, tasks: Iterable[int] = (), at_once: int = 0
    ) -> Words:
        """Submit what lies in `root`/handed/`name`: one attempt, or these tasks as an array, of
        which at most `at_once` run at a time."""

    def following(self, words: Words, numbers: Iterable[str]) -> Words:
        """Have a submission wait in the queue until entries of these numbers, or all tasks of an
        array where the number is that of a whole one, have ended in whatever way."""

    def knows(self, site: Site) -> bool:
        """Whether the site has said all that `fit` needs."""

    def fit(self, words: Words, site: Site) -> Words:
        """Put a site's own words in place of what is not said in the queue's; UsageError where
        the site has none for it."""

    def ticket_in(self, answer: Answer) -> str:
        """The number from the answer to a submission, however it ended."""

    def read_ticket(self, text: str) -> str:
        """The number from what the submission printed; empty when there is none."""

    def refusal(self, answer: Answer, is_array: bool) -> Refusal:
        """Say what it means that there was no number."""

    def complaint(self, error: str) -> str:
        """What a command complained about, in one line."""

    def parts(self, request: Request, queue: Queueing) -> list[dict[str, int]]:
        """The kinds of processes as the node starts them: `first`, `count` and `cpus` of each."""

    # --- watching ----------------------------------------------------------------------------

    def list_words(self, user: str) -> Words:
        """List all entries of a user, ended ones too as far as the queue remembers them."""

    def read_list(self, text: str) -> list[ListedEntry]: ...

    def recall_words(self, numbers: Iterable[str]) -> Words | None:
        """Ask the accounts for entries that the queue has forgotten."""

    def read_recalled(self, text: str) -> list[ListedEntry]: ...

    def has_accounts(self, answer: Answer) -> bool:
        """Tell from an answer whether the site keeps accounts at all."""

    def vanished(self, claimed: bool, stopped: bool, now: float) -> Verdict | None:
        """Say what it means that the queue and its accounts know nothing of an entry any more;
        None where nobody can say."""

    def explain_words(self, numbers: Iterable[str]) -> Words | None:
        """Ask why entries wait, where the list does not say; None: it does."""

    def read_explained(self, text: str) -> dict[str, str]:
        """Why each waits, by its number; by that of a task where it is in error."""

    def check_words(self, text: str) -> Words | None:
        """Ask once more for entries of which that answer did not say why they wait."""

    def read_checked(self, text: str) -> dict[str, str]: ...

    def detail_words(self, listed: ListedEntry) -> Words | None:
        """Ask for what a list does not say of an entry that ended; None: it says everything."""

    def read_detail(self, text: str, listed: ListedEntry) -> ListedEntry: ...

    def pending_words(self) -> Words | None:
        """List everything that waits, whoever it belongs to."""

    def read_places(self, text: str, ids: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Tell which each is of those that wait, and of how many; (0, 0) where it is none."""

    def why_taken_back(self, accounts: str, number: str, node_is_down: bool) -> str:
        """Tell why the queue starts an entry again by itself; empty where nothing tells."""

    def verdict(self, listed: ListedEntry, said: str, claimed: bool, now: float) -> Verdict:
        """Judge an entry that ended; `said` is what it printed outside of its processes."""

    # --- changing ----------------------------------------------------------------------------

    def cancel_words(self, ids: Iterable[str]) -> Words: ...

    def clear_words(self, ids: Iterable[str]) -> Words | None:
        """Have entries that are in error start after all; None: it has no such state."""

    def was_cleared(self, answer: Answer) -> bool: ...

    def throttle_words(self, number: str, at_once: int) -> Words | None:
        """Let so many tasks of an array run at a time from now on."""

    # --- asking ------------------------------------------------------------------------------

    def version_words(self) -> Words: ...

    def read_version(self, text: str) -> str: ...

    def site_words(self) -> Words: ...

    def read_site(self, text: str) -> Site: ...

    def node_words(self) -> Words: ...

    def read_nodes(self, text: str) -> list[QueueNode]: ...

    def test_words(self, queue: Queueing, site: Site) -> Words | None:
        """Ask whether it would accept such a job."""

    def read_test(self, answer: Answer) -> tuple[Test, str]:
        """Read the answer; the text says when such a job would start, or what is wrong with it."""

    def could_ever_run(self, queue: Queueing, nodes: list[QueueNode]) -> bool:
        """False only where it is certain that these nodes will never do."""

    def account_words(self, user: str, refused: Answer) -> Words | None:
        """Ask what a user may spend from, or ask for in place of what was refused; None where
        nothing of it has to do with that."""

    def instead(self, answer: Answer, nodes: list[QueueNode], accounts: str) -> str:
        """Say what could be asked for instead of what was refused; empty where nothing helps.

        `accounts` is what was printed for `account_words`.
        """

    # --- beside a job ------------------------------------------------------------------------

    def number_words(self, number: str) -> Words | None:
        """Ask for the number by which `beside_words` knows an entry; None: it is the same."""

    def read_number(self, text: str) -> str: ...

    def beside_words(self, number: str, request: Request, rank: int, node: str) -> Words | None:
        """Run what follows in the allocation of an entry, beside one process of it; `node` is
        given where the job has several. None: it has no such command, and what runs the job on its
        node is asked instead."""
