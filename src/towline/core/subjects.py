"""Which jobs facts are about, so that one that cannot be handled harms no other."""

from collections.abc import Iterable

from towline.model.events import (
    AttemptWaits,
    Fact,
    Fed,
    GiveUpAsked,
    HoldAsked,
    ProcessEnded,
    ProcessSilent,
    ProcessStarted,
    Recovered,
    RetryAsked,
    SetWaiting,
    StopAsked,
    WaitingSkipped,
    WaitingStopped,
)
from towline.model.job import Job


def singly(fact: Fact) -> Iterable[Fact]:
    """A fact about several jobs as one fact about each."""
    if isinstance(fact, Fed | RetryAsked):
        return (type(fact)((one,)) for one in fact.jobs)
    if isinstance(fact, Recovered):
        found = [Recovered((one,)) for one in fact.jobs]
        return found + [Recovered((), (one,)) for one in fact.given_up]
    if isinstance(fact, WaitingStopped):
        return (WaitingStopped((job,), fact.reason) for job in fact.jobs)
    if isinstance(fact, WaitingSkipped):
        return (WaitingSkipped((job,), fact.because) for job in fact.jobs)
    if isinstance(fact, SetWaiting):
        return (SetWaiting((job,)) for job in fact.jobs)
    if isinstance(fact, HoldAsked):
        return (HoldAsked((unit,), fact.held) for unit in fact.units)
    if isinstance(fact, StopAsked):
        return (StopAsked((job_id,), fact.now) for job_id in fact.ids)
    return (fact,)


def job_in(fact: Fact) -> Job | None:
    """The job that a fact brings along; not one that has ended."""
    if isinstance(fact, Fed | Recovered) and fact.jobs:
        return fact.jobs[0][0]
    return None


def number_in(fact: Fact) -> int:
    """The number of the job that a fact is about; 0: of none."""
    if isinstance(fact, StopAsked):
        return fact.ids[0] if fact.ids else 0
    if isinstance(fact, HoldAsked):
        return next((unit for unit in fact.units if isinstance(unit, int)), 0)
    if isinstance(fact, GiveUpAsked):
        return fact.id
    if isinstance(fact, ProcessStarted | ProcessSilent | ProcessEnded | AttemptWaits):
        return fact.job if isinstance(fact.job, int) else 0
    return 0
