"""Chains within one queue: who can be handed over before what it waits for has ended. Pure.

The queue then sees to the order, and the chain goes on while no Engine runs.
"""

from collections.abc import Callable, Mapping

from towline.model.events import Ahead, Follow
from towline.model.job import Awaited, Job, State, Unit

#: The lines of a batch and where each stands; None where that is not known, or they are too many.
Lines = Callable[[str], Mapping[int, State] | None]
#: A job follows so many attempts at the most.
MOST = 500
_HANDED_OVER = frozenset({State.STARTING, State.RUNNING, State.STOPPING})


class Queues:
    """What of a chain is in which queue; `known` has each job that has not ended."""

    def __init__(self, known: Mapping[int, Job], lines: Lines | None) -> None:
        self._known = known
        self._lines = lines or (lambda name: None)
        #: The last answer, and to what: the jobs of a batch ask for the same one after the other.
        self._asked: tuple[object, ...] = ()
        self._last: tuple[Follow, ...] | None = None

    def follows(
        self, cluster: str, waits: Mapping[Unit, str], changed: Mapping[int, Job]
    ) -> tuple[Follow, ...] | None:
        """All that is waited for, if it is in the queue of that cluster; None if some of it is not.

        `changed` are jobs that the store does not know as they are now.
        """
        asked = (id(changed), cluster, *waits.items())
        if asked != self._asked or self._last is None:
            found = [self._follow(cluster, unit, when, changed) for unit, when in waits.items()]
            follows = tuple(one for one in found if one is not None)
            many = sum(len(one.attempts) for one in follows) > MOST
            self._last = None if many or len(follows) < len(found) else follows
            self._asked = asked
        return self._last

    def _follow(
        self, cluster: str, unit: Unit, when: str, changed: Mapping[int, Job]
    ) -> Follow | None:
        if isinstance(unit, int):
            one = self._ahead(cluster, unit)
            return None if one is None else Follow(Awaited(when, job=unit), (one,))
        lines = self._lines(unit)
        if not lines or len(lines) > MOST:
            return None
        states = {line: self._state(line, state, changed) for line, state in lines.items()}
        ahead = [self._ahead(cluster, line) for line, state in states.items() if not state.final]
        if None in ahead:
            return None
        failed = any(state.final and state is not State.DONE for state in states.values())
        return Follow(Awaited(when, batch=unit), tuple(filter(None, ahead)), failed)

    def _state(self, line: int, written: State, changed: Mapping[int, Job]) -> State:
        job = self._known.get(line) or changed.get(line)
        return written if job is None else job.state

    def _ahead(self, cluster: str, job_id: int) -> Ahead | None:
        job = self._known.get(job_id)
        if job is None or job.spec.queue is None or job.spec.cluster != cluster:
            return None
        if job.attempt is None or job.state not in _HANDED_OVER:
            return None
        return Ahead(job_id, job.attempt, job.failures >= job.spec.retries)
