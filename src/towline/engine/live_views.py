"""Jobs as they stand now: with where they are in queues, and the silence of their machines."""

from typing import Any, cast

from towline.api.jobs import After, JobView, MachineReason, QueueEntry, WhyView
from towline.backends.base import Fleet, MachineAccess
from towline.core.scheduling.obstacles import Explanation, SilentMachine
from towline.engine.chains import waiter, waiting_words, waits_for
from towline.engine.engine import Engine
from towline.engine.obstacle_words import obstacle_words, waiting_text
from towline.engine.reasons import reason_words
from towline.engine.views import entry_of, explanation_data, obstacles_data, view
from towline.model.job import Job, State, standing
from towline.model.names import shown_cluster

#: Jobs whose machines have something to say.
ACTIVE = (State.STARTING, State.RUNNING, State.STOPPING)


class LiveViews:
    """Jobs that were looked up for somebody, as that one sees them."""

    def __init__(self, engine: Engine, fleet: Fleet) -> None:
        self.engine = engine
        self.fleet = fleet

    def _waits_for(self, job: Job) -> list[After]:
        return waits_for(self.engine, waiter(job), job.spec.after)

    def _explained(self, job_id: int) -> Explanation:
        return self.engine.core.scheduler.explain(job_id, self.engine.clock())

    def seen(self, job: Job) -> JobView:
        """A job as people see it; one whose machine is silent says so."""
        seen = view(job)
        seen["queue"] = self._in_queue(job)
        seen["silent_since"], silence = self._unheard(job)
        if seen["state"] == State.WAITING:
            seen["waits_for"] = self._waits_for(job)
            seen["reason"] = waiting_words(self.engine, job.id, job.spec.after)
        if silence:
            seen["reason"] = "; ".join(filter(None, (reason_words(job.reason), silence)))
        return seen

    def _in_queue(self, job: Job) -> QueueEntry | None:
        """Where it stands in the queue that its cluster has of its own."""
        entry = entry_of(job)
        if entry is not None:
            entry.update(cast("QueueEntry", self.standing(job)))
        return entry

    def standing(self, job: Job) -> dict[str, Any]:
        """While it waits there: since when, its place, when it is expected to start; and of one
        that runs, whether it stands still."""
        if job.state is State.RUNNING and job.spec.queue is not None:
            return {**self.fleet.standing(job)}
        if job.state is not State.STARTING or job.attempt is None:
            return {}
        since = job.attempt.entry.requeued_at or job.submitted
        return {"since": since} | self.fleet.standing(job)

    def _unheard(self, job: Job) -> tuple[float | None, str]:
        """Since when nothing is heard of an active job, and why; None where it is heard of."""
        silent = self.silent(job) if job.state in ACTIVE else {}
        since = [driver.channel.silent_since or driver.channel.since for driver in silent.values()]
        why = self.silence(job) if silent else ""
        return min(filter(None, since), default=None), why

    def heard_at(self, job: Job) -> float | None:
        """When the machine of it that was silent for longest last said anything."""
        slots = job.attempt.placement if job.attempt else ()
        drivers = [self.fleet.machine_of(slot) for slot in slots]
        return min((driver.channel.heard_at for driver in drivers if driver), default=None)

    def silence(self, job: Job) -> str:
        """Why the machines of a job cannot be heard; empty when they can."""
        drivers = {driver.name: driver for driver in self.silent(job).values()}
        return "; ".join(_why_unheard(driver, job) for driver in drivers.values())

    def silent(self, job: Job) -> dict[int, MachineAccess]:
        """Processes of a job that have not ended and whose machine does not answer."""
        if job.attempt is None:
            return {}
        slots = enumerate(job.attempt.placement)
        drivers = {rank: self.fleet.machine_of(slot) for rank, slot in slots}
        return {
            rank: driver
            for rank, driver in drivers.items()
            if driver and rank not in job.attempt.endings and _why_unheard(driver, job)
        }

    def away(self, job: Job) -> dict[str, str]:
        """The machines of a job that do not answer, by name, and why."""
        slots = job.attempt.placement if job.attempt else ()
        drivers = filter(None, map(self.fleet.machine_of, slots))
        return {driver.channel.name: driver.error.text for driver in drivers if driver.error}

    def why(self, job: Job) -> WhyView:
        """Why a job waits, or where it stands."""
        job_id = job.id
        if waits := waiting_words(self.engine, waiter(job), job.spec.after):
            text, entry = f"it {waits}", self._in_queue(job)
            chained: WhyView = {"text": text, "machines": [], "waits_for": self._waits_for(job)}
            return chained | {"queue": entry} if entry and entry["number"] else chained
        if job.state is not State.QUEUED:
            silent = self.silent(job) if job.state in ACTIVE else {}
            errors = {driver.name: _why_unheard(driver, job) for driver in silent.values()}
            ahead = not silent and self.engine.core.scheduler.series.is_ahead(job_id)
            why: WhyView = {
                "text": waiting_text(self._explained(job_id)) if ahead else _standing(job),
                "machines": [{"machine": name, "reason": errors[name]} for name in errors],
                "silent_since": self._unheard(job)[0],
            }
            if not job.state.final and (entry := self._in_queue(job)):
                why["queue"] = entry
            return why
        if job_id not in self.engine.core.jobs:
            return {"text": f"it waits for its turn in batch {job.spec.batch}", "machines": []}
        told = self._explained(job_id)
        reasons: list[MachineReason] = []
        for reason in told.reasons:
            words, data = obstacle_words(reason.obstacles), obstacles_data(reason.obstacles)
            for name in reason.machines:
                driver = self.fleet.machines.get(name)
                away = driver.error.text if driver and driver.error else ""
                reasons.append({"machine": name, "reason": away or words, "because": data})
        away_now = obstacles_data((SilentMachine(),))
        reasons += [
            {"machine": driver.name, "reason": driver.error.text, "because": away_now}
            for driver in self.fleet.machines_in(job.spec.cluster)
            if driver.error and self.fleet.seen(driver.name) is None
        ]
        because = explanation_data(told)
        return {"text": waiting_text(told), "because": because, "machines": reasons}


def _why_unheard(driver: MachineAccess, job: Job) -> str:
    return driver.error.text if driver.error else driver.elsewhere(job.id)


def _standing(job: Job) -> str:
    if job.state.final:
        how = {"stopped": "was stopped", "failed": "failed"}.get(job.state, f"is {job.state}")
        return f"job {job.id} {how}" + (f": {reason_words(job.reason)}" if job.reason else "")
    state, where = standing(job), ""
    if job.spec.queue and state == "queued":
        # What was taken back into its queue is no longer on the node where it was.
        where = f" on {shown_cluster(job.spec.cluster)}"
    elif job.attempt is not None:
        where = f" on {', '.join(job.attempt.machines())}"
    why = f": {reason_words(job.reason)}" if job.spec.queue and job.reason else ""
    return f"job {job.id} is {state}{where}{why}"
