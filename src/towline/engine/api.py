"""What the API offers, in the Engine's words; every call says who asks."""

from collections.abc import Sequence
from typing import Any, cast

from towline.api.jobs import (
    After,
    JobDetail,
    JobView,
    MachineReason,
    ProcessView,
    QueueEntry,
    WhyView,
)
from towline.api.places import ClusterView, LoginView
from towline.backends.base import Fleet, MachineAccess
from towline.backends.clusters import Clusters
from towline.backends.router import Backends
from towline.config.paths import Paths
from towline.config.settings import Cluster, MachinesCluster, ServerCluster
from towline.core.scheduling.obstacles import Explanation, SilentMachine
from towline.engine.batches.batches import Batches
from towline.engine.chains import check_retry, waiter, waiting_words, waits_for
from towline.engine.cleaning.housekeeping import Housekeeping
from towline.engine.cleaning.removing import Removing
from towline.engine.engine import Engine, request_of
from towline.engine.forwards import Forwards
from towline.engine.intake import Intake
from towline.engine.lookup import job_for
from towline.engine.obstacle_words import obstacle_words, waiting_text
from towline.engine.reasons import reason_words
from towline.engine.results.results import ResultsHome
from towline.engine.samples import SampleKeeper, peaks_view
from towline.engine.services import Services
from towline.engine.views import entry_of, explanation_data, obstacles_data, view
from towline.engine.whats_free import WhatsFree
from towline.engine.wording import words
from towline.errors import NotFound, UsageError
from towline.hosts.ssh import needs_person
from towline.model.batch import Batch
from towline.model.job import Job, State, key_of, standing
from towline.model.machine import Slot
from towline.model.odd_text import original
from towline.model.principal import Principal
from towline.workspace.base import Places, Workspace

#: So many of its last events are shown of a job.
_MOST_HISTORY = 400
#: Jobs whose machines have something to say.
_ACTIVE = (State.STARTING, State.RUNNING, State.STOPPING)


class Desk:
    def __init__(
        self, engine: Engine, backends: Backends, paths: Paths, workspace: Workspace
    ) -> None:
        self.engine = engine
        self.fleet: Fleet = backends
        self.paths = paths
        self.clusters = Clusters(backends, engine.store, paths, self._has_jobs, engine.soon)
        self.forwards = Forwards(engine, backends)
        #: Requests that are being answered.
        self.visitors = 0
        self.intake = Intake(engine, backends, self.clusters, workspace)
        self.whats_free = WhatsFree(engine, backends, self.clusters, self.intake)
        self.batches = Batches(engine, self._away)
        self.results = ResultsHome(engine, backends, workspace.receiver, paths.home)
        self.samples = SampleKeeper(engine)
        backends.hear_use(self.samples.take, self.samples.take_readings)
        self.removing = Removing(engine, backends, workspace.receiver)
        self.housekeeping = Housekeeping(
            engine, backends, self.clusters, paths, self.is_idle, workspace
        )
        engine.backend = backends
        self.services = Services(engine, backends)

    async def open(self) -> None:
        """Take up what an earlier Engine left."""
        unfinished = self.engine.store.unfinished()
        forwards = self.engine.store.forwards()
        forwarded = (self.engine.store.job(number) for _, number, _ in forwards)
        jobs = [*unfinished, *filter(None, forwarded)]
        batches = self.engine.store.batches.unfinished()
        clusters = {job.spec.cluster for job in jobs} | {batch.base.cluster for batch in batches}
        attempts = [job.attempt for job in jobs if job.attempt and not job.spec.queue]
        attempts += [attempt for _, attempt in self.engine.store.attempts.given_up()]
        # First, so that the names by which they know their machines still mean these.
        for slot in (slot for attempt in attempts for slot in attempt.placement if slot.target):
            self.clusters.find_machine(slot, keep=True)
        self.clusters.rejoin(clusters)
        for slot in (slot for attempt in attempts for slot in attempt.placement):
            self.clusters.find_machine(slot)
        self.results.tidy()
        await self.engine.recover()
        self.batches.recover()
        self.results.resume()
        await self.forwards.restore(forwards)
        self.services.resume(unfinished)
        self.housekeeping.open()

    def is_idle(self) -> bool:
        """Nothing runs, waits, comes home or is being asked."""
        return not (self.engine.active or self.visitors or len(self.results))

    async def close(self) -> None:
        self.samples.close()
        self.results.close()
        await self.services.close()
        await self.forwards.close()
        await self.fleet.close()
        self.engine.close()

    def _has_jobs(self, cluster: str) -> bool:
        return any(job.spec.cluster == cluster for job in self.engine.core.jobs.values())

    # --- configuration -----------------------------------------------------------------------

    def cluster_list(self, who: Principal, places: Places) -> list[ClusterView]:
        config, sources = places.config, places.sources
        return [
            {
                "name": name,
                "kind": cluster.kind,
                "default": name == config.default_cluster,
                "from": sources[name] or "built in",
                "machines": [entry.label for entry in cluster.entries()]
                if isinstance(cluster, MachinesCluster)
                else [],
                "host": _access(cluster),
            }
            for name, cluster in config.clusters.items()
        ]

    # --- jobs --------------------------------------------------------------------------------

    def job(self, who: Principal, job_id: int) -> Job:
        """A job that somebody may look at; others' are as if they were not there."""
        return job_for(who, job_id, self.engine)

    def knows(self, who: Principal, job_id: int) -> bool:
        return self.engine.knows(job_id) and who.owns(self.engine.job(job_id).spec.owner)

    def batch(self, who: Principal, name: str) -> Batch:
        return self.batches.called(who, name)

    def why(self, who: Principal, job_id: int) -> WhyView:
        job = self.job(who, job_id)
        if waits := waiting_words(self.engine, waiter(job), job.spec.after):
            text, entry = f"it {waits}", self._in_queue(job)
            chained: WhyView = {"text": text, "machines": [], "waits_for": self._waits_for(job)}
            return chained | {"queue": entry} if entry and entry["number"] else chained
        if job.state is not State.QUEUED:
            silent = self._silent(job) if job.state in _ACTIVE else {}
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
        silent = self._silent(job) if job.state in _ACTIVE else {}
        since = [driver.channel.silent_since or driver.channel.since for driver in silent.values()]
        why = self.silence(job) if silent else ""
        return min(filter(None, since), default=None), why

    def _heard_at(self, job: Job) -> float | None:
        """When the machine of it that was silent for longest last said anything."""
        slots = job.attempt.placement if job.attempt else ()
        drivers = [self.fleet.machine_of(slot) for slot in slots]
        return min((driver.channel.heard_at for driver in drivers if driver), default=None)

    def silence(self, job: Job) -> str:
        """Why the machines of a job cannot be heard; empty when they can."""
        drivers = {driver.name: driver for driver in self._silent(job).values()}
        return "; ".join(_why_unheard(driver, job) for driver in drivers.values())

    def _silent(self, job: Job) -> dict[int, MachineAccess]:
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

    def _away(self, job: Job) -> dict[str, str]:
        """The machines of a job that do not answer, by name, and why."""
        slots = job.attempt.placement if job.attempt else ()
        drivers = filter(None, map(self.fleet.machine_of, slots))
        return {driver.channel.name: driver.error.text for driver in drivers if driver.error}

    async def stop(self, who: Principal, ids: list[int], now: bool, give_up: bool) -> None:
        """Stop jobs; `give_up`: without waiting for machines that do not answer."""
        for job_id in ids:
            self.job(who, job_id)
        await self.engine.stop(ids, now)
        for job_id in ids if give_up else ():
            job = self.engine.job(job_id)
            silent = self._silent(job) if job.state in _ACTIVE and not job.spec.queue else {}
            reasons = {
                rank: f"given up, because {driver.name} does not answer"
                for rank, driver in silent.items()
            }
            if reasons:
                await self.engine.give_up(job_id, reasons)

    async def retry(self, who: Principal, ids: list[int]) -> None:
        """Start jobs again that have ended, or that the queue of their cluster set aside."""
        for job_id in ids:
            job = self.job(who, job_id)
            if not job.state.final and await self.fleet.clear_error(job):
                continue
            if not job.state.final:
                raise UsageError(
                    f"job {job_id} is {job.state}", hint="only a job that has ended is retried"
                )
            self._rejoin(f"job {job_id}", job.spec.cluster)
        check_retry(self.engine, [self.job(who, job_id) for job_id in ids])
        # Those that others wait for come first.
        await self.engine.retry(sorted(ids))

    async def retry_batch(self, who: Principal, name: str, states: Sequence[State]) -> int:
        """Start again what of a batch ended in one of these states; how many they are."""
        batch = self.batch(who, name)
        self._rejoin(f"batch {name}", batch.base.cluster)
        check_retry(self.engine, (), [batch])
        return await self.batches.retry(batch, states)

    def _rejoin(self, what: str, cluster: str) -> None:
        """Have the cluster again that something ran on."""
        self.clusters.rejoin({cluster})
        if not self.clusters.knows(cluster):
            raise NotFound(
                f"{what} ran on cluster {cluster!r}, which is gone",
                hint=f"`tow clusters add {cluster} MACHINE...` makes it again",
            )

    def detail(self, who: Principal, job_id: int) -> JobDetail:
        job = self.job(who, job_id)
        history = self.engine.store.journal.of_job(job_id, _MOST_HISTORY)
        return {
            **self.seen(job),
            "heard_at": self._heard_at(job),
            "time_s": job.spec.time_s or None,
            "setup": job.spec.setup,
            "subfolder": original(job.spec.subfolder),
            "services": [service.name for service in job.spec.services],
            "env": sorted(job.spec.env),
            "commit": job.spec.commit,
            "branch": job.spec.branch,
            "changed": [{"letter": letter, "path": path} for letter, path in job.spec.changed],
            "files": job.spec.files,
            "bytes": job.spec.bytes,
            "processes": self._processes(job),
            "peaks": peaks_view(self.samples.peaks(job)),
            "history": [
                {"at": event.at, "kind": event.kind, "attempt": event.attempt, "text": text}
                for event in history
                if (text := words(event))
            ],
        }

    def _processes(self, job: Job) -> list[ProcessView]:
        if job.attempt is None:
            return []
        found: list[ProcessView] = []
        for rank, (group, process, _) in enumerate(request_of(job.spec.request).processes()):
            slot = job.attempt.placement[rank]
            ending = job.attempt.endings.get(rank)
            key = key_of(self.engine.store.engine_id, job.id, job.attempt, rank)
            driver = self.fleet.machine_of(slot)
            found.append(
                {
                    "group": group,
                    "process": process,
                    "machine": job.attempt.machine_of(rank),
                    "gpus": list(slot.gpus),
                    "state": "ended" if ending else job.state.value,
                    "exit_code": ending.code if ending else None,
                    "signal": ending.signal if ending else None,
                    "folder": f"{driver.root}/jobs/{key}" if driver else None,
                }
            )
        return found

    # --- machines ----------------------------------------------------------------------------

    def logins(self, who: Principal, name: str, places: Places) -> list[LoginView]:
        """How a person logs in to a machine, or to all machines of a cluster that want it."""
        if name not in self.fleet.machines:
            name = self.clusters.called(name)
        self.clusters.find_machine(Slot(name))
        drivers = [self.fleet.machines[name]] if name in self.fleet.machines else []
        if not drivers:
            _, drivers = self.intake.join(places, name)
        return [login for driver in drivers if (login := login_of(driver)) is not None]

    def driver(self, who: Principal, name: str) -> MachineAccess:
        if name not in self.fleet.machines:
            raise NotFound(f"there is no machine {name!r}", hint="`tow machines` lists them")
        return self.fleet.machines[name]


def _why_unheard(driver: MachineAccess, job: Job) -> str:
    return driver.error.text if driver.error else driver.elsewhere(job.id)


def _access(cluster: Cluster) -> str:
    """Where a cluster is reached that is not a mere list of machines."""
    if isinstance(cluster, MachinesCluster):
        return ""
    return cluster.url if isinstance(cluster, ServerCluster) else cluster.host


def login_of(driver: MachineAccess) -> LoginView | None:
    command = driver.host.login()
    if command is None or (driver.error is not None and not needs_person(driver.error)):
        return None
    return (
        None
        if driver.is_connected
        else {"machine": driver.name, "target": driver.name, "command": command}
    )


def _standing(job: Job) -> str:
    if job.state.final:
        how = {"stopped": "was stopped", "failed": "failed"}.get(job.state, f"is {job.state}")
        return f"job {job.id} {how}" + (f": {reason_words(job.reason)}" if job.reason else "")
    where = ""
    if job.attempt is not None:
        where = f" on {', '.join(job.attempt.machines())}"
    why = f": {reason_words(job.reason)}" if job.spec.queue and job.reason else ""
    return f"job {job.id} is {standing(job)}{where}{why}"
