"""The backend for machines: this one and those reached by ssh, in one or several clusters."""

import time
from collections.abc import Callable
from typing import Any

from towline.backends.base import Report
from towline.backends.machines.driver import Driver
from towline.backends.machines.insight import Insight
from towline.backends.machines.walls import box_of, inside
from towline.backends.machines.wanted import WantedProcess
from towline.backends.variables import process_variables, shared_variables
from towline.errors import AgentError, HostError, NotFound
from towline.model.events import Follow, ProcessEnded
from towline.model.job import Ending, Job, key_of
from towline.model.odd_text import original
from towline.model.request import Request
from towline.model.service import orders_of
from towline.probes.claims import claim_of
from towline.snapshot.blobs import BlobStore


class Machines(Insight):
    def __init__(
        self,
        engine_id: str,
        report: Report,
        blobs: BlobStore,
        environment: Callable[[str], dict[str, str] | None],
        probe_every_s: float,
    ) -> None:
        super().__init__(engine_id, report, blobs, probe_every_s)
        self.environment = environment
        #: Whether no job on a machine of this name is without walls.
        self.walled: Callable[[str], bool] = lambda machine: False
        #: (job, attempt) -> the processes that start together.
        self._gangs: dict[tuple[int, int], list[tuple[Driver, WantedProcess]]] = {}
        #: (job, attempt) of those that are about to become one -> whether they are to stop instead.
        self._gathering: dict[tuple[int, int], bool] = {}

    # --- starting and stopping ---------------------------------------------------------------

    def start(self, job: Job, request: Request) -> None:
        assert job.attempt is not None
        if len(job.attempt.placement) == 1:
            self._want(job, request, port=0, again=False)
            return
        gang = job.id, job.attempt.number
        if gang not in self._gathering and gang not in self._gangs:
            # At once, so that a stop that comes before anything is done finds it.
            self._gathering[gang] = False
            self._tasks.spawn(
                self._start_gang(job, request), lambda error: self._end_all(job, "refused", error)
            )

    def find_again(self, job: Job, request: Request) -> None:
        """After a restart: whatever an earlier Engine may have started of this attempt."""
        self._want(job, request, port=0, again=True)

    async def _start_gang(self, job: Job, request: Request) -> None:
        """All or none: every process is prepared and held; only then do they go, together."""
        assert job.attempt is not None
        slots = {slot.machine: slot for slot in job.attempt.placement}
        first = job.attempt.placement[0]
        gang = job.id, job.attempt.number
        try:
            for slot in slots.values():
                if (driver := self.driver_of(slot)) is None:
                    raise NotFound(f"{slot.machine} is not there any more")
                link = await driver.reach()
                if slot.machine == first.machine:
                    answer, _ = await link.ask("free_port")
        except (HostError, AgentError, NotFound) as error:
            self._void(job, f"not all machines answered: {error}")
            return
        finally:
            stopped = self._gathering.pop(gang)
        if stopped:
            self._void(job, "stopped before it started")
        else:
            self._want(job, request, port=answer["port"], again=False)

    def _void(self, job: Job, text: str) -> None:
        """Nothing of the job's present attempt was started."""
        self._end_all(job, "void", text)

    def _end_all(self, job: Job, cause: str, text: object) -> None:
        assert job.attempt is not None
        ending = Ending(cause=cause, text=str(text), ended=time.time())
        for rank in range(len(job.attempt.placement)):
            self.report(ProcessEnded(job.id, job.attempt.number, rank, ending))

    def _want(self, job: Job, request: Request, port: int, again: bool) -> None:
        assert job.attempt is not None
        attempt = job.attempt
        gang = len(attempt.placement) > 1
        orders = None if gang and again else self._orders(job, request, port)
        wants = []
        for rank, slot in enumerate(attempt.placement):
            driver = self.driver_of(slot)
            if rank in attempt.heard():
                continue
            if driver is None:
                text = f"{slot.machine} is no longer part of {job.spec.cluster}"
                lost = Ending(cause="lost", text=text)
                self.report(ProcessEnded(job.id, attempt.number, rank, lost))
                continue
            wanted = WantedProcess(
                key=key_of(self.engine_id, job.id, attempt, rank),
                job=job.id,
                attempt=attempt.number,
                rank=rank,
                order=None if orders is None else orders[rank],
                snapshots=tuple(filter(None, (job.spec.snapshot, job.spec.keep))),
                gpus=slot.gpus,
                identity=slot.identity,
                sent=again,
                started=bool(attempt.started),
                ahead=attempt.places > 0,
                stop=job.stop_asked,
                given_up=rank in attempt.endings,
            )
            wants.append((driver, wanted))
        if gang:
            self._gangs[job.id, attempt.number] = wants
        for driver, wanted in wants:
            driver.want(wanted)

    def _orders(self, job: Job, request: Request, port: int) -> list[Callable[[], dict[str, Any]]]:
        """For each rank, what to tell the agent; made late, since addresses are known only then."""
        assert job.attempt is not None
        attempt, spec = job.attempt, job.spec
        needs = [need for _, _, need in request.processes()]

        def order(rank: int) -> dict[str, Any]:
            shared = shared_variables(job, request, self._addresses(job), port)
            slot = attempt.placement[rank]
            driver = self.driver_of(slot)
            local = driver is not None and driver.host.login() is None
            box = box_of(job, slot, self.seen.get(slot.machine), self.walled(slot.machine))
            variables = process_variables(job, request, shared)[rank]
            if box is not None:
                variables = inside(variables, spec.env)
            return {
                "key": key_of(self.engine_id, job.id, attempt, rank),
                "argv": [original(word) for word in spec.argv],
                "env": {name: original(value) for name, value in variables.items()},
                "environ": self.environment(spec.environment)
                if local and spec.environment
                else None,
                "cwd": original(spec.subfolder),
                "snapshot": spec.snapshot,
                "setup": spec.setup,
                "time_s": spec.time_s,
                "grace_s": spec.grace_s,
                "hold": len(attempt.placement) > 1,
                "links": spec.links,
                "keep": spec.keep,
                "folder": original(spec.folder) if spec.in_place else "",
                "claim": claim_of(needs[rank], slot, self.seen.get(slot.machine)),
                "data": self.data_for(job, slot),
                "services": orders_of(spec.services) if rank == 0 else [],
                "series": attempt.series,
                "places": attempt.places,
                "box": box,
            }

        return [lambda rank=rank: order(rank) for rank in range(len(attempt.placement))]  # type: ignore[misc]

    def _addresses(self, job: Job) -> dict[str, str]:
        """How the processes of a job reach each other's machines."""
        assert job.attempt is not None
        slots = {slot.machine: slot for slot in job.attempt.placement}
        names, found = list(slots), {}
        for name, slot in slots.items():
            driver = self.driver_of(slot)
            link = driver.link if driver else None
            hello = link.hello if link else {}
            found[name] = hello.get("address") or (hello.get("hostname") if len(names) > 1 else "")
        return {name: address or "127.0.0.1" for name, address in found.items()}

    def _held(self, wanted: WantedProcess) -> None:
        """Let a gang go once all are held; or once one runs, which only happens after all were."""
        gang = self._gangs.get((wanted.job, wanted.attempt), [])
        if any(w.started for _, w in gang) or all(w.held for _, w in gang):
            for driver, sister in gang:
                if sister.held and not sister.started:
                    driver.go([sister.key])

    def stop(self, job: Job, now: bool = False) -> None:
        assert job.attempt is not None
        gang = job.id, job.attempt.number
        if gang in self._gathering:
            self._gathering[gang] = True
        never_went = any(ending.cause == "void" for ending in job.attempt.endings.values())
        for rank, slot in enumerate(job.attempt.placement):
            driver = self.driver_of(slot)
            if driver is None or rank in job.attempt.heard():
                continue
            key = key_of(self.engine_id, job.id, job.attempt, rank)
            wanted = driver.wanted.get(key)
            if never_went and driver.link is None and wanted is not None and not wanted.started:
                # A sister voided itself, so the common start never came: nothing runs there.
                driver.settle(key, Ending(cause="void", text="its sisters did not start"))
            else:
                driver.stop(key, now)

    def follow(self, job: Job, follows: tuple[Follow, ...] | None) -> None:
        """Nothing is sent to a machine before what it is to run after has ended."""

    def recall(self, job: Job) -> None:
        assert job.attempt is not None
        if driver := self.driver_of(job.attempt.placement[0]):
            driver.recall(key_of(self.engine_id, job.id, job.attempt, 0))

    def conclude(self, job: Job) -> None:
        assert job.attempt is not None
        self._gangs.pop((job.id, job.attempt.number), None)
        unheard = job.attempt.unheard()
        for rank, slot in enumerate(job.attempt.placement):
            if driver := self.driver_of(slot):
                key = key_of(self.engine_id, job.id, job.attempt, rank)
                driver.give_up(key) if rank in unheard else driver.let_go(key)
