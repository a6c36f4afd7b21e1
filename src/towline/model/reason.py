"""Why a job waits, or why it ended as it did: data, which `engine/wording.py` puts into words."""

from typing import Literal

from msgspec import Struct

#: What happens next because of it: its other processes are stopped, or it is tried again.
Then = Literal["", "stopping_others", "trying_again"]


class Reason(Struct, frozen=True, omit_defaults=True):
    """One reason. Its kind is one of these, or the cause of a process's end (`Ending.cause`).

    `stop_asked`, `stopped_waiting` (before it started), `stopped`, `forbidden` (its owner
    may not use any more what it waits for), `line_ended` (another line of
    its batch ended, which stops the batch), `held` (until somebody lets it go), `after` (what it
    was to run after ended otherwise), `exit_code`, `signal`, `queue` (it waits in the queue of its
    cluster), `unclear` (nothing can be made of what was heard of it), `unknown`, `told` (as `text`
    says); empty where there is nothing to say.
    """

    kind: str
    #: What a machine, a queue or an error said; further lines say what to do about it.
    text: str = ""
    code: int | None = None
    signal: int | None = None
    #: The most memory it used, where that ended it.
    peak_kb: int = 0
    #: Which attempt and machine it was and, of a job with several, which process, e.g. `0.1`.
    attempt: int = 0
    machine: str = ""
    process: str = ""
    then: Then = ""
    #: Of a batch: which line ended.
    line: int = 0
    #: The job or batch that it was to run after.
    job: int = 0
    batch: str = ""
    #: How that, or the line, ended.
    state: str = ""

    def __bool__(self) -> bool:
        return bool(self.kind)


def because_of(unit: int | str, state: str) -> Reason:
    """Why a job is skipped: what it was to run after, and what became of that."""
    if isinstance(unit, str):
        return Reason("after", batch=unit, state=state)
    return Reason("after", job=unit, state=state)


NO_REASON = Reason("")
HELD = Reason("held")
STOP_ASKED = Reason("stop_asked")
STOPPED = Reason("stopped")
STOPPED_WAITING = Reason("stopped_waiting")
FORBIDDEN = Reason("forbidden")
