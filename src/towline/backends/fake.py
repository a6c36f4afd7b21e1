"""A backend in memory: processes start when told and end when the test says. For tests and docs.

What runs, was printed and was made is in `FakeMachines`, which outlives the backend as machines
outlive an Engine. Beyond that it keeps the same promises as every other: see
`tests/backends/contract.py`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from towline.backends.base import Report
from towline.backends.terms import (
    Collected,
    FileEntry,
    FileList,
    FilePage,
    FoundFile,
    Part,
    Port,
    Printed,
    ServiceState,
    UploadPiece,
    WantedFile,
)
from towline.errors import AgentError, NotFound
from towline.model.events import Follow, ProcessEnded, ProcessStarted
from towline.model.job import Ending, Job
from towline.model.request import Request

#: Job, attempt, rank.
Process = tuple[int, int, int]
#: What a command printed on each stream, and how it ended.
Ran = tuple[dict[str, bytes], Ending]


class FakeMachines:
    """Where the processes are: `running` maps (job, attempt, rank) to the machine."""

    def __init__(self) -> None:
        self.running: dict[Process, str] = {}
        #: How often each process was really started: must never exceed one.
        self.starts: dict[Process, int] = {}
        self.endings: dict[Process, Ending] = {}
        #: What was printed: (process, stream).
        self.output: dict[tuple[Process, str], bytes] = {}
        #: What was made, by path.
        self.files: dict[Process, dict[str, bytes]] = {}
        #: What listens beside the processes: port -> what it says to whoever connects.
        self.ports: dict[int, bytes] = {}
        #: Set whenever something of this changed.
        self.news = asyncio.Event()

    def change(self) -> None:
        self.news.set()
        self.news = asyncio.Event()


class FakeBackend:
    """Remembers every order. `begun` hears of each process that starts, `runs` of each command
    that is run beside one, and says what comes of it."""

    def __init__(
        self,
        report: Report,
        there: FakeMachines | None = None,
        begun: Callable[[Job, Process], None] = lambda job, process: None,
        runs: Callable[[list[str]], Ran] = lambda argv: ({}, Ending(code=0)),
    ) -> None:
        self.report = report
        self.there = there or FakeMachines()
        self.begun = begun
        self.runs = runs
        self.orders: list[tuple[str, int]] = []
        #: Without it, what is stopped goes on until the test ends it.
        self.heeds_stops = True
        self._watched: set[Process] = set()

    @property
    def running(self) -> dict[Process, str]:
        return self.there.running

    @property
    def starts(self) -> dict[Process, int]:
        return self.there.starts

    # --- orders ------------------------------------------------------------------------------

    def start(self, job: Job, request: Request) -> None:
        self.orders.append(("start", job.id))
        for process, machine in _processes(job):
            if process not in self._watched:
                self._watched.add(process)
                self._begin(job, process, machine)

    def _begin(self, job: Job, process: Process, machine: str) -> None:
        if process not in self.there.starts and process not in self.there.endings:
            self.there.starts[process] = 1
            self.there.running[process] = machine
            self.report(ProcessStarted(*process, at=0.0))
            self.begun(job, process)

    def find_again(self, job: Job, request: Request) -> None:
        self.orders.append(("find", job.id))
        for process, _ in _processes(job):
            self._watched.add(process)
            if process in self.there.running:
                self.report(ProcessStarted(*process, at=0.0))
            elif process in self.there.starts:
                self.report(ProcessEnded(*process, self.there.endings.get(process, Ending(code=0))))
            else:
                self._void(process)

    def stop(self, job: Job, now: bool = False) -> None:
        self.orders.append(("stop", job.id))
        for process, _ in _processes(job):
            if process in self.there.running and self.heeds_stops:
                self.end(*process, ending=Ending(signal=15, cause="stopped"))
            elif process in self._watched and process not in self.there.starts:
                self._void(process)

    def _void(self, process: Process) -> None:
        """It never began, and never will."""
        if process not in self.there.endings:
            self.there.endings[process] = Ending(cause="void")
        self.report(ProcessEnded(*process, self.there.endings[process]))

    def follow(self, job: Job, follows: tuple[Follow, ...] | None) -> None:
        self.orders.append(("follow", job.id))

    def recall(self, job: Job) -> None:
        self.orders.append(("recall", job.id))

    def conclude(self, job: Job) -> None:
        self.orders.append(("conclude", job.id))
        self._watched -= {process for process, _ in _processes(job)}

    # --- what the test decides ---------------------------------------------------------------

    def end(self, job: int, attempt: int, rank: int, ending: Ending) -> None:
        """A process ends."""
        process = job, attempt, rank
        del self.there.running[process]
        self.there.endings[process] = ending
        self.there.change()
        if process in self._watched:
            self.report(ProcessEnded(job, attempt, rank, ending))

    def print(self, process: Process, text: bytes, stream: str = "out") -> None:
        before = self.there.output.get((process, stream), b"")
        self.there.output[process, stream] = before + text
        self.there.change()

    # --- looking into jobs -------------------------------------------------------------------

    def sending(self, job: Job) -> tuple[int, int] | None:
        return None

    async def read_log(
        self, job: Job, rank: int, stream: str, offset: int, wait: bool
    ) -> tuple[bytes, bool]:
        process = self._process(job, rank)
        while True:
            news = self.there.news
            text = self.there.output.get((process, stream), b"")[offset:]
            if text or not wait or process not in self.there.running:
                return text, process not in self.there.running
            await news.wait()

    async def log_size(self, job: Job, rank: int, stream: str) -> int:
        return len(self.there.output.get((self._process(job, rank), stream), b""))

    async def printed(self, job: Job, rank: int, stream: str, offset: int) -> AsyncIterator[bytes]:
        yield (await self.read_log(job, rank, stream, offset, wait=False))[0]

    def files(self, job: Job, rank: int, kept: bool = False) -> "FakeFiles":
        return FakeFiles(self, job, rank)

    async def execute(
        self, job: Job, rank: int, argv: list[str]
    ) -> AsyncIterator[Printed | Ending]:
        self._process(job, rank)
        output, ending = self.runs(argv)
        for stream, text in output.items():
            yield Printed(stream, 0, text)
        yield ending

    async def services(self, job: Job) -> Mapping[str, ServiceState]:
        return {}

    async def answers(self, job: Job, rank: int, port: Port) -> bool:
        return port.number in self.there.ports

    async def carry(
        self,
        job: Job,
        rank: int,
        port: Port,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        if port.number in self.there.ports:
            writer.write(self.there.ports[port.number])
        writer.close()

    def _process(self, job: Job, rank: int) -> Process:
        if job.attempt is None or rank >= len(job.attempt.placement):
            raise NotFound(f"job {job.id} has no process {rank}")
        return job.id, job.attempt.number, rank


class FakeFiles:
    """The files of one process."""

    def __init__(self, backend: FakeBackend, job: Job, rank: int) -> None:
        self._backend, self._job, self._rank = backend, job, rank
        self._files = backend.there.files.setdefault(backend._process(job, rank), {})

    async def entries(self, path: str) -> FilePage:
        above = f"{path}/" if path else ""
        names = {name.removeprefix(above).split("/")[0] for name in self._files}
        return FilePage([self._entry(above + name) for name in sorted(names)])

    async def stat(self, path: str) -> FileEntry:
        return self._entry(path)

    async def collected(self) -> Collected:
        return Collected()

    async def walk(self, path: str) -> FilePage:
        above = f"{path}/" if path else ""
        return FilePage([self._entry(name) for name in self._files if name.startswith(above)])

    async def listed(self, of: FileList, path: str = "") -> AsyncIterator[list[FileEntry]]:
        yield (await self.walk(path)).files

    async def gathered(self, of: FileList, path: str = "") -> AsyncIterator[list[FoundFile]]:
        async for page in self.listed(of, path):
            yield [FoundFile(entry, self._content(entry["name"])) for entry in page]

    async def read(
        self, path: str, offset: int = 0, end: int | None = None
    ) -> AsyncIterator[tuple[int, bytes]]:
        content = self._content(path)
        yield len(content), content[offset:end]

    async def read_all(self, wanted: Sequence[WantedFile]) -> AsyncIterator[Part]:
        for index, file in enumerate(wanted):
            try:
                yield Part(index, file.offset, self._content(file.path)[file.offset :], last=True)
            except AgentError as error:
                yield Part(index, 0, b"", last=True, error=error)

    async def write(self, path: str, mode: int, pieces: AsyncIterator[bytes]) -> int:
        content = b"".join([piece async for piece in pieces])
        self._put(path, content)
        return len(content)

    async def write_all(self, pieces: AsyncIterator[UploadPiece]) -> int:
        size = 0
        parts: dict[str, bytes] = {}
        async for piece in pieces:
            size += len(piece.data)
            parts[piece.path] = parts.get(piece.path, b"") + piece.data
            if piece.last:
                self._put(piece.path, parts[piece.path])
        return size

    def output(self, stream: str, offset: int = 0) -> AsyncIterator[bytes]:
        return self._backend.printed(self._job, self._rank, stream, offset)

    def _put(self, path: str, content: bytes) -> None:
        self._files[path] = content
        self._backend.there.change()

    def _content(self, path: str) -> bytes:
        if path.startswith(("/", "../")):
            raise _refused(f"{path} leads out of the job's folder", "outside")
        if path not in self._files:
            raise _refused(f"{path}: no such file", "no_such_file")
        return self._files[path]

    def _entry(self, path: str) -> FileEntry:
        size = len(self._content(path))
        return {"name": path, "kind": "file", "size": size, "mtime": 0.0, "mode": 0o644}


def _refused(text: str, code: str) -> AgentError:
    error = AgentError(text)
    error.code = code
    return error


def _processes(job: Job) -> list[tuple[Process, str]]:
    assert job.attempt is not None
    number = job.attempt.number
    placement = enumerate(job.attempt.placement)
    return [((job.id, number, rank), slot.machine) for rank, slot in placement]
