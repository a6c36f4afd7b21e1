"""Attempts that were given up because their machines were silent. Pure.

What was only silent may still run, or may have ended well. So such an attempt is remembered until
its machine has said what became of it. Before another attempt is placed its word counts, and the
job goes on with it as if nothing had been; afterwards it is stopped, and only its end is noted.
A gang cannot go on when a part of it was stopped: what was given up of one is stopped in any case.
"""

from msgspec import Struct
from msgspec.structs import replace

from towline.model.job import Attempt, Ending, Job, State
from towline.model.request import Request

#: Ends that say nothing of what the command did: it never ran, or nobody knows.
_NOTHING_KNOWN = frozenset({"void", "lost"})


class Given(Struct):
    """A job with the attempt that was given up."""

    job: Job
    request: Request
    #: The job has gone on without it: it must end over there, and no more.
    over: bool = False

    @property
    def attempt(self) -> Attempt:
        assert self.job.attempt is not None
        return self.job.attempt


class GivenUp:
    """All attempts of which some machine still owes its word."""

    def __init__(self) -> None:
        self._found: dict[int, dict[int, Given]] = {}

    def add(self, given: Given) -> None:
        self._found.setdefault(given.job.id, {})[given.attempt.number] = given

    def get(self, job_id: int, attempt: int) -> Given | None:
        return self._found.get(job_id, {}).get(attempt)

    def of(self, job_id: int) -> list[Given]:
        return list(self._found.get(job_id, {}).values())

    def drop(self, given: Given) -> None:
        mine = self._found.get(given.job.id, {})
        mine.pop(given.attempt.number, None)
        if not mine:
            self._found.pop(given.job.id, None)

    def note(self, given: Given, rank: int, ending: Ending) -> Attempt:
        """One of its processes has ended for certain; the attempt as it is known now."""
        endings = {**given.attempt.endings, rank: ending}
        attempt = replace(given.attempt, endings=endings)
        self.drop(given)
        if attempt.unheard():
            self.add(replaced(given, attempt))
        return attempt


def replaced(given: Given, attempt: Attempt) -> Given:
    return Given(replace(given.job, attempt=attempt), given.request, given.over)


def counts_again(given: Given, job: Job, ending: Ending | None = None) -> bool:
    """Whether the job goes on with this attempt, now that its machine has spoken.

    `job` is where the job stands now; `ending` is None for a process that runs.
    """
    if given.over or job.state not in (State.QUEUED, State.LOST):
        return False
    if ending is None:
        return not job.stop_asked
    if ending.cause in _NOTHING_KNOWN:
        return False
    # What was stopped because it was given up has not failed.
    return ending.cause != "stopped" or job.stop_asked
