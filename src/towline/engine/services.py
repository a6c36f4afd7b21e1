"""Services of jobs: a local port for each, the same for the job's whole life, and how they stand.

What runs beside a job is up to the agent over there. Here each service gets a port, which is
written down, so that the next Engine opens the same one; connections are dialled by the service's
name, so it does not matter where over there it serves now.
"""

import asyncio
import contextlib
import functools
import logging
import zlib
from collections.abc import AsyncIterator, Iterable

from msgspec import Struct

from towline.api.places import ServiceView
from towline.backends.base import Fleet
from towline.backends.tasks import Tasks
from towline.backends.terms import Port, ServiceState
from towline.engine.engine import Engine
from towline.engine.following.output import Frame, read_more
from towline.engine.lookup import job_for
from towline.engine.views import view
from towline.errors import HostError, NotFound, TowlineError
from towline.forward.tunnels import Forward
from towline.model.job import Job, State
from towline.model.journal import Kind
from towline.model.principal import Principal
from towline.model.service import path_in

log = logging.getLogger("towline")

#: Below the ports that the kernel gives to outgoing connections: nobody takes one of ours while
#: the Engine is away.
_FIRST_PORT, _PORTS, _TRIES = 20_000, 10_000, 50
_SOON_S, _LATER_S, _FAR_S = 0.3, 5.0, 3600.0
_PROBE_S = 15.0
#: Whoever waits for a service that takes longer to answer wants to know what is wrong.
_SILENT_S = 30.0
#: How a service stands when there is nothing more to wait for.
SETTLED = ("up", "failed")


class Standing(Struct):
    """One service, as far as the Engine knows."""

    job: int
    name: str
    #: waiting, starting, up or failed
    state: str = "waiting"
    text: str = ""
    #: The port here, and the one over there.
    local: int = 0
    port: int = 0
    #: Since when it runs on the port over there.
    since: float = 0.0
    #: What of its URL comes behind the port.
    path: str = ""

    @property
    def url(self) -> str:
        return f"http://localhost:{self.local}{self.path}" if self.local else ""


class Services:
    def __init__(self, engine: Engine, fleet: Fleet, opens_ports: bool = True) -> None:
        """Without ports of this machine, services are reached through the API alone."""
        self.engine = engine
        self.fleet = fleet
        self._opens_ports = opens_ports
        self._standings: dict[int, dict[str, Standing]] = {}
        self._forwards: dict[tuple[int, str], Forward] = {}
        self._tasks = Tasks("services", asks_again=False)
        self._kept: dict[int, asyncio.Task[None]] = {}
        #: The ports that an earlier Engine gave them.
        self._remembered = {(job, name): local for job, name, local in engine.store.services()}
        engine.on_changed.append(self.noticed)

    # --- from the job's start to its end -----------------------------------------------------

    def noticed(self, jobs: Iterable[Job]) -> None:
        """Take care of those that have services."""
        for job in jobs:
            if job.spec.services and not job.state.final and job.id not in self._kept:
                names = [service.name for service in job.spec.services]
                self._standings[job.id] = {name: Standing(job.id, name) for name in names}
                failed = functools.partial(self._failed, job.id)
                self._kept[job.id] = self._tasks.spawn(self._keep(job.id), failed)

    def resume(self, jobs: Iterable[Job]) -> None:
        """After a restart: the same ports as before, so that an open browser tab works again."""
        self.noticed(jobs)
        for job_id, _ in self._remembered:
            if job_id not in self._standings:
                self._forget(job_id)

    async def close(self) -> None:
        self._tasks.close()
        for forward in self._forwards.values():
            await forward.close()

    async def _keep(self, job_id: int) -> None:
        for name in self._standings[job_id]:
            if (job_id, name) in self._remembered:
                await self._listen(job_id, name)
        while not (job := self.engine.job(job_id)).state.final:
            pause = _FAR_S
            if job.state in (State.RUNNING, State.STOPPING):
                pause = await self._look(job)
            else:
                for standing in self._standings[job_id].values():
                    self._stands(standing, "waiting")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._another_state(job)
        await self._end(job_id)

    def _failed(self, job_id: int, error: Exception) -> None:
        self._fail(job_id, error)
        self._tasks.spawn(self._end_with_job(job_id), lambda worse: None)

    def _fail(self, job_id: int, error: Exception) -> None:
        """Something that nobody expected: it is said where one looks for the services."""
        text = f"the Engine failed over it: {error!r}"
        standings = self._standings.get(job_id, {}).values()
        if any(standing.text != text for standing in standings):
            log.error("the services of job %d", job_id, exc_info=error)
        for standing in standings:
            self._stands(standing, "failed", text)

    async def _end_with_job(self, job_id: int) -> None:
        await self.engine.job_where(job_id, lambda job: job.state.final)
        await self._end(job_id)

    async def _end(self, job_id: int) -> None:
        # At once and without waiting: the job may be run again.
        names = list(self._standings.pop(job_id))
        del self._kept[job_id]
        forwards = [self._forwards.pop((job_id, name), None) for name in names]
        self._forget(job_id)
        for name in names:
            self._tell(job_id, name, "ended")
        for forward in filter(None, forwards):
            await forward.close()

    def _forget(self, job_id: int) -> None:
        what = f"that the services of job {job_id} have ended"
        self.engine.soon(what, lambda: self.engine.store.forget_services(job_id))

    async def _another_state(self, job: Job) -> None:
        before = (job.state, job.attempt and job.attempt.number)

        def changed(now: Job) -> bool:
            return (now.state, now.attempt and now.attempt.number) != before

        await self.engine.job_where(job.id, changed)

    # --- how they stand ----------------------------------------------------------------------

    async def _look(self, job: Job) -> float:
        """See how the services of a running job stand; when to look again."""
        standings = self._standings[job.id]
        try:
            for name in standings:
                if (job.id, name) not in self._forwards:
                    await self._listen(job.id, name)
            for name, seen in (await self.fleet.services(job)).items():
                if name in standings:
                    await self._learn(job, standings[name], seen)
        except (TowlineError, TimeoutError):
            # Asking waits by itself for a machine that is away.
            return 1.0
        except Exception as error:
            self._fail(job.id, error)
            return _LATER_S
        if all(standing.state in SETTLED for standing in standings.values()):
            return _LATER_S
        age_s = self.engine.clock() - (job.started or 0.0)
        return min(_LATER_S, max(_SOON_S, age_s / 30))

    async def _learn(self, job: Job, standing: Standing, seen: ServiceState) -> None:
        port = int(seen.get("port") or 0)
        if seen["state"] != "running":
            standing.port = port
            state = "failed" if seen["state"] == "failed" else "starting"
            self._stands(standing, state, str(seen.get("text") or ""))
        elif standing.state != "up" or standing.port != port:
            if standing.port != port:
                standing.port, standing.since = port, self.engine.clock()
            async with asyncio.timeout(_PROBE_S):
                up = await self.fleet.answers(job, 0, Port(service=standing.name))
            if up:
                standing.path = await self._path(job, standing)
            why = "" if up else str(seen.get("text") or self._silence(job, standing))
            self._stands(standing, "up" if up else "starting", why)

    def _silence(self, job: Job, standing: Standing) -> str:
        """What to say of a service that does not answer for long; nothing before."""
        if self.engine.clock() - standing.since < _SILENT_S:
            return ""
        [service] = (one for one in job.spec.services if one.name == standing.name)
        question = ": does its command serve on $PORT?" if service.command else ""
        return f"nothing answers on its port {standing.port} yet{question}"

    async def _path(self, job: Job, standing: Standing) -> str:
        """Some tell in their output where to look, and by which token."""
        blob, _ = await self.fleet.read_log(job, 0, _log_of(standing.name), 0, wait=False)
        return path_in(blob.decode(errors="replace"), standing.port)

    def _stands(self, standing: Standing, state: str, text: str = "") -> None:
        if (standing.state, standing.text) != (state, text):
            standing.state, standing.text = state, text
            self._tell(standing.job, standing.name, state, text)

    def _tell(self, job_id: int, name: str, state: str, why: str = "") -> None:
        """Enter into the journal how a service stands: whoever waits for news reads that."""
        engine, job = self.engine, self.engine.job(job_id)
        about = {"name": name, "standing": state, "why": why}
        note = functools.partial(engine.store.note, Kind.SERVICE, engine.clock(), [job], **about)
        engine.soon(f"how {name}, a service of job {job_id}, stands", note)

    # --- ports -------------------------------------------------------------------------------

    async def _listen(self, job_id: int, name: str) -> None:
        if not self._opens_ports:
            return

        async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            job = self.engine.job(job_id)
            await self.fleet.carry(job, 0, Port(service=name), reader, writer)

        forward = Forward(job_id, 0, carry)
        mixed = zlib.crc32(f"{self.engine.store.engine_id}-{job_id}-{name}".encode())
        tries = [_FIRST_PORT + (mixed + step) % _PORTS for step in range(_TRIES)]
        before = self._remembered.get((job_id, name))
        for port in [*([before] if before else []), *tries, 0]:
            with contextlib.suppress(OSError):
                self._standings[job_id][name].local = await forward.open(port)
                break
        self._forwards[job_id, name] = forward
        store, local = self.engine.store, forward.local
        what = f"the port of {name}, a service of job {job_id}"
        self.engine.soon(what, lambda: store.remember_service(job_id, name, local))

    # --- what people ask ---------------------------------------------------------------------

    def list(self, who: Principal, job_id: int | None = None) -> list[ServiceView]:
        """The services of one's own jobs that have not ended, or those of one job."""
        if job_id is not None:
            self._check(job_for(who, job_id, self.engine))
            chosen = [job_id]
        else:
            owners = {job: self.engine.job(job).spec.owner for job in self._standings}
            chosen = sorted(job for job, owner in owners.items() if who.owns(owner))
        return [self.view(standing) for job in chosen for standing in self._standings[job].values()]

    def _check(self, job: Job) -> None:
        if not job.spec.services:
            raise NotFound(
                f"job {job.id} has no services",
                hint="tow run --service tensorboard COMMAND starts a job with one",
            )
        if job.id not in self._standings:
            last = f"what it printed: tow log --service {job.spec.services[0].name} {job.id}"
            if not all(service.command for service in job.spec.services):
                last = f"what it wrote for TensorBoard: tow tensorboard {job.id}"
            raise NotFound(f"job {job.id} is {job.state}, so its services have ended", hint=last)

    def view(self, standing: Standing) -> ServiceView:
        job = self.engine.job(standing.job)
        state, text = standing.state, standing.text
        driver = self.fleet.machine_of(job.attempt.placement[0]) if job.attempt else None
        if state in ("starting", "up") and driver is not None and driver.error:
            state, text = "unreachable", driver.error.text
        return {
            "job": job.id,
            "name": standing.name,
            "state": state,
            "text": text,
            "machine": job.attempt.machine_of(0) if job.attempt else "",
            "local": standing.local,
            "url": standing.url,
            "path": standing.path,
        }

    async def news(self, job_id: int) -> AsyncIterator[Frame]:
        """Each service of a job once it is up, and what is wrong with those that are not."""
        told: dict[str, tuple[str, str, str]] = {}
        with self.engine.journal.subscribe(job=job_id) as news:
            while job_id in self._standings:
                for standing in list(self._standings[job_id].values()):
                    what = (standing.state, standing.text, standing.url)
                    matters = standing.state in SETTLED or standing.text
                    if matters and told.get(standing.name) != what:
                        told[standing.name] = what
                        seen = self.view(standing)
                        yield {"note": _in_words(seen), "service": seen}, b""
                await news.wait()
                news.take()

    async def log(
        self, who: Principal, job_id: int, name: str, offset: int, follow: bool
    ) -> AsyncIterator[Frame]:
        """What a service printed: so far, or up to the job's end."""
        job = job_for(who, job_id, self.engine)
        names = [service.name for service in job.spec.services]
        if name not in names:
            raise NotFound(
                f"job {job_id} has no service {name!r}",
                hint=f"it has: {', '.join(names) or 'none'}",
            )
        yield {"job": view(job)}, b""
        while True:
            try:
                blob, at_end = await read_more(
                    self.engine, self.fleet, job, 0, _log_of(name), offset, follow
                )
            except HostError:
                if not follow or self.engine.job(job_id).state.final:
                    raise
                await asyncio.sleep(1.0)
                continue
            if blob:
                header = {"stream": "out", "group": 0, "process": 0, "label": "", "offset": offset}
                yield header, blob
                offset += len(blob)
            if at_end or not (blob or follow):
                break
        yield {"end": view(self.engine.job(job_id))}, b""


def _log_of(name: str) -> str:
    return f"services/{name}.log"


def _in_words(seen: ServiceView) -> str:
    """What is said of a service to whoever follows its job."""
    if seen["state"] == "failed":
        return f"{seen['name']} does not run: {seen['text']}"
    if seen["state"] == "starting":
        return f"{seen['name']} is not up yet: {seen['text']}"
    if not seen["url"]:
        return f"{seen['name']} is up: `tow open` leads there"
    return f"{seen['name']}: {seen['url']}"
