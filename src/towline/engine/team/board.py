"""What a team's server has to do and has done, as everybody may know it."""

from collections.abc import Sequence

from towline.api.team import StatusRow, TeamStatus
from towline.core.samples import SampleStretch
from towline.core.scheduling.explain import in_turn
from towline.engine.lookup import is_open_to, short_job, short_view
from towline.engine.parts import EngineParts
from towline.model.job import Job, State, standing
from towline.model.principal import Principal

#: Of those that ended, so many are shown.
MOST_DONE = 20
#: The order of those that wait is worked out anew after so long.
_FRESH_S = 1.0
#: Jobs that have ended, of which it is remembered what they used.
_MOST_REMEMBERED = 1000
_MOVING = (State.STARTING.value, State.RUNNING.value, State.STOPPING.value)
#: Those that wait for something else than their turn: the nearer to their start, the earlier.
_WAITING = {State.QUEUED.value: 0, State.WAITING.value: 1, State.STAGING.value: 2}


def since(job: Job) -> float:
    """When it got where it is."""
    return job.ended or job.started or job.submitted


class StatusBoard:
    """Rows of jobs, as everybody may know them; what is dear to work out is kept for a moment."""

    def __init__(self, parts: EngineParts) -> None:
        self._parts = parts
        self.engine = parts.engine
        self._order: dict[str, list[int]] = {}
        self._order_at = -_FRESH_S
        #: Whose jobs are in that order, and how many of them still wait.
        self._owners: set[str] = set()
        self._ranked = 0
        self._used: dict[int, tuple[int, int]] = {}

    def status(self, who: Principal, most: int) -> TeamStatus:
        """Who runs, in the order of numbers; who waits, as it is their turn; who ended last.

        Of those that wait, the first `most` and the asker's own.
        """
        in_turn, told = self._next(who, most)
        running, others = self._besides(who)
        left = max(0, most - len(in_turn))
        own = (job for job in others[left:] if job.spec.owner == who.name)
        shown = [*in_turn, *((0, job) for job in (*others[:left], *own))]
        ended = self.engine.store.ended(0.0, MOST_DONE if who.hears_of_others else -1)
        done = [job for job in ended if self.tells(who, job)]
        return {
            "now": self.engine.clock(),
            "running": [self.row(job) for job in running],
            "waiting": [self.row(job, place) for place, job in shown],
            "done": [self.row(job) for job in done[:MOST_DONE]],
            "more_waiting": told + len(others) - len(shown),
        }

    def shown(self, who: Principal, job_id: int) -> StatusRow:
        """One job; its groups, for those who may look at it."""
        short, job = short_job(self.engine, who, job_id), self.engine.job(job_id)
        return {**self.row(job, self.position(job)), **short}

    def position(self, job: Job) -> int:
        """Its place among those that wait for machines, from 1; 0: it does not."""
        if job.id not in self.engine.core.scheduler.queue.waiting:
            return 0
        return self._in_turn().index(job.id) + 1

    def row(self, job: Job, position: int = 0) -> StatusRow:
        """One job as everybody may know it."""
        compute = memory = 0
        allocation: list[list[str | list[int]]] = []
        if (attempt := job.attempt) is not None and standing(job) not in _WAITING:
            compute, memory = self._use(job)
            slots = enumerate(attempt.placement)
            allocation = [[attempt.machine_of(rank), list(slot.gpus)] for rank, slot in slots]
        return {
            **short_view(job),
            "since": since(job),
            "util_compute": compute,
            "util_memory": memory,
            "allocation": allocation,
            "position": position,
        }

    def tells(self, who: Principal, job: Job) -> bool:
        """Whether somebody may know that there is such a job."""
        return who.hears_of_others or is_open_to(who, job, self.engine)

    def _next(self, who: Principal, most: int) -> tuple[list[tuple[int, Job]], int]:
        """Those whose turn is to come, with their places: the first of them and the asker's own;
        and of how many the asker may know. Thousands are passed over at little cost."""
        jobs, order = self.engine.core.jobs, self._in_turn()
        places: Sequence[int] = range(len(order))
        if not who.hears_of_others:
            places = [at for at in places if self.tells(who, jobs[order[at]])]
        chosen = list(places[:most])
        late = (jobs[number].spec.owner for number in order[self._ranked :])
        if who.name in self._owners or who.name in late:
            chosen += [at for at in places[most:] if jobs[order[at]].spec.owner == who.name]
        return [(at + 1, jobs[order[at]]) for at in chosen], len(places)

    def _besides(self, who: Principal) -> tuple[list[Job], list[Job]]:
        """Who runs, and who waits for something else than their turn."""
        jobs, waiting = self.engine.core.jobs, self.engine.core.scheduler.queue.waiting
        rest = [
            job
            for number in jobs.keys() - waiting.keys()
            if not (job := jobs[number]).state.final and self.tells(who, job)
        ]
        running = sorted((job for job in rest if standing(job) in _MOVING), key=lambda job: job.id)
        others = [job for job in rest if standing(job) not in _MOVING]
        others.sort(key=lambda job: (_WAITING.get(standing(job), len(_WAITING)), job.id))
        return running, others

    def _in_turn(self) -> list[int]:
        """All that wait here, of all clusters, as it is their turn."""
        now, core = self.engine.clock(), self.engine.core
        if not self._order_at <= now < self._order_at + _FRESH_S:
            self._order_at = now
            clusters = core.scheduler.queue.everyone
            self._order = {name: in_turn(core.scheduler, name, now) for name in clusters}
            ranked = (core.jobs[job].spec.owner for found in self._order.values() for job in found)
            self._owners = set(ranked)
        waiting = core.scheduler.queue.waiting
        order = [job for found in self._order.values() for job in found if job in waiting]
        self._ranked = len(order)
        if len(order) < len(waiting):
            # Who came a moment ago stands last, until it is worked out anew.
            order += sorted(waiting.keys() - set(order))
        return order

    # --- what it uses ------------------------------------------------------------------------

    def _use(self, job: Job) -> tuple[int, int]:
        """Percent of the computing and of the memory of its GPUs: now, or on the whole."""
        if job.attempt is None or not any(slot.gpus for slot in job.attempt.placement):
            return 0, 0
        if not job.state.final:
            return self._percent(job, self._parts.samples.latest(job.id))
        if job.id not in self._used:
            if len(self._used) >= _MOST_REMEMBERED:
                self._used.pop(next(iter(self._used)))
            self._used[job.id] = self._percent(job, self._parts.samples.of_job(job.id))
        return self._used[job.id]

    def _percent(self, job: Job, stretches: list[SampleStretch]) -> tuple[int, int]:
        assert job.attempt is not None
        number = job.attempt.number
        compute = memory = seconds = 0.0
        for stretch in stretches:
            measured = [used for used in stretch.processes if used.gpu_util is not None]
            if stretch.attempt == number and measured:
                utils = [used.gpu_util or 0.0 for used in measured]
                seconds += stretch.seconds
                compute += stretch.seconds * sum(utils) / len(utils)
                taken = sum(used.most_gpu_mem_mb or 0.0 for used in measured)
                memory += stretch.seconds * taken / max(1, self._memory_of(job))
        if not seconds:
            return 0, 0
        return _whole(compute / seconds), _whole(memory / seconds)

    def _memory_of(self, job: Job) -> int:
        """All of the memory of the GPUs that it was given, in MB."""
        assert job.attempt is not None
        hosts, found = self.engine.core.scheduler.machines.hosts, 0
        for slot in job.attempt.placement:
            host = hosts.get(slot.machine)
            for gpu in host.gpus if host is not None else ():
                found += gpu.total if gpu.index in slot.gpus else 0
        return found


def _whole(share: float) -> int:
    return max(0, min(100, round(100 * share)))
