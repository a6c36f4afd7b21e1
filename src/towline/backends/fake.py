"""A backend in memory: processes start when told and end when the test says. For tests and docs."""

from collections.abc import AsyncIterator
from typing import Any

from towline.backends.base import Report
from towline.model.events import ProcessEnded, ProcessStarted
from towline.model.job import Ending, Job
from towline.model.request import Request

Process = tuple[int, int, int]


class FakeBackend:
    """Remembers every order; `running` maps (job, attempt, rank) to the machine."""

    queues_itself = False

    def __init__(self, report: Report) -> None:
        self.report = report
        self.orders: list[tuple[str, int]] = []
        self.running: dict[Process, str] = {}
        #: How often each process was really started: must never exceed one.
        self.starts: dict[Process, int] = {}
        self.output: dict[Process, bytes] = {}
        #: Without it, what is stopped goes on until the test ends it.
        self.heeds_stops = True

    def start(self, job: Job, request: Request) -> None:
        self.orders.append(("start", job.id))
        for process, machine in self._processes(job):
            if process not in self.starts:
                self.starts[process] = 1
                self.running[process] = machine
                self.report(ProcessStarted(*process, at=0.0))

    def find_again(self, job: Job, request: Request) -> None:
        self.orders.append(("find", job.id))
        for process, _ in self._processes(job):
            if process in self.running:
                self.report(ProcessStarted(*process, at=0.0))
            elif process in self.starts:
                self.report(ProcessEnded(*process, ending=Ending(code=0)))
            else:
                self.report(ProcessEnded(*process, ending=Ending(cause="void")))

    def stop(self, job: Job, now: bool = False) -> None:
        self.orders.append(("stop", job.id))
        for process, _ in self._processes(job):
            if process in self.running and self.heeds_stops:
                self.end(*process, ending=Ending(signal=15, cause="stopped"))

    def recall(self, job: Job) -> None:
        self.orders.append(("recall", job.id))

    def conclude(self, job: Job) -> None:
        self.orders.append(("conclude", job.id))

    def end(self, job: int, attempt: int, rank: int, ending: Ending) -> None:
        """The test decides that a process ends."""
        del self.running[job, attempt, rank]
        self.report(ProcessEnded(job, attempt, rank, ending))

    def sending(self, job: Job) -> tuple[int, int] | None:
        return None

    async def read_log(
        self, job: Job, rank: int, stream: str, offset: int, wait: bool
    ) -> tuple[bytes, bool]:
        assert job.attempt is not None
        process = (job.id, job.attempt.number, rank)
        text = self.output.get(process, b"") if stream == "out" else b""
        return text[offset:], process not in self.running

    async def printed(self, job: Job, rank: int, stream: str, offset: int) -> AsyncIterator[bytes]:
        yield (await self.read_log(job, rank, stream, offset, wait=False))[0]

    async def file_operation(
        self, job: Job, rank: int, op: str, blob: bytes = b"", **fields: Any
    ) -> tuple[dict[str, Any], bytes]:
        return {"entries": []}, b""

    async def execute(self, job: Job, rank: int, argv: list[str]) -> AsyncIterator[dict[str, Any]]:
        yield {"ending": {"code": 0}}

    def _processes(self, job: Job) -> list[tuple[Process, str]]:
        assert job.attempt is not None
        number = job.attempt.number
        placement = enumerate(job.attempt.placement)
        return [((job.id, number, rank), slot.machine) for rank, slot in placement]
