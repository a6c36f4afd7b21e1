"""Bring home what jobs made: as soon as they end, or whenever the machine answers again.

Names from the other side stay below the target folder; what may be replaced there, and what not,
is decided in placing.py.
"""

import asyncio
import contextlib
import errno
import functools
import logging
import os
import weakref
from concurrent.futures import ThreadPoolExecutor

from towline.backends.base import FileSource, Fleet
from towline.backends.tasks import Tasks
from towline.engine.engine import Engine, request_of
from towline.engine.results.fetched import Fetched
from towline.engine.results.fetching import Fetching
from towline.engine.results.followed import Followed
from towline.engine.results.places import Places
from towline.engine.results.shrinking import Shrinking
from towline.errors import AgentError, HostError, TowlineError, UsageError
from towline.model.job import Job
from towline.model.odd_text import keepable, original
from towline.model.results import PENDING, at_home, not_fetched
from towline.model.results import Results as Stand
from towline.workspace.parts import remove_parts
from towline.workspace.placing import (
    FOLDER,
    Brought,
    Mark,
    Placer,
    decoded,
    digest_of_bytes,
    ignore_in_git,
)
from towline.workspace.settling import Settling

log = logging.getLogger("towline")

_THREADS = 4
_AGAIN_S = 10.0
#: What may be otherwise in a moment is tried so often, and so much later each time.
_MOST_TRIES, _SOON_S = 3, 1.0
#: Somebody removed the folder while it was written to; a machine is too busy just now.
_FOR_A_MOMENT = frozenset(
    (errno.ENOENT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ESTALE)
)


class Results:
    def __init__(self, engine: Engine, fleet: Fleet, spare_folder: str) -> None:
        self.engine = engine
        self.fleet = fleet
        #: Where results go when the folder they belong to is gone.
        self.spare_folder = spare_folder
        self._places = Places(fleet)
        self._tasks = Tasks("results", asks_again=False)
        self._fetching: dict[int, asyncio.Task[None]] = {}
        #: Two do not fetch the same job at the same time.
        self._turns: weakref.WeakValueDictionary[int, asyncio.Lock] = weakref.WeakValueDictionary()
        #: Job -> what an earlier Engine was killed over, among its results.
        self._parts: dict[int, list[str]] = {}
        #: Job -> what is being fetched of it.
        self._present: weakref.WeakValueDictionary[int, Fetching] = weakref.WeakValueDictionary()
        self._writers = ThreadPoolExecutor(_THREADS, thread_name_prefix="results")
        self.settling = Settling(self._writers)
        self.followed = Followed(engine, self._writers, spare_folder)
        self.shrinking = Shrinking(engine, fleet)
        engine.on_end = self._ended
        engine.bring_home = self.put_said

    def tidy(self) -> None:
        """Remove what an earlier Engine was just writing; only before anything is fetched."""
        wanted = map(self.engine.store.job, self.engine.store.results.wanted())
        for job in (*filter(None, wanted), *self.engine.store.unfinished()):
            # Tidying must not keep the Engine from starting.
            with contextlib.suppress(OSError):
                self._parts[job.id] = remove_parts(self._folder(job))

    def resume(self) -> None:
        """Fetch what an earlier Engine did not finish."""
        for job in filter(None, map(self.engine.store.job, self.engine.store.results.wanted())):
            self.fetch_soon(job)

    def _ended(self, job: Job) -> None:
        if job.results.here:
            # It came with the news of its end.
            stem = os.path.splitext(original(job.results.path))[0]
            self.settling.soon((f"{stem}.out", f"{stem}.err"))
        if job.results != PENDING:
            self.followed.forget(job.id)
            self.shrinking.soon(job)
        self.fetch_soon(job)

    def fetch_soon(self, job: Job) -> None:
        if job.results == PENDING and job.id not in self._fetching:
            failed = functools.partial(self._failed, job)
            self._fetching[job.id] = self._tasks.spawn(self._fetch_patiently(job.id), failed)

    def _failed(self, job: Job, error: Exception) -> None:
        """Not even that could be told: those who wait for it hear of it in plain words."""
        told = self.engine.note_results(job, not_fetched("the Engine failed: tow engine log"))
        self._tasks.spawn(told, lambda worse: None)

    async def settled(self, job_id: int) -> None:
        """Until the results of a job are home, or cannot come."""
        if task := self._fetching.get(job_id):
            await asyncio.shield(task)

    def coming(self, job_id: int) -> tuple[int, int] | None:
        """How many bytes of a job's results have come, and of how many; None: nothing is coming."""
        present = self._present.get(job_id)
        return (present.came, present.total) if present is not None and present.total else None

    def __len__(self) -> int:
        return len(self._fetching)

    def close(self) -> None:
        self._tasks.close()
        self.settling.close()
        self.shrinking.close()
        self._writers.shutdown(wait=False, cancel_futures=True)

    async def _fetch_patiently(self, job_id: int) -> None:
        """Try until the machine answers: the laptop may have been asleep, or the network away."""
        tries, pause_s = 0, _SOON_S
        try:
            while (job := self.engine.job(job_id)).results == PENDING and job.state.final:
                try:
                    async with self._places.one(job):
                        # Where the connection breaks, the place is another's meanwhile.
                        fetched, brought = await self._fetch(job, self.fleet.present)
                    await self._note(job, fetched, brought)
                except HostError:
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _AGAIN_S)
                except Exception as error:
                    tries += 1
                    if tries < _MOST_TRIES and _may_pass(error):
                        await asyncio.sleep(_SOON_S)
                        continue
                    why = keepable(self._why_not(job, error))
                    await self.engine.note_results(job, not_fetched(why))
        finally:
            # At once, not when the loop comes to it: the job may end again meanwhile.
            self._fetching.pop(job_id, None)

    def _why_not(self, job: Job, error: Exception) -> str:
        if isinstance(error, TowlineError):
            return error.text
        if isinstance(error, OSError):
            return _cannot_write(self._folder(job), error)
        log.error("the results of job %d", job.id, exc_info=error)
        return f"the Engine failed over them: {error!r}"

    async def _note(self, job: Job, fetched: Fetched, brought: Brought) -> None:
        self.followed.forget(job.id)
        now = self.engine.job(job.id)
        if now.attempt != job.attempt or not now.state.final:
            await self.engine.note_brought(job.id, brought.encoded())
            return  # it was started again meanwhile: these are not its results
        made = fetched.files or job.spec.whole
        results = at_home(keepable(fetched.folder if made else fetched.printed))
        if fetched.in_the_way:
            results = not_fetched(keepable(fetched.obstacle()))
        remarks = fetched.remarks()
        await self.engine.note_results(job, results, remarks, brought.encoded())
        if not fetched.in_the_way:
            self.shrinking.soon(job)

    # --- one job -----------------------------------------------------------------------------

    async def fetch(self, job: Job, back: tuple[str, ...] = ()) -> Fetched:
        """Everything of a job that is there now; `back` narrows it to some paths."""
        try:
            fetched, brought = await self._fetch(job, self.fleet, back)
        except OSError as error:
            hint = f"then, while it is on its machine: tow results {job.id}"
            raise UsageError(_cannot_write(self._folder(job), error), hint=hint) from None
        if back or not job.state.final or job.results.kind != "failed":
            await self.engine.note_brought(job.id, brought.encoded())
        else:
            await self._note(job, fetched, brought)
        if fetched.in_the_way:
            hint = f"move it away, then: tow results {job.id}"
            raise UsageError(fetched.obstacle(), hint=hint)
        return fetched

    async def _fetch(
        self, job: Job, source: FileSource, back: tuple[str, ...] = ()
    ) -> tuple[Fetched, Brought]:
        assert job.attempt is not None
        async with self._turns.setdefault(job.id, asyncio.Lock()):
            folder = self._folder(job)
            brought = decoded(self.engine.store.results.brought(job.id))
            placer = Placer(folder, brought, job.attempt.number, job.spec.umask)
            wanted = back or job.spec.back
            fetching = Fetching(source, self._writers, self.followed, job, placer, wanted)
            self._present[job.id] = fetching
            many = len(job.attempt.placement) > 1
            for rank, (group, process, _) in enumerate(request_of(job.spec.request).processes()):
                await fetching.process(rank, f"{group}.{process}" if many else "")
            if job.state.final and not back:
                await fetching.in_thread(placer.remove_older)
                await fetching.in_thread(_remove_all, self._parts.pop(job.id, []))
            await self.settling.on_disk(placer.placed)
            fetching.fetched.conflicts = placer.conflicts
            return fetching.fetched, placer.brought()

    def put_said(self, job: Job, said: tuple[bytes, bytes]) -> tuple[Stand, bytes] | None:
        """Put into place all that a job printed, if it made nothing else.

        Where it is now, and what is to be remembered of it. None leaves it to be fetched, which
        also mends what is half written when we are killed here.
        """
        assert job.attempt is not None
        ending = job.attempt.endings[0]
        more = job.spec.whole or job.spec.back or ending.made != 0
        if more or (ending.out_size, ending.err_size) != tuple(map(len, said)):
            return None
        if job.attempt.number > 1 and self.engine.store.results.brought(job.id):
            return None  # what an earlier attempt brought is to be replaced
        folder = self._folder(job)
        marks: dict[str, Mark] = {}
        try:
            for stream, content in zip(("out", "err"), said, strict=True):
                if content or job.spec.empty_outputs:
                    path = f"{folder}.{stream}"
                    mtime_ns = _write_new(path, content, job.spec.umask)
                    mark = Mark(
                        job.attempt.number, len(content), mtime_ns, digest_of_bytes(content)
                    )
                    marks[keepable(os.path.basename(path))] = mark
        except OSError:
            return None
        brought = Brought(keepable(os.path.dirname(folder)), marks)
        first = keepable(f"{folder}.{'out' if said[0] else 'err'}")
        return at_home(first), brought.encoded()

    def _folder(self, job: Job) -> str:
        home = original(job.spec.folder)
        top = home if os.path.isdir(home) else self.spare_folder
        return os.path.join(top, FOLDER, original(job.spec.name) or str(job.id))


def _may_pass(error: Exception) -> bool:
    """Whether the same may go well in a moment, without anybody doing anything."""
    if isinstance(error, AgentError):
        return error.code == "failed"
    return isinstance(error, OSError) and error.errno in _FOR_A_MOMENT


def _remove_all(paths: list[str]) -> None:
    """What was gone on with has got its place; the rest is of files that are others now."""
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _cannot_write(folder: str, error: OSError) -> str:
    return f"cannot write to {folder}: {error.strerror or error}"


def _write_new(path: str, content: bytes, umask: int) -> int:
    """Write a file that is not there yet; its time."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        file = os.open(path, flags, 0o666)
    except FileNotFoundError:
        folder = os.path.dirname(path)
        os.mkdir(folder)
        os.chmod(folder, 0o777 & ~umask)
        ignore_in_git(folder)
        file = os.open(path, flags, 0o666)
    try:
        if os.write(file, content) != len(content):
            raise OSError(errno.ENOSPC, "written in part", path)
        os.fchmod(file, 0o666 & ~umask)
        return os.fstat(file).st_mtime_ns
    finally:
        os.close(file)
