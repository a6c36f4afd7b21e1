"""The life of a job as a table: (state, what happened) -> next state.

Rule: nothing else in Towline decides which state follows which. The diagram in ARCHITECTURE.md is
generated from this table (`python -m towline.core.lifecycle`), and a test keeps the two the same.
"""

from towline.model.job import State

S = State

#: What can happen to a job, in the order it usually does.
HAPPENINGS = (
    "accept",  # the Engine has written it down
    "stage",  # its snapshot is complete
    "hold",  # it is to run after others, which have not ended; or later, or when it is let go
    "release",  # they have, as they were to; and nobody holds it, and its time has come
    "skip",  # they have not, and never will
    "place",  # machines were chosen; the attempt is written down before anything starts
    "run",  # every process has started
    "wait",  # the cluster's own queue took it back and will start it again
    "succeed",  # every process ended with exit code 0
    "fail",  # a process ended otherwise
    "stop",  # someone asked for it, or a sister process failed
    "halt",  # everything of it was stopped, as asked
    "lose",  # a machine answered without it, or nobody waits any more for one that is silent
    "requeue",  # another attempt: a retry, or a start that never happened
    "find",  # a machine that was silent answers, and has what was given up
)

TRANSITIONS: dict[tuple[State, str], State] = {
    (S.NEW, "accept"): S.STAGING,
    (S.NEW, "stop"): S.STOPPED,
    (S.STAGING, "stage"): S.QUEUED,
    (S.STAGING, "stop"): S.STOPPED,
    (S.QUEUED, "hold"): S.WAITING,
    (S.QUEUED, "skip"): S.SKIPPED,
    (S.WAITING, "release"): S.QUEUED,
    (S.WAITING, "skip"): S.SKIPPED,
    (S.WAITING, "stop"): S.STOPPED,
    (S.WAITING, "lose"): S.LOST,
    (S.QUEUED, "place"): S.STARTING,
    (S.QUEUED, "stop"): S.STOPPED,
    # Nothing can be made of what is known of it.
    (S.QUEUED, "lose"): S.LOST,
    (S.STARTING, "run"): S.RUNNING,
    (S.STARTING, "stop"): S.STOPPING,
    (S.STARTING, "succeed"): S.DONE,
    (S.STARTING, "fail"): S.FAILED,
    (S.STARTING, "lose"): S.LOST,
    (S.STARTING, "requeue"): S.QUEUED,
    # It was in its cluster's queue before what it waits for had ended.
    (S.STARTING, "skip"): S.SKIPPED,
    (S.RUNNING, "wait"): S.STARTING,
    (S.RUNNING, "stop"): S.STOPPING,
    (S.RUNNING, "succeed"): S.DONE,
    (S.RUNNING, "fail"): S.FAILED,
    (S.RUNNING, "lose"): S.LOST,
    (S.RUNNING, "requeue"): S.QUEUED,
    (S.STOPPING, "halt"): S.STOPPED,
    # It ended by itself before the signal reached it.
    (S.STOPPING, "succeed"): S.DONE,
    (S.STOPPING, "fail"): S.FAILED,
    (S.STOPPING, "lose"): S.LOST,
    (S.STOPPING, "requeue"): S.QUEUED,
    (S.STOPPING, "skip"): S.SKIPPED,
    # A machine that comes back has the last word, as long as no other attempt was placed.
    (S.QUEUED, "find"): S.RUNNING,
    (S.LOST, "find"): S.RUNNING,
    # `tow retry`
    (S.DONE, "requeue"): S.QUEUED,
    (S.FAILED, "requeue"): S.QUEUED,
    (S.STOPPED, "requeue"): S.QUEUED,
    (S.LOST, "requeue"): S.QUEUED,
    (S.SKIPPED, "requeue"): S.QUEUED,
}


class InvalidTransition(Exception):
    """A bug in Towline: something happened to a job that cannot happen in its state."""

    def __init__(self, state: State, happening: str) -> None:
        super().__init__(f"a job that is {state} cannot {happening}")


def next_state(state: State, happening: str) -> State:
    try:
        return TRANSITIONS[state, happening]
    except KeyError:
        raise InvalidTransition(state, happening) from None


def diagram() -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> new"]
    lines += [f"    {a} --> {b}: {happening}" for (a, happening), b in TRANSITIONS.items()]
    lines += [f"    {state} --> [*]" for state in S if state.final]
    return "\n".join(lines)
