"""Every kind of cluster behind one door: a job goes to the backend that runs it."""

import asyncio
from collections.abc import AsyncIterator, Mapping

from towline.backends.base import HearReadings, HearUse
from towline.backends.machines.backend import Machines
from towline.backends.machines.driver import Driver
from towline.backends.machines.exec_in_job import Said
from towline.backends.machines.insight import Present
from towline.backends.queue.backend import AskedQueue, QueueBackend
from towline.backends.staging.eager import EagerUpload
from towline.backends.terms import Port, QueueStanding, ServiceState
from towline.backends.transfer.job_files import JobFiles
from towline.model.events import Follow
from towline.model.job import Job, Queueing
from towline.model.machine import Machine, Slot
from towline.model.request import Request
from towline.snapshot.blobs import BlobStore
from towline.snapshot.collecting import Offer


class Backends:
    """`queues` by kind of cluster; what has no queue of its own runs on machines.

    What a queue's jobs printed and made is seen from its access node, which is one of the machines.
    """

    def __init__(self, on_machines: Machines, queues: dict[str, QueueBackend]) -> None:
        self.on_machines = on_machines
        self.queues = queues

    def of(self, job: Job) -> Machines | QueueBackend:
        return self.on_machines if job.spec.queue is None else self.queues[job.spec.queue.kind]

    async def close(self) -> None:
        for queue in self.queues.values():
            queue.close()
        await self.on_machines.close()

    # --- running jobs ------------------------------------------------------------------------

    async def clear_error(self, job: Job) -> bool:
        """Have a job start after all that its cluster's own queue set aside."""
        return job.spec.queue is not None and await self.queues[job.spec.queue.kind].clear_error(
            job
        )

    def start(self, job: Job, request: Request) -> None:
        self.of(job).start(job, request)

    def find_again(self, job: Job, request: Request) -> None:
        self.of(job).find_again(job, request)

    def stop(self, job: Job, now: bool = False) -> None:
        self.of(job).stop(job, now)

    def recall(self, job: Job) -> None:
        self.of(job).recall(job)

    def follow(self, job: Job, follows: tuple[Follow, ...] | None) -> None:
        self.of(job).follow(job, follows)

    def conclude(self, job: Job) -> None:
        self.of(job).conclude(job)

    # --- looking into them -------------------------------------------------------------------

    def sending(self, job: Job) -> tuple[int, int] | None:
        return self.on_machines.sending(job)

    async def read_log(
        self, job: Job, rank: int, stream: str, offset: int, wait: bool
    ) -> tuple[bytes, bool]:
        return await self.on_machines.read_log(job, rank, stream, offset, wait)

    async def log_size(self, job: Job, rank: int, stream: str) -> int:
        return await self.on_machines.log_size(job, rank, stream)

    def printed(self, job: Job, rank: int, stream: str, offset: int) -> AsyncIterator[bytes]:
        return self.on_machines.printed(job, rank, stream, offset)

    def files(self, job: Job, rank: int, kept: bool = False) -> JobFiles:
        return self.on_machines.files(job, rank, kept)

    def execute(self, job: Job, rank: int, argv: list[str]) -> AsyncIterator[Said]:
        return self.of(job).execute(job, rank, argv)

    async def services(self, job: Job) -> Mapping[str, ServiceState]:
        return await self.on_machines.services(job)

    async def answers(self, job: Job, rank: int, port: Port) -> bool:
        return await self.on_machines.answers(job, rank, port)

    async def carry(
        self,
        job: Job,
        rank: int,
        port: Port,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        await self.on_machines.carry(job, rank, port, reader, writer)

    # --- machines ----------------------------------------------------------------------------

    @property
    def blobs(self) -> BlobStore:
        return self.on_machines.blobs

    def on_their_way(self, snapshots: tuple[str, ...]) -> tuple[int, int] | None:
        return self.on_machines.on_their_way(snapshots)

    async def reach(self, job: Job) -> None:
        await self.on_machines.reach(job)

    @property
    def present(self) -> Present:
        return self.on_machines.present

    @property
    def machines(self) -> Mapping[str, Driver]:
        return self.on_machines.drivers

    def machine_of(self, slot: Slot) -> Driver | None:
        return self.on_machines.driver_of(slot)

    def find_machine(self, slot: Slot) -> None:
        self.on_machines.find_machine(slot)

    def seen(self, name: str) -> Machine | None:
        return self.on_machines.seen.get(name)

    def is_seen(self, name: str) -> bool:
        return self.counts_as(name) in self.on_machines.seen

    def counts_as(self, name: str) -> str:
        return self.on_machines.twins.get(name, name)

    def other_names(self, name: str) -> list[str]:
        return self.on_machines.other_names(name)

    def clusters_of(self, name: str) -> tuple[str, ...]:
        return self.on_machines.clusters_of(name)

    def machines_in(self, cluster: str) -> list[Driver]:
        return self.on_machines.machines_in(cluster)

    def offer_ahead(self, cluster: str) -> Offer | None:
        machines = self.machines_in(cluster)
        link = machines[0].link if len(machines) == 1 else None
        return None if link is None else EagerUpload(link).offer

    def hear_use(self, hear: HearUse, hear_readings: HearReadings) -> None:
        self.on_machines.on_use = hear
        for queue in self.queues.values():
            queue.hear_readings = hear_readings

    # --- queues ------------------------------------------------------------------------------

    def backend_at(self, cluster: str) -> QueueBackend | None:
        """The backend of a cluster that has a queue of its own and was joined."""
        return next((queue for queue in self.queues.values() if cluster in queue.queues), None)

    def queue_at(self, cluster: str) -> AskedQueue | None:
        backend = self.backend_at(cluster)
        return None if backend is None else backend.queue_at(cluster)

    async def check_possible(self, cluster: str, wish: Queueing) -> str:
        return await self.queues[wish.kind].check_possible(cluster, wish)

    def standing(self, job: Job) -> QueueStanding:
        return {} if job.spec.queue is None else self.queues[job.spec.queue.kind].standing(job)
