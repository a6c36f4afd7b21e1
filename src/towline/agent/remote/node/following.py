"""Whether a job that is in its queue behind others may run: decided on its node, by their records.

The queue only sees to the moment. It may start a job too early (an entry ended that was not the one
to run it), and some look at no exit code. What cannot be known here is left to the Engine.
"""

import os
import time

from ..records import record
from ..records.endings import ending

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..typed import Message
    from .attempt import Attempt

#: A shared file system may show so much later what another node wrote.
PATIENCE_S = 30.0
LOOK_S = 0.5
#: Starts that never happened: they are made again.
VOID = ("void", "absent")
#: Ends that are final whatever may be tried again.
FINAL = ("stopped", "skipped")
#: What is done with it: wait, since a record may yet be seen; leave it to the Engine.
RUN, SKIP, WAIT, LEAVE = "run", "skip", "wait", "leave"


def may_run(attempt: "Attempt") -> bool:
    """False where it is not to run, or nobody can say; that is written down then."""
    after = attempt.order.get("after") or []
    if not after or os.path.exists(attempt.folder + "/claim"):
        return True  # one that has begun has been through this
    until = time.monotonic() + PATIENCE_S
    word, because = decide(attempt, after)
    while word == WAIT and time.monotonic() < until and not attempt.stop_word():
        time.sleep(LOOK_S)
        word, because = decide(attempt, after)
    if word == SKIP:
        skip(attempt, because)
    elif word != RUN:
        give_back(attempt)
    return word == RUN


def decide(attempt: "Attempt", after: "list[Message]") -> "tuple[str, Message]":
    """Whether it may run; where it never may, also because of what."""
    # Listed, not looked for: a network file system may remember what was not there.
    if "go" in os.listdir(attempt.folder):
        return RUN, {}
    states = [(one, became(attempt, one)) for one in after]
    known = [(one, state) for one, state in states if state not in (WAIT, LEAVE)]
    for one, state in known:
        if one["when"] != "any" and (state == "done") != (one["when"] == "ok"):
            because = {"kind": "after", "job": one["job"], "batch": one["batch"], "state": state}
            return SKIP, because
    if len(known) == len(states):
        return RUN, {}
    return LEAVE if any(state == LEAVE for _, state in states) else WAIT, {}


def became(attempt: "Attempt", one: "Message") -> str:
    """The final state of a job, or of a batch as a whole; or what to do while that is not known."""
    states = [outcome(attempt, *told) for told in one["attempts"]]
    for word in (LEAVE, WAIT):
        if word in states:
            return word
    if one["batch"]:
        return "failed" if one["failed"] or set(states) - {"done"} else "done"
    return states[0] if states else WAIT


def outcome(attempt: "Attempt", key: str, count: int, last: bool) -> str:
    """The same of one attempt; what comes of one that another may follow is not known here."""
    folders = [attempt.home.record("%s-%d" % (key, rank)) for rank in range(count)]
    ends = [record.read_exit(folder) for folder in folders]
    known = [end for end in ends if end is not None]
    if len(known) < count:
        return WAIT
    causes = [end.get("cause") or "failed" for end in known if not is_well(end)]
    if not causes:
        return "done"
    blamed = [cause for cause in causes if cause not in VOID + ("stopped",)] or causes
    if blamed[0] in VOID or not (last or blamed[0] in FINAL):
        return LEAVE
    return blamed[0] if blamed[0] in FINAL + ("lost",) else "failed"


def is_well(end: "Message") -> bool:
    return end.get("code") == 0 and not end.get("cause")


def give_back(attempt: "Attempt") -> None:
    """Leave it to the Engine, which hands it over again once it knows more."""
    with open(attempt.folder + "/returned", "a") as file:
        file.write(attempt.id + "\n")


def skip(attempt: "Attempt", because: "Message") -> None:
    """End it without having run it."""
    attempt.end_unrun(dict(ending("skipped"), because=because))
