"""Looking into jobs on machines: what they printed, their files, commands and ports beside them."""

import asyncio
from collections.abc import AsyncIterator, Mapping

from towline.agent.link import Link
from towline.backends.machines.exec_in_job import Said, run_in_job
from towline.backends.machines.roster import Roster
from towline.backends.terms import Port, ServiceState
from towline.backends.transfer.job_files import JobFiles
from towline.backends.transfer.patience import ask_patiently
from towline.errors import NotFound
from towline.forward.tunnels import ForwardTunnel, Where, answers
from towline.model.job import Job, key_of

_READ = 256 * 1024


class Insight(Roster):
    """The part of a backend that only reads."""

    async def where(self, job: Job, rank: int, waits: bool = True) -> tuple[Link, str]:
        """The connection to a process of a job, and its key; `waits`: for one that is away."""
        if job.attempt is None:
            raise NotFound(f"job {job.id} has not started yet", hint=f"tow why {job.id}")
        if rank >= len(job.attempt.placement):
            count = len(job.attempt.placement)
            raise NotFound(
                f"job {job.id} has {count} process{'es' if count > 1 else ''}, no number {rank}"
            )
        slot = job.attempt.placement[rank]
        if self.driver_of(slot) is None:
            # An earlier Engine used it, and this one has had no need to yet.
            self.find_machine(slot)
        driver = self.driver_of(slot)
        if driver is None:
            raise NotFound(
                f"{slot.machine}, where job {job.id} ran, is not part of any cluster any more"
            )
        link = await driver.reach() if waits else driver.channel.present()
        return link, key_of(self.engine_id, job.id, job.attempt, rank)

    async def reach(self, job: Job) -> None:
        """Until all machines of a job answer; an error if one does not for a while."""
        for rank in range(len(job.attempt.placement) if job.attempt else 0):
            await self.where(job, rank)

    @property
    def present(self) -> "Present":
        """The same for whoever does not wait for a machine that is away."""
        return Present(self)

    def sending(self, job: Job) -> tuple[int, int] | None:
        """How much of what the job needs is over there, and of how much, in bytes."""
        slots = {slot.machine: slot for slot in job.attempt.placement} if job.attempt else {}
        found = [
            sending
            for slot in slots.values()
            if (driver := self.driver_of(slot)) is not None
            for snapshot, sending in driver.sending.items()
            if snapshot in (job.spec.snapshot, job.spec.keep) and sending.total
        ]
        return (sum(s.sent for s in found), sum(s.total for s in found)) if found else None

    def on_their_way(self, snapshots: tuple[str, ...]) -> tuple[int, int] | None:
        """The same of snapshots, to whichever machines they go."""
        found = [
            sending
            for driver in self.drivers.values()
            for snapshot, sending in driver.sending.items()
            if snapshot in snapshots and sending.total
        ]
        return (sum(s.sent for s in found), sum(s.total for s in found)) if found else None

    async def read_log(
        self, job: Job, rank: int, stream: str, offset: int, wait: bool
    ) -> tuple[bytes, bool]:
        link, key = await self.where(job, rank)
        header, blob = await link.ask(
            "read", key=key, stream=stream, offset=offset, limit=_READ, wait=wait
        )
        return blob, header["eof"]

    def printed(self, job: Job, rank: int, stream: str, offset: int) -> AsyncIterator[bytes]:
        """All that a process printed until now, from `offset` on."""
        return self.files(job, rank).output(stream, offset)

    async def log_size(self, job: Job, rank: int, stream: str) -> int:
        link, key = await self.where(job, rank)
        header, _ = await link.ask("read", key=key, stream=stream, offset=0, limit=0, wait=False)
        size: int = header["size"]
        return size

    def files(self, job: Job, rank: int, kept: bool = False) -> JobFiles:
        """Those of one process; `kept`: what it keeps for the next job."""
        return JobFiles(lambda: self.where(job, rank), kept)

    async def execute(self, job: Job, rank: int, argv: list[str]) -> AsyncIterator[Said]:
        link, key = await self.where(job, rank)
        async for item in run_in_job(link, key, argv):
            yield item

    async def services(self, job: Job) -> Mapping[str, ServiceState]:
        """How the services beside a running job stand."""
        header = await ask_patiently(lambda: self.where(job, 0), "services")
        found: dict[str, ServiceState] = header["services"]
        return found

    async def link_to(self, job: Job, rank: int) -> Link:
        link, _ = await self.where(job, rank)
        return link

    async def answers(self, job: Job, rank: int, port: Port) -> bool:
        """Whether something takes connections there."""
        link, key = await self.where(job, rank)
        return await answers(link, _address(key, port))

    async def carry(
        self,
        job: Job,
        rank: int,
        port: Port,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Join a connection that was made here to one over there, until it is over."""
        link, key = await self.where(job, rank)
        await ForwardTunnel(link, reader, writer).run(_address(key, port))


def _address(key: str, port: Port) -> Where:
    """What the agent is to dial."""
    to: Where = {"service": port.service} if port.service else {"port": port.number}
    return {"key": key} | to


class Present:
    """Files of jobs on machines that answer: one that does not is an error at once."""

    def __init__(self, machines: Insight) -> None:
        self._machines = machines
        self.blobs = machines.blobs

    def files(self, job: Job, rank: int) -> JobFiles:
        return JobFiles(lambda: self._machines.where(job, rank, waits=False))
