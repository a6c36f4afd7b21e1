"""Looking into jobs on machines: what they printed, their files, commands and ports beside them."""

from collections.abc import AsyncIterator
from typing import Any

from towline.agent.link import Link
from towline.backends.beside import run_beside
from towline.backends.roster import Roster
from towline.backends.transfer.job_files import JobFiles
from towline.backends.transfer.patience import Patience
from towline.errors import HostError, NotFound
from towline.model.job import Job, key_of

_READ = 256 * 1024


class Insight(Roster):
    """The part of a backend that only reads."""

    async def _where(self, job: Job, rank: int) -> tuple[Link, str]:
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
        return await driver.reach(), key_of(self.engine_id, job.id, job.attempt, rank)

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

    async def read_log(
        self, job: Job, rank: int, stream: str, offset: int, wait: bool
    ) -> tuple[bytes, bool]:
        link, key = await self._where(job, rank)
        header, blob = await link.ask(
            "read", key=key, stream=stream, offset=offset, limit=_READ, wait=wait
        )
        return blob, header["eof"]

    def printed(self, job: Job, rank: int, stream: str, offset: int) -> AsyncIterator[bytes]:
        """All that a process printed until now, from `offset` on."""
        return self.files(job, rank).output(stream, offset)

    async def log_size(self, job: Job, rank: int, stream: str) -> int:
        link, key = await self._where(job, rank)
        header, _ = await link.ask("read", key=key, stream=stream, offset=0, limit=0, wait=False)
        size: int = header["size"]
        return size

    async def file_operation(
        self, job: Job, rank: int, op: str, blob: bytes = b"", **fields: Any
    ) -> tuple[dict[str, Any], bytes]:
        """Only such as may be done twice: a broken connection means that they are asked again."""
        patience = Patience()
        while True:
            link, key = await self._where(job, rank)
            try:
                return await link.ask(op, blob, key=key, **fields)
            except HostError as error:
                patience.lose(error)

    def files(self, job: Job, rank: int, kept: bool = False) -> JobFiles:
        """Those of one process; `kept`: what it keeps for the next job."""
        return JobFiles(lambda: self._where(job, rank), kept)

    async def execute(self, job: Job, rank: int, argv: list[str]) -> AsyncIterator[dict[str, Any]]:
        link, key = await self._where(job, rank)
        async for item in run_beside(link, key, argv):
            yield item

    async def tunnel(self, job: Job, rank: int) -> Link:
        link, _ = await self._where(job, rank)
        return link
