"""Jobs: submit, look, follow, stop, retry, forget."""

from collections.abc import AsyncIterator, Iterable, Mapping

from towline.api.jobs import (
    AcceptedJobs,
    Held,
    JobDetail,
    JobList,
    JobSamples,
    JobView,
    MeantView,
    PlanView,
    ProcessView,
    Released,
    RemovedView,
    Retried,
    StoppedJobs,
    WhyView,
)
from towline.api.places import LoginView
from towline.engine.chains import check_retry, hold, let_go, skipped_because
from towline.engine.engine import request_of
from towline.engine.following.at_home import read_somewhere
from towline.engine.following.follow import Follower
from towline.engine.following.output import Frame
from towline.engine.following.tails import beginnings
from towline.engine.lists import JobFilter, checked_state, listed, meant
from towline.engine.live_views import ACTIVE
from towline.engine.lookup import is_open_to, job_for, share
from towline.engine.machines.logins import login_of
from towline.engine.parts import EngineParts
from towline.engine.samples import peaks_view, stretch_view
from towline.engine.views import view
from towline.engine.wording import words
from towline.errors import UsageError
from towline.model.job import Job, key_of
from towline.model.odd_text import original
from towline.model.principal import Principal
from towline.workspace.base import Draft

#: So many of its last events are shown of a job.
_MOST_HISTORY = 400
_BOTH = ("out", "err")


class JobCalls:
    """Whatever names a job finds it for whoever asks; others' are as if they were not there."""

    def __init__(self, parts: EngineParts) -> None:
        self._parts = parts
        self._engine = parts.engine
        self._views = parts.views

    def find(self, who: Principal, job_id: int) -> Job:
        """A job that somebody may look at."""
        return job_for(who, job_id, self._engine)

    def _knows(self, who: Principal, job_id: int) -> bool:
        engine = self._engine
        return engine.knows(job_id) and is_open_to(who, engine.job(job_id), engine)

    def _seen(self, who: Principal, ids: Iterable[int]) -> list[JobView]:
        return [self._views.seen(self.find(who, job_id)) for job_id in ids]

    # --- submit ------------------------------------------------------------------------------

    async def submit(self, who: Principal, drafts: Iterable[Draft], key: str) -> AcceptedJobs:
        """Accept jobs; the same key again gives the same jobs."""
        accepted = await self._parts.intake.submit(who, drafts, key)
        return {"jobs": [view(job) for job in accepted]}

    async def plan(self, who: Principal, draft: Draft) -> PlanView:
        """What a submission would do; nothing is done."""
        return await self._parts.intake.plan(draft)

    def login_for(self, who: Principal, drafts: Iterable[Draft]) -> LoginView | None:
        """How to log in to the first machine that wants a person, of the clusters of drafts."""
        joined = (self._parts.intake.join(one.places, one.spec.cluster)[1] for one in drafts)
        drivers = (driver for some in joined for driver in some)
        return next((found for one in drivers if (found := login_of(one)) is not None), None)

    # --- look --------------------------------------------------------------------------------

    def list_all(
        self, who: Principal, state: str, cluster: str, limit: int | None, everything: bool
    ) -> JobList:
        """Jobs that are not of a batch: all that are active, and the newest that ended."""
        store = self._engine.store
        name = self._parts.clusters.called(cluster)
        wanted = JobFilter(checked_state(state), name, limit, everything, who.sees)
        page = listed(store, wanted, self._engine.clock())
        return {
            "jobs": [self._views.seen(job) for job in page.jobs],
            "left_out": page.left_out,
            # Nobody can say whose they are.
            "unreadable": sorted(store.unreadable) if who.administrator else [],
        }

    def named(self, who: Principal, name: str) -> MeantView:
        """Which job or batch somebody means."""
        return meant(self._engine.store, who, name)

    def why(self, who: Principal, job_id: int) -> WhyView:
        """Why a job waits, or where it stands."""
        return self._views.why(self.find(who, job_id))

    def samples(self, who: Principal, job_id: int) -> JobSamples:
        """What a job used over its life, by the minute; longer ago, by more minutes at a time."""
        job, samples = self.find(who, job_id), self._parts.samples
        stretches = [stretch_view(stretch) for stretch in samples.of_job(job_id)]
        return {"samples": stretches, "peaks": peaks_view(samples.peaks(job))}

    def detail(self, who: Principal, job_id: int) -> JobDetail:
        """Everything about one job."""
        job = self.find(who, job_id)
        history = self._engine.store.journal.of_job(job_id, _MOST_HISTORY)
        return {
            **self._views.seen(job),
            "heard_at": self._views.heard_at(job),
            "time_s": job.spec.time_s or None,
            "setup": job.spec.setup,
            "subfolder": original(job.spec.subfolder),
            "services": [service.name for service in job.spec.services],
            "env": sorted(job.spec.env),
            "commit": job.spec.commit,
            "branch": job.spec.branch,
            "origin": job.spec.origin,
            "changed": [{"letter": letter, "path": path} for letter, path in job.spec.changed],
            "files": job.spec.files,
            "bytes": job.spec.bytes,
            "processes": self._processes(job),
            "peaks": peaks_view(self._parts.samples.peaks(job)),
            "history": [
                {"at": event.at, "kind": event.kind, "attempt": event.attempt, "text": text}
                for event in history
                if (text := words(event))
            ],
        }

    def _processes(self, job: Job) -> list[ProcessView]:
        if job.attempt is None:
            return []
        processes: list[ProcessView] = []
        for rank, (group, process, _) in enumerate(request_of(job.spec.request).processes()):
            slot = job.attempt.placement[rank]
            ending = job.attempt.endings.get(rank)
            key = key_of(self._engine.store.engine_id, job.id, job.attempt, rank)
            driver = self._parts.fleet.machine_of(slot)
            processes.append(
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
        return processes

    # --- follow ------------------------------------------------------------------------------

    def follow(
        self,
        who: Principal,
        job_id: int,
        offsets: Mapping[str, int],
        streams: tuple[str, ...] = _BOTH,
        first_attempt: int = 0,
    ) -> AsyncIterator[Frame]:
        """A job to its end: what it prints after these places, and what becomes of it."""
        parts, job = self._parts, self.find(who, job_id)
        follower = Follower(
            parts.engine,
            parts.fleet,
            job.id,
            offsets,
            streams,
            first_attempt,
            news=parts.services.news,
            silence=self._views.silence,
            keep=parts.results.followed.add,
            standing=self._views.standing,
            coming=parts.results.coming,
            receiver=parts.results.receiver,
        )
        return follower.frames()

    async def log(
        self,
        who: Principal,
        job_id: int,
        stream: str,
        offsets: Mapping[str, int],
        lines: int,
        size: int,
        follow: bool,
    ) -> AsyncIterator[Frame]:
        """What a job printed, so far or to its end: after these places, or else so many lines or
        bytes before the end."""
        parts, job = self._parts, self.find(who, job_id)
        streams = _BOTH if stream == "all" else (stream,)
        if not set(streams) <= set(_BOTH):
            raise UsageError(f"there is no stream {stream!r}", hint="out, err or all")
        if not offsets and (size > 0 or lines > 0):
            lines, size = max(0, lines), max(0, size)
            offsets = await beginnings(parts.fleet, job, streams, lines=lines, size=size)
        if follow:
            return self.follow(who, job_id, offsets, streams)
        receiver = parts.results.receiver
        return read_somewhere(parts.engine, parts.fleet, receiver, job_id, offsets, streams)

    # --- change ------------------------------------------------------------------------------

    async def stop(self, who: Principal, ids: list[int], now: bool, give_up: bool) -> StoppedJobs:
        """Stop jobs; `give_up`: without waiting for machines that do not answer."""
        known = [job_id for job_id in ids if self._knows(who, job_id)]
        if ids and not known:
            self.find(who, ids[0])
        await self._engine.stop(known, now)
        for job_id in known if give_up else ():
            await self._give_up(self._engine.job(job_id))
        return {"jobs": self._seen(who, known), "unknown": sorted(set(ids) - set(known))}

    async def _give_up(self, job: Job) -> None:
        active = job.state in ACTIVE and not job.spec.queue
        silent = self._views.silent(job) if active else {}
        reasons = {
            rank: f"given up, because {driver.name} does not answer"
            for rank, driver in silent.items()
        }
        if reasons:
            await self._engine.give_up(job.id, reasons)

    async def retry(self, who: Principal, ids: list[int]) -> Retried:
        """Start jobs again that have ended, or that the queue of their cluster set aside."""
        for job_id in ids:
            job = self.find(who, job_id)
            if not job.state.final and await self._parts.fleet.clear_error(job):
                continue
            if not job.state.final:
                raise UsageError(
                    f"job {job_id} is {job.state}", hint="only a job that has ended is retried"
                )
            self._parts.rejoin(f"job {job_id}", job.spec.cluster)
        check_retry(self._engine, [self.find(who, job_id) for job_id in ids])
        # Those that others wait for come first.
        await self._engine.retry(sorted(ids))
        skipped = list(map(str, skipped_because(self._engine, ids)))
        return {"jobs": self._seen(who, ids), "skipped": skipped}

    async def hold(self, who: Principal, ids: list[int]) -> Held:
        """Keep back jobs that have not begun; `late` are those that have, or are of a batch."""
        late = await hold(self._engine, [self.find(who, job_id) for job_id in ids])
        return {"jobs": self._seen(who, ids), "late": late}

    async def release(self, who: Principal, ids: list[int]) -> Released:
        """Let jobs go that are held; with one job of a batch, the whole batch."""
        await let_go(self._engine, [self.find(who, job_id) for job_id in ids])
        return {"jobs": self._seen(who, ids)}

    async def share(self, who: Principal, job_id: int, group: str, shared: bool) -> list[str]:
        """Share a job with a group, or do so no more; the groups that it is shared with then."""
        return await share(self._engine, who, job_id, group, shared)

    async def remove(
        self, who: Principal, ids: list[int], names: list[str], force: bool
    ) -> RemovedView:
        """Forget jobs and batches, and what is kept of them on machines."""
        jobs = [self.find(who, job_id) for job_id in ids]
        batches = [self._parts.batches.called(who, name) for name in names]
        removed = await self._parts.removing.remove(jobs, batches, force)
        return {
            "jobs": removed.jobs,
            "batches": removed.batches,
            "lines": removed.lines,
            "bytes": removed.bytes,
            "stay": [[job, why] for job, why in removed.stay],
        }
