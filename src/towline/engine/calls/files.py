"""Inside a job's folder: list, read, write, run something beside it, bring it home."""

from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from towline.api.files import FetchedView, FileStat, FolderListing, ResultsOnTheWay, Walk
from towline.backends.base import FileAccess
from towline.backends.terms import Port, Printed, UploadPiece, WantedFile
from towline.engine.cleaning.cleaned import explained
from towline.engine.following.output import Frame
from towline.engine.lookup import job_for
from towline.engine.parts import EngineParts
from towline.engine.views import view
from towline.errors import AgentError, NotFound, UsageError
from towline.model.job import Attempt, Ending, Job, State
from towline.model.principal import Principal

#: Carries what is said on one connection.
Carry = Callable[[StreamReader, StreamWriter], Awaitable[None]]
#: What the agent calls it, where that means something to the user.
_USER_ERRORS = {"no_such_file", "is_folder", "not_folder", "outside", "denied", "unknown_job"}


class FilePath(NamedTuple):
    """A path in the folder of one process; or not there, but in what it keeps for the next job."""

    path: str
    process: int = 0
    kept: bool = False


class FileCalls:
    """Whose files they are is seen to before anything of them is asked for."""

    def __init__(self, parts: EngineParts) -> None:
        self._parts = parts

    def _find(self, who: Principal, job_id: int) -> Job:
        return job_for(who, job_id, self._parts.engine)

    def _files(self, job: Job, at: FilePath | None = None) -> FileAccess:
        """The files of a job; of one process of it, if it has begun."""
        if at is None:
            return self._parts.fleet.files(job, 0)
        if job.attempt is None:
            raise NotFound(f"job {job.id} has not started yet", hint=f"tow why {job.id}")
        _check_process(job, job.attempt, at.process)
        return self._parts.fleet.files(job, at.process, kept=at.kept)

    @contextmanager
    def _explained(self, job: Job) -> Iterator[None]:
        """Say what the agent refuses as what it means to the user."""
        try:
            yield
        except AgentError as error:
            if error.code in _USER_ERRORS:
                said = explained(self._parts.engine, job, error)
                raise NotFound(said.text, hint=said.hint) from None
            raise

    async def entries(self, who: Principal, job_id: int, at: FilePath) -> FolderListing:
        """What is in a folder of a job."""
        job = self._find(who, job_id)
        with self._explained(job):
            page = await self._files(job, at).entries(at.path)
        return {"entries": page.files, "more": page.more}

    async def walk(self, who: Principal, job_id: int, at: FilePath) -> Walk:
        """All files below a folder of a job."""
        job = self._find(who, job_id)
        with self._explained(job):
            page = await self._files(job, at).walk(at.path)
        return {"files": page.files, "more": page.more}

    async def stat(self, who: Principal, job_id: int, at: FilePath) -> FileStat:
        """What a path is; a link inside the job's folder is followed."""
        job = self._find(who, job_id)
        with self._explained(job):
            found = await self._files(job, at).stat(at.path)
        return {
            "name": found["name"],
            "kind": found["kind"],
            "size": found["size"],
            "mtime": found["mtime"],
            "mode": found["mode"],
        }

    async def read(
        self, who: Principal, job_id: int, at: FilePath, offset: int, end: int
    ) -> tuple[int, AsyncIterator[bytes]]:
        """How long a file is, and its bytes between two places.

        The first piece is fetched before answering, so that errors are answers, not broken streams.
        """
        job = self._find(who, job_id)
        found = self._files(job, at).read(at.path, offset, end)
        with self._explained(job):
            size, first = await anext(found)

        async def pieces() -> AsyncIterator[bytes]:
            yield first
            async for _, piece in found:
                yield piece

        return size, pieces()

    async def write(
        self, who: Principal, job_id: int, path: str, mode: int, pieces: AsyncIterator[bytes]
    ) -> int:
        """Make a file of a job; how many bytes it has."""
        job = self._find(who, job_id)
        with self._explained(job):
            return await self._files(job).write(path, mode, pieces)

    # --- many at once ------------------------------------------------------------------------

    def gather(self, who: Principal, job_id: int, at: FilePath) -> AsyncIterator[Frame]:
        """All files at a path, and the contents of those that are short."""
        return self._gathered(self._find(who, job_id), at)

    async def _gathered(self, job: Job, at: FilePath) -> AsyncIterator[Frame]:
        with self._explained(job):
            async for found in self._files(job, at).gathered("walk", at.path):
                contents = [one.content for one in found if one.content is not None]
                yield {"files": [one.entry for one in found]}, b"".join(contents)

    def fetch(
        self, who: Principal, job_id: int, wanted: Sequence[WantedFile]
    ) -> AsyncIterator[Frame]:
        """The contents of files, in pieces; one that cannot be read says so in its place."""
        return self._fetched(self._find(who, job_id), wanted)

    async def _fetched(self, job: Job, wanted: Sequence[WantedFile]) -> AsyncIterator[Frame]:
        with self._explained(job):
            async for part in self._files(job).read_all(wanted):
                if part.error is not None and len(wanted) == 1:
                    raise part.error
                header: dict[str, Any] = {
                    "file": part.index,
                    "offset": part.offset,
                    "last": part.last,
                }
                if part.error is not None:
                    header["refused"] = {"code": part.error.code, "text": part.error.text}
                yield header, bytes(part.data)

    async def store(self, who: Principal, job_id: int, pieces: AsyncIterator[UploadPiece]) -> int:
        """Make many files of a job; how many bytes they have."""
        job = self._find(who, job_id)
        with self._explained(job):
            return await self._files(job).write_all(pieces)

    # --- a command beside it, and its results ------------------------------------------------

    def execute(
        self, who: Principal, job_id: int, rank: int, argv: list[str]
    ) -> AsyncIterator[Frame]:
        """Run a command beside a job: what it prints, and how it ends."""
        return self._executed(self._find(who, job_id), rank, argv)

    async def _executed(self, job: Job, rank: int, argv: list[str]) -> AsyncIterator[Frame]:
        with self._explained(job):
            async for item in self._parts.fleet.execute(job, rank, argv):
                if isinstance(item, Printed):
                    header = {"stream": item.stream, "offset": item.offset}
                    yield {**header, "group": 0, "process": 0, "label": ""}, item.data
                else:
                    yield {"end": {**view(job), **_ended(item)}}, b""

    def connect(self, who: Principal, job_id: int, process: int, port: int, service: str) -> Carry:
        """A connection to a port beside a process of a running job, or to a service of it, both
        ways at once."""
        job = self._find(who, job_id)
        if bool(port) == bool(service):
            raise UsageError("which port, or which service?", hint="port=6006")
        if service and service not in (one.name for one in job.spec.services):
            raise NotFound(f"job {job_id} has no service {service!r}")
        if job.attempt is None or job.state is not State.RUNNING:
            raise NotFound("Worker not active", hint=f"job {job_id} does not run now")
        _check_process(job, job.attempt, process)

        async def carry(reader: StreamReader, writer: StreamWriter) -> None:
            await self._parts.fleet.carry(job, process, Port(port, service), reader, writer)

        return carry

    def results_so_far(self, who: Principal, job_id: int) -> ResultsOnTheWay:
        """How many bytes of a job's results have come that are coming now, and of how many."""
        job = self._find(who, job_id)
        came, total = self._parts.results.coming(job.id) or (0, 0)
        return {"done": came, "total": total}

    async def results(self, who: Principal, job_id: int, back: tuple[str, ...]) -> FetchedView:
        """Bring home what is there now, also while the job runs."""
        job, results = self._find(who, job_id), self._parts.results
        if job.attempt is None:
            raise NotFound(f"job {job_id} has not started yet", hint=f"tow why {job_id}")
        await results.settled(job.id)
        try:
            fetched = await results.fetch(job, back)
        except AgentError as error:
            raise explained(self._parts.engine, job, error) from None
        return fetched.view()


def _check_process(job: Job, attempt: Attempt, process: int) -> None:
    if process >= len(attempt.placement):
        raise NotFound(f"job {job.id} has no process {process}")


def _ended(ending: Ending) -> dict[str, Any]:
    """How a command beside a job ended, in the words in which that is told of jobs."""
    code, text = ending.code, ending.text
    if code is None and ending.signal is not None:
        code = 128 + ending.signal
    because = {"kind": "told", "text": text} if text else {"kind": ""}
    return {"exit_code": code, "reason": text, "because": because}
