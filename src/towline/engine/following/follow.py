"""A job's life as a stream of frames: states, output as it comes, what holds it up, the end.

Every piece of output carries its offset in its file, so a client that lost the stream goes on where
it was. Memory is bounded: a reader asks the machine for more only when the client took what it has.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from msgspec.structs import replace

from towline.backends.base import Backend
from towline.core.scheduling.obstacles import Explanation
from towline.engine.chains import waiter, waiting_words
from towline.engine.engine import Engine
from towline.engine.following.at_home import just_told
from towline.engine.following.output import (
    Frame,
    gone,
    has_begun,
    has_output,
    label,
    read_more,
    stream_name,
)
from towline.engine.obstacle_words import by_machines, waiting_text
from towline.engine.reasons import reason_words
from towline.engine.views import entry_of, view
from towline.errors import AgentError, HostError, TowlineError
from towline.model.job import Job, State
from towline.model.odd_text import original
from towline.model.results import PENDING
from towline.model.units import format_memory
from towline.workspace.base import Receiver

log = logging.getLogger("towline")

Keep = Callable[[Job, int, str, int, bytes], Awaitable[None]]
News = Callable[[int], AsyncIterator[Frame]]
#: A piece of so much has more behind it.
_LONG = 256 * 1024
#: Quiet for this long before we say why a job waits.
_PATIENCE_S = 0.8
#: The rest of the output of a job that has ended is asked for so often, should connections break.
_LAST_TRIES = 4
#: So often it is told how far results are on their way.
_LOOK_S = 0.4


async def _not_kept(job: Job, rank: int, stream: str, offset: int, blob: bytes) -> None:
    pass


class Follower:
    """One client that follows one job."""

    def __init__(
        self,
        engine: Engine,
        backend: Backend,
        job_id: int,
        offsets: Mapping[str, int],
        streams: tuple[str, ...],
        first_attempt: int = 0,
        news: News | None = None,
        silence: Callable[[Job], str] = lambda job: "",
        keep: Keep = _not_kept,
        standing: Callable[[Job], dict[str, Any]] = lambda job: {},
        coming: Callable[[int], tuple[int, int] | None] = lambda job_id: None,
        receiver: Receiver | None = None,
    ) -> None:
        self.engine = engine
        self.backend = backend
        #: What becomes of the services of a job.
        self.news = news
        #: Why nothing is heard from where a job is; empty when that can be reached.
        self.silence = silence
        #: Gets all that the client gets of the output.
        self.keep = keep
        #: Where a job stands that waits in the queue of its cluster.
        self.standing = standing
        #: How much of the results of a job has come home, and of how much.
        self.coming = coming
        #: Who has what came home.
        self.receiver = receiver
        self.job_id = job_id
        self.offsets = dict(offsets)
        self.streams = streams
        #: The attempt to read next; 0 is the present one.
        self.next_attempt = first_attempt
        self.queue: asyncio.Queue[Frame | None] = asyncio.Queue(16)

    async def frames(self) -> AsyncIterator[Frame]:
        """From now to the job's end."""
        job = self.engine.job(self.job_id)
        yield {"job": view(job)}, b""
        if job.spec.large and not job.state.final:
            yield {"note": large_files(job), "kind": "large"}, b""
        while True:
            if not has_output(self.engine.job(self.job_id)):
                async for frame in self._until_started():
                    yield frame
            job = self._with_next_attempt()
            if job.attempt is not None:
                yield {"job": view(job)}, b""
                async for frame in self._attempt(job):
                    yield frame
            job = await self._settled(job)
            if job.state.final and not self._unread(job):
                if job.results == PENDING:
                    async for frame in self._until_home():
                        yield frame
                for text in self.engine.remarks(self.job_id):
                    yield {"note": text, "kind": "remark"}, b""
                yield {"end": view(self.engine.job(self.job_id))}, b""
                return
            self.offsets = {}
            why = reason_words(job.reason) or "starting again"
            yield {"note": why, "kind": "again"}, b""

    def _with_next_attempt(self) -> Job:
        """The job as it was in the attempt to read next: a short one may be over by now."""
        job = self.engine.job(self.job_id)
        if job.attempt is not None:
            attempt = job.attempt
            if self._missed(job):
                attempt = self.engine.store.attempts.numbered(job.id, self.next_attempt) or attempt
            job = replace(job, attempt=attempt)
            self.next_attempt = attempt.number + 1
        return job

    def _missed(self, job: Job) -> bool:
        """True when the attempt to read next is over and another one follows it."""
        return job.attempt is not None and 0 < self.next_attempt < job.attempt.number

    def _unread(self, job: Job) -> bool:
        return job.attempt is not None and self.next_attempt <= job.attempt.number

    async def _until_started(self) -> AsyncIterator[Frame]:
        """Wait for the first process; meanwhile say what holds the job up, once per reason."""
        said = silent = ""
        while True:
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    await self.engine.job_where(
                        self.job_id, lambda job: has_begun(job) or self._missed(job)
                    )
                    return
            except TimeoutError:
                pass
            job = self.engine.job(self.job_id)
            if waits := waiting_words(self.engine, waiter(job), job.spec.after):
                if waits != said:
                    said = waits
                    yield {"note": f"waiting: it {said}"}, b""
            elif job.state is State.QUEUED:
                why = self.engine.core.scheduler.explain(job.id, self.engine.clock())
                if (told := waiting_text(why)) != said:
                    said = told
                    text = f"waiting: {said}{_for_what(why)}"
                    yield {"note": text, "kind": "waiting"}, b""
            elif job.spec.queue and job.reason:
                before, silent = silent, self.silence(job)
                if silent and not before:
                    yield {"note": _trying_again(job, silent), "broken": True}, b""
                elif before and not silent:
                    yield {"note": "connected again", "broken": False}, b""
                elif (reason := reason_words(job.reason)) != said and not silent:
                    said = reason
                    yield {"note": f"waiting: {said}", "kind": "waiting"}, b""
                elif not silent:
                    yield {"waits": (entry_of(job) or {}) | self.standing(job)}, b""
            elif (sending := self.backend.sending(job)) is not None:
                yield {"progress": {"done": sending[0], "total": sending[1]}}, b""

    async def _until_home(self) -> AsyncIterator[Frame]:
        """Wait for the results."""
        home = asyncio.ensure_future(
            self.engine.job_where(self.job_id, lambda job: job.results != PENDING)
        )
        try:
            await asyncio.wait([home], timeout=_PATIENCE_S)
            if not home.done():
                text = "it has ended; bringing its results home"
                yield {"note": text, "kind": "results"}, b""
            while not home.done():
                if (coming := self.coming(self.job_id)) is not None:
                    progress = {"done": coming[0], "total": coming[1], "of": "results"}
                    yield {"progress": progress}, b""
                await asyncio.wait([home], timeout=_LOOK_S)
            await home
        finally:
            home.cancel()

    async def _attempt(self, job: Job) -> AsyncIterator[Frame]:
        assert job.attempt is not None
        readers = [
            asyncio.create_task(self._read(job, rank, stream))
            for rank in range(len(job.attempt.placement))
            for stream in self.streams
        ]
        left = len(readers)
        if job.spec.services and self.news is not None:
            readers.append(asyncio.create_task(self._tell(self.news(job.id))))
        if job.spec.queue is not None:
            readers.append(asyncio.create_task(self._tell(self._taken_back(job.attempt.number))))
        try:
            while left:
                frame = await self.queue.get()
                if frame is None:
                    left -= 1
                else:
                    yield frame
        finally:
            for reader in readers:
                reader.cancel()

    async def _taken_back(self, number: int) -> AsyncIterator[Frame]:
        """While its output is read, the queue may take a job back to start it again."""

        def waits(job: Job) -> bool:
            present = job.attempt is not None and job.attempt.number == number
            return job.state is State.STARTING and present

        while True:
            job = await self.engine.job_where(
                self.job_id, lambda job: waits(job) or job.state.final
            )
            if not waits(job):
                return
            async for frame in self._until_started():
                yield frame
            yield {"job": view(self.engine.job(self.job_id))}, b""

    async def _tell(self, news: AsyncIterator[Frame]) -> None:
        try:
            async for frame in news:
                await self.queue.put(frame)
        except Exception as error:
            log.exception("news of job %d", self.job_id)
            text = f"no more news of it: the Engine failed over it: {error!r}"
            await self.queue.put(({"note": text}, b""))

    async def _settled(self, job: Job) -> Job:
        """All output is out: the job has ended, or goes on with another attempt."""
        number = job.attempt.number if job.attempt else 0

        def over(now: Job) -> bool:
            another = now.attempt is not None and now.attempt.number != number
            return now.state.final or now.state in (State.WAITING, State.QUEUED) or another

        return await self.engine.job_where(self.job_id, over)

    def _is_over(self, job: Job) -> bool:
        """The job has ended, or gone on to another attempt than the one that is read."""
        assert job.attempt is not None
        now = self.engine.job(job.id)
        number = now.attempt.number if now.attempt is not None else 0
        return (
            now.state.final
            or now.state in (State.WAITING, State.QUEUED)
            or number != job.attempt.number
        )

    async def _read(self, job: Job, rank: int, stream: str) -> None:
        try:
            await self._read_all(job, rank, stream)
        except Exception as error:
            log.exception("what job %d prints", job.id)
            text = f"the rest of its output: the Engine failed over it: {error!r}"
            await self.queue.put(({"note": text}, b""))
        finally:
            await self.queue.put(None)

    async def _read_all(self, job: Job, rank: int, stream: str) -> None:
        name = stream_name(job, rank, stream)
        broken, last_tries = False, _LAST_TRIES
        while True:
            offset = self.offsets.get(name, 0)
            try:
                # After a cut there may be nothing to read, and it is still to be told.
                blob, at_end = await self._more(job, rank, stream, offset, wait=not broken)
            except AgentError as error:
                text = error.text
                if error.code == "unknown_job":
                    text = gone(job) if stream == self.streams[0] else ""
                if text:
                    await self.queue.put(({"note": text}, b""))
                return
            except HostError as error:
                last_tries -= self._is_over(job)
                if not last_tries:
                    await self.queue.put(({"note": f"the rest of its output: {error.text}"}, b""))
                    return
                if not broken and stream == self.streams[0]:
                    text = _trying_again(job, error.text, self._is_over(job))
                    await self.queue.put(({"note": text, "broken": True}, b""))
                broken = True
                await asyncio.sleep(1.0)
                continue
            except TowlineError as error:
                await self.queue.put(({"note": error.text}, b""))
                return
            if broken:
                broken = False
                if stream == self.streams[0]:
                    await self.queue.put(({"note": "connected again", "broken": False}, b""))
            if blob:
                await self._pass_on(job, rank, stream, blob)
            if at_end:
                return
            if len(blob) >= _LONG:
                await self._catch_up(job, rank, stream)

    async def _more(
        self, job: Job, rank: int, stream: str, offset: int, wait: bool
    ) -> tuple[bytes, bool]:
        """The next piece, and whether it is the last: from its machine, unless it is here."""
        assert job.attempt is not None
        now = self.engine.job(job.id)
        told = just_told(self.receiver, now, job.attempt.number, rank, stream, offset)
        if told is not None:
            return told, True
        return await read_more(self.engine, self.backend, job, rank, stream, offset, wait)

    async def _pass_on(self, job: Job, rank: int, stream: str, blob: bytes) -> None:
        group, process, prefix = label(job, rank)
        name = stream_name(job, rank, stream)
        offset = self.offsets.get(name, 0)
        header = {"stream": stream, "group": group, "process": process, "label": prefix}
        await self.keep(job, rank, stream, offset, blob)
        await self.queue.put(({**header, "offset": offset}, blob))
        self.offsets[name] = offset + len(blob)

    async def _catch_up(self, job: Job, rank: int, stream: str) -> None:
        """Read all that there is by now in one go; what breaks that off is told afterwards."""
        offset = self.offsets.get(stream_name(job, rank, stream), 0)
        with contextlib.suppress(TowlineError):
            async for blob in self.backend.printed(job, rank, stream, offset):
                if blob:
                    await self._pass_on(job, rank, stream, blob)


def large_files(job: Job) -> str:
    """Name what is unusually large among what travels."""
    named = ", ".join(
        f"{original(path)} ({format_memory(size / 2**20)})" for path, size in job.spec.large
    )
    return f"sends large files: {named}; --exclude or .towignore leaves them out"


def error_frame(error: TowlineError) -> Frame:
    body = {"code": error.code, "text": error.text, "hint": error.hint, **error.facts()}
    return {"error": body, "exit": error.exit_code}, b""


def _for_what(why: Explanation) -> str:
    """What keeps a job that is next from starting; of others, that others are before them."""
    return f" ({by_machines(why.reasons)[0]})" if why.position == 1 and why.reasons else ""


def _trying_again(job: Job, problem: str, over: bool = False) -> str:
    """Of a connection that broke: why, and that this is no harm to the job."""
    why = problem.removeprefix(f"{job.spec.cluster}: ").rstrip(". ")
    handed = job.spec.queue is None or (job.attempt is not None and job.attempt.entry.number)
    goes_on = "the job goes on" if handed else "the job is handed over when that is back"
    goes_on = "the job has ended" if over else goes_on
    return f"{why}; {goes_on}, trying again"
