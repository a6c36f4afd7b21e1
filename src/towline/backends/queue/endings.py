"""Ends of processes that the queue, not they themselves, has to explain. Pure."""

from msgspec.structs import replace

from towline.backends.queue.dialect import Verdict
from towline.model.job import Ending

#: The cause that a runner records when it was stopped and does not know why.
EVICTED = "evicted"
#: Why a job that goes on after its time limit is in the queue again.
TIME_WAS_OVER = "its time limit came"


def explained(ending: Ending, verdict: Verdict | None) -> Ending:
    """The end of a process that the queue stopped, with the queue's own word for it."""
    if verdict is None or not verdict.reason:
        return ending
    return replace(ending, cause=verdict.cause or ending.cause, text=verdict.reason)


def forgotten(title: str, now: float) -> Ending:
    """The end of a process of which neither its files nor the queue know anything."""
    text = f"{title} knows nothing of it any more, and there is no record of how it ended"
    return Ending(cause="lost", text=text, ended=now)
