"""The backend for machines: this one and those reached by ssh, in one or several clusters."""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from towline.backends.base import Report
from towline.backends.driver import Driver
from towline.backends.insight import Insight
from towline.backends.membership import Membership
from towline.backends.silence import TICK_S, AwakeClock
from towline.backends.tasks import Tasks
from towline.backends.variables import process_variables, shared_variables
from towline.backends.wanted import Wanted
from towline.errors import AgentError, HostError, NoNetwork
from towline.model.events import MachineRemoved, MachineSeen, ProcessEnded
from towline.model.job import Ending, Job, key_of
from towline.model.machine import Machine
from towline.model.odd_text import original
from towline.model.request import Request
from towline.model.service import orders_of
from towline.probes.claims import claim_of
from towline.probes.machine import closed_at, observe
from towline.snapshot.blobs import BlobStore


def minute_of_week(local: time.struct_time) -> int:
    return (local.tm_wday * 24 + local.tm_hour) * 60 + local.tm_min


class Machines(Insight):
    queues_itself = False

    def __init__(
        self,
        engine_id: str,
        report: Report,
        blobs: BlobStore,
        environment: Callable[[str], dict[str, str] | None],
        probe_every_s: float,
    ) -> None:
        self.engine_id = engine_id
        self.report = report
        self.blobs = blobs
        self.environment = environment
        self.probe_every_s = probe_every_s
        self.members: dict[str, Membership] = {}
        self.drivers: dict[str, Driver] = {}
        #: The last observation of each machine.
        self.seen: dict[str, Machine] = {}
        self._raw: dict[str, dict[str, Any]] = {}
        #: (job, attempt) -> the processes that start together.
        self._gangs: dict[tuple[int, int], list[tuple[Driver, Wanted]]] = {}
        #: (job, attempt) of those that are about to become one -> whether they are to stop instead.
        self._gathering: dict[tuple[int, int], bool] = {}
        self._tasks = Tasks("machines")
        self._awake = AwakeClock(time.monotonic())
        self._looks_at_clock = False
        #: Makes a machine known again that an earlier Engine used.
        self.find_machine: Callable[[str], None] = lambda machine: None

    # --- which machines ----------------------------------------------------------------------

    def join(self, cluster: str, members: Iterable[Membership]) -> None:
        """Make `members` the machines of a cluster; connections that exist are kept."""
        names = set()
        for member in members:
            name = member.host.name
            names.add(name)
            known = self.members.setdefault(name, member)
            known.limits, known.owners, known.aliases = member.limits, member.owners, member.aliases
            known.clusters.add(cluster)
            self.watch(known)
            self._announce(name)
        for name in [
            n for n, m in self.members.items() if cluster in m.clusters and n not in names
        ]:
            self._leave(cluster, name)

    def watch(self, member: Membership) -> None:
        """Drive a machine, in a cluster or not."""
        name = member.host.name
        self.members.setdefault(name, member)
        if name not in self.drivers:
            self.drivers[name] = Driver(
                member.host,
                member.root,
                self.blobs,
                self.report,
                self._held,
                self._probed,
                self.probe_every_s,
                member.lost_after_s,
                self._listens,
            )
        self.drivers[name].channel.open()
        if not self._looks_at_clock:
            self._looks_at_clock = True
            self._tasks.spawn(self._stay_awake(), lambda error: None)

    async def _stay_awake(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._awake.tick(time.monotonic())

    def _listens(self, driver: Driver, error: HostError) -> tuple[float, bool]:
        """How long we have been awake, and whether an error can be the machine's own silence.

        Where we have no network of our own, only others that answer say that we do.
        """
        others = (
            other
            for other in self.drivers.values()
            if other is not driver and other.host.login() is not None
        )
        heard = any(other.link is not None for other in others)
        return self._awake.tick(time.monotonic()), heard or not isinstance(error, NoNetwork)

    def leave(self, cluster: str) -> None:
        for name in [n for n, member in self.members.items() if cluster in member.clusters]:
            self._leave(cluster, name)

    def _leave(self, cluster: str, name: str) -> None:
        self.members[name].clusters.discard(cluster)
        if not self.forget(name):
            self._announce(name)

    def forget(self, name: str) -> bool:
        """Let go of a machine, unless a cluster or a job needs it."""
        if name not in self.drivers or self.members[name].clusters or self.drivers[name].wanted:
            return False
        driver = self.drivers.pop(name)
        del self.members[name]
        self.seen.pop(name, None)
        self.report(MachineRemoved(name))
        self._tasks.spawn(driver.close(), lambda error: None)
        return True

    async def close(self) -> None:
        await asyncio.gather(*(driver.close() for driver in self.drivers.values()))
        self._tasks.close()

    def _probed(self, driver: Driver, raw: dict[str, Any]) -> None:
        self._raw[driver.name], previous = raw, self._raw.get(driver.name)
        member = self.members.get(driver.name)
        if member is None or driver.link is None:
            return
        minute = minute_of_week(time.localtime())
        held = [index for wanted in driver.wanted.values() for index in wanted.gpus]
        seen = observe(
            raw,
            previous,
            driver.link.hello,
            limits=member.limits,
            name=driver.name,
            clusters=tuple(sorted(member.clusters)),
            owners=member.owners,
            aliases=member.aliases,
            before=self.seen.get(driver.name),
            ours=dict.fromkeys(held, True),
            engine=self.engine_id,
            own={key for key, wanted in driver.wanted.items() if not wanted.settled},
            minute=minute,
        )
        if driver.host.login() is None:
            # Whoever sits at this machine knows what it is busy with and wants the job now.
            closed = closed_at(member.limits, minute)
            seen = replace(seen, foreign_cpus=0.0, claimed_cpus=0.0, claimed_by="", closed=closed)
        self.seen[driver.name] = seen
        self.report(MachineSeen(seen))

    def _announce(self, name: str) -> None:
        """Its clusters changed: tell the core, from the last observation."""
        if name in self.seen and self.drivers[name].link is not None:
            self._probed(self.drivers[name], self._raw[name])

    # --- starting and stopping ---------------------------------------------------------------

    def start(self, job: Job, request: Request) -> None:
        assert job.attempt is not None
        if len(job.attempt.placement) == 1:
            self._want(job, request, port=0, again=False)
        else:
            self._tasks.spawn(
                self._start_gang(job, request), lambda error: self._end_all(job, "refused", error)
            )

    def find_again(self, job: Job, request: Request) -> None:
        """After a restart: whatever an earlier Engine may have started of this attempt."""
        self._want(job, request, port=0, again=True)

    async def _start_gang(self, job: Job, request: Request) -> None:
        """All or none: every process is prepared and held; only then do they go, together."""
        assert job.attempt is not None
        first = job.attempt.placement[0].machine
        gang = job.id, job.attempt.number
        self._gathering[gang] = False
        try:
            for name in dict.fromkeys(slot.machine for slot in job.attempt.placement):
                link = await self.drivers[name].reach()
                if name == first:
                    answer, _ = await link.ask("free_port")
        except (HostError, AgentError, KeyError) as error:
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
            driver = self.drivers.get(slot.machine)
            if rank in attempt.heard():
                continue
            if driver is None:
                text = f"{slot.machine} is no longer part of {job.spec.cluster}"
                lost = Ending(cause="lost", text=text)
                self.report(ProcessEnded(job.id, attempt.number, rank, lost))
                continue
            wanted = Wanted(
                key=key_of(self.engine_id, job.id, attempt, rank),
                job=job.id,
                attempt=attempt.number,
                rank=rank,
                order=None if orders is None else orders[rank],
                snapshots=tuple(filter(None, (job.spec.snapshot, job.spec.keep))),
                gpus=slot.gpus,
                sent=again,
                started=bool(attempt.started),
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
            local = self.members[slot.machine].host.login() is None
            return {
                "key": key_of(self.engine_id, job.id, attempt, rank),
                "argv": [original(word) for word in spec.argv],
                "env": {
                    name: original(value)
                    for name, value in process_variables(job, request, shared)[rank].items()
                },
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
                "services": orders_of(spec.services) if rank == 0 else [],
            }

        return [lambda rank=rank: order(rank) for rank in range(len(attempt.placement))]  # type: ignore[misc]

    def _addresses(self, job: Job) -> dict[str, str]:
        """How the processes of a job reach each other's machines."""
        assert job.attempt is not None
        names = list(dict.fromkeys(slot.machine for slot in job.attempt.placement))
        found = {}
        for name in names:
            link = self.drivers[name].link
            hello = link.hello if link else {}
            found[name] = hello.get("address") or (hello.get("hostname") if len(names) > 1 else "")
        return {name: address or "127.0.0.1" for name, address in found.items()}

    def _held(self, wanted: Wanted) -> None:
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
            driver = self.drivers.get(slot.machine)
            if driver is None or rank in job.attempt.heard():
                continue
            key = key_of(self.engine_id, job.id, job.attempt, rank)
            wanted = driver.wanted.get(key)
            if never_went and driver.link is None and wanted is not None and not wanted.started:
                # A sister voided itself, so the common start never came: nothing runs there.
                driver.settle(key, Ending(cause="void", text="its sisters did not start"))
            else:
                driver.stop(key, now)

    def conclude(self, job: Job) -> None:
        assert job.attempt is not None
        self._gangs.pop((job.id, job.attempt.number), None)
        unheard = job.attempt.unheard()
        for rank, slot in enumerate(job.attempt.placement):
            if driver := self.drivers.get(slot.machine):
                key = key_of(self.engine_id, job.id, job.attempt, rank)
                driver.give_up(key) if rank in unheard else driver.let_go(key)
