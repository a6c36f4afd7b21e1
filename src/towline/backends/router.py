"""Every kind of cluster behind one door: a job goes to the backend that runs it."""

from collections.abc import AsyncIterator
from typing import Any

from towline.backends.base import Backend
from towline.backends.machines import Machines
from towline.model.job import Job
from towline.model.request import Request


class Backends:
    """`others` by kind of cluster; what has no queue of its own runs on machines."""

    queues_itself = False

    def __init__(self, machines: Machines, others: dict[str, Backend]) -> None:
        self.machines = machines
        self.others = others

    def of(self, job: Job) -> Backend:
        return self.machines if job.spec.queue is None else self.others[job.spec.queue.kind]

    def start(self, job: Job, request: Request) -> None:
        self.of(job).start(job, request)

    def find_again(self, job: Job, request: Request) -> None:
        self.of(job).find_again(job, request)

    def stop(self, job: Job, now: bool = False) -> None:
        self.of(job).stop(job, now)

    def recall(self, job: Job) -> None:
        self.of(job).recall(job)

    def conclude(self, job: Job) -> None:
        self.of(job).conclude(job)

    def sending(self, job: Job) -> tuple[int, int] | None:
        return self.of(job).sending(job)

    async def read_log(
        self, job: Job, rank: int, stream: str, offset: int, wait: bool
    ) -> tuple[bytes, bool]:
        return await self.of(job).read_log(job, rank, stream, offset, wait)

    def printed(self, job: Job, rank: int, stream: str, offset: int) -> AsyncIterator[bytes]:
        return self.of(job).printed(job, rank, stream, offset)

    async def file_operation(
        self, job: Job, rank: int, op: str, blob: bytes = b"", **fields: Any
    ) -> tuple[dict[str, Any], bytes]:
        return await self.of(job).file_operation(job, rank, op, blob, **fields)

    async def execute(self, job: Job, rank: int, argv: list[str]) -> AsyncIterator[dict[str, Any]]:
        async for item in self.of(job).execute(job, rank, argv):
            yield item
