"""Jobs of batches that the core has not been given: the store has them, and they only wait.

What becomes of them is decided here like everything else, so that the journal tells of each.
"""

from collections.abc import Container

from towline.core import jobs
from towline.core.step import Step
from towline.model.events import SetWaiting, WaitingSkipped, WaitingStopped
from towline.model.journal import Kind


def stop(fact: WaitingStopped, inside: Container[int], now: float, step: Step) -> None:
    """End jobs that wait; of those that are inside by now, the core decides itself."""
    for job in fact.jobs:
        if job.id in inside:
            continue
        step.was(job.id, job)
        step.changed[job.id] = stopped = jobs.stopped_waiting(job, fact.reason, now)
        step.tell(stopped, Kind.ENDED)


def skip(fact: WaitingSkipped, inside: Container[int], now: float, step: Step) -> None:
    """End jobs of a batch that waits for what can never come true."""
    for job in fact.jobs:
        if job.id in inside:
            continue
        step.was(job.id, job)
        step.changed[job.id] = skipped = jobs.skipped(job, fact.because, now)
        step.tell(skipped, Kind.ENDED)


def set_waiting(fact: SetWaiting, inside: Container[int], step: Step) -> None:
    """Let jobs that ended wait again, until it is their turn to be given to the core."""
    for ended in fact.jobs:
        if ended.id in inside:
            continue
        if ended.attempt is not None:
            step.past.append((ended.id, ended.attempt))
        step.was(ended.id, ended)
        step.changed[ended.id] = again = jobs.retried(ended)
        step.tell(again, Kind.RETRIED)
