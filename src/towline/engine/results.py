"""Bring home what jobs made: as soon as they end, or whenever the machine answers again.

Nothing that is here is ever overwritten. Names from the other side stay below the target folder.
"""

import asyncio
import contextlib
import errno
import filecmp
import itertools
import os
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct, field

from towline.backends.machines import Machines
from towline.engine.engine import KEPT, LEFT_OUT, Engine, request_of
from towline.engine.unchanged import unchanged_files
from towline.errors import AgentError, HostError, TowlineError
from towline.model.job import WANTED, Job
from towline.model.odd_text import keepable, original

FOLDER = "job_results"
WHY_LEFT_OUT = "it leads out of the folder, or cannot be read"
_CHUNK = 256 * 1024
#: Jobs whose results travel at the same time.
_AT_ONCE = 16
_AGAIN_S = 10.0
#: How the names of files begin that have not arrived whole.
_PART = ".towline-part-"
#: The agent's words for a file that is there but cannot be had.
_NOT_TO_BE_HAD = ("denied", "outside", "is_folder")
#: Of what did not come home as it is over there, so much is told.
_MOST_TOLD = 10


class Fetched(Struct):
    """What came home of one job."""

    folder: str
    files: int = 0
    bytes: int = 0
    #: Where the first of what it printed is.
    printed: str = ""
    #: Files that were here already with other content, and where the newer copy went.
    conflicts: list[tuple[str, str]] = field(default_factory=list)
    #: Names that were left out: they would lead out of the folder, or cannot be read.
    refused: list[str] = field(default_factory=list)

    def remarks(self) -> list[str]:
        """What did not come home under its own name, in words."""
        top = os.path.dirname(os.path.dirname(self.folder))
        told = [
            f"{KEPT}{os.path.relpath(here, top)} as it was; "
            f"the newer copy is {os.path.relpath(newer, top)}"
            for here, newer in self.conflicts
        ]
        told += [f"{LEFT_OUT}{name}: {WHY_LEFT_OUT}" for name in self.refused]
        more = len(told) - _MOST_TOLD
        return told[:_MOST_TOLD] + ([f"{LEFT_OUT}{more} more remarks"] if more > 0 else [])


class Results:
    def __init__(self, engine: Engine, machines: Machines, spare_folder: str) -> None:
        self.engine = engine
        self.machines = machines
        #: Where results go when the folder they belong to is gone.
        self.spare_folder = spare_folder
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._fetching: dict[int, asyncio.Task[None]] = {}
        engine.on_end = self.fetch_soon
        engine.bring_home = self.put_said

    def resume(self) -> None:
        """What an earlier Engine did not finish."""
        for job_id in self.engine.store.results_wanted():
            job = self.engine.job(job_id)
            # Tidying must not keep the Engine from starting.
            with contextlib.suppress(OSError):
                _remove_parts(self._folder(job))
            self.fetch_soon(job)

    def fetch_soon(self, job: Job) -> None:
        if job.results == WANTED and job.id not in self._fetching:
            task = asyncio.get_running_loop().create_task(self._fetch_patiently(job))
            self._fetching[job.id] = task
            task.add_done_callback(lambda _: self._fetching.pop(job.id, None))

    async def settled(self, job_id: int) -> None:
        """Until the results of a job are home, or cannot come."""
        if task := self._fetching.get(job_id):
            await asyncio.shield(task)

    def __len__(self) -> int:
        return len(self._fetching)

    def cancel(self) -> None:
        for task in list(self._fetching.values()):
            task.cancel()

    async def _fetch_patiently(self, job: Job) -> None:
        """Try until the machine answers: the laptop may have been asleep, or the network away."""
        while True:
            try:
                async with self._places:
                    fetched = await self.fetch(job)
                await self._note(job, fetched)
                return
            except HostError:
                await asyncio.sleep(_AGAIN_S)
            except TowlineError as error:
                await self.engine.note_results(job, f"not fetched: {error.text}")
                return
            except (OSError, LookupError, TypeError, ValueError) as error:
                # A full disk here, or a machine that speaks nonsense.
                await self.engine.note_results(job, f"not fetched: {error}")
                return

    async def _note(self, job: Job, fetched: Fetched) -> None:
        made = fetched.files or job.spec.whole
        results = keepable(fetched.folder if made else fetched.printed)
        await self.engine.note_results(job, results, fetched.remarks())

    # --- one job -----------------------------------------------------------------------------

    async def fetch(self, job: Job, back: tuple[str, ...] = ()) -> Fetched:
        """Everything of a job that is there now; `back` narrows it to some paths."""
        fetched = Fetched(self._folder(job))
        assert job.attempt is not None
        many = len(job.attempt.placement) > 1
        for rank, (group, process, _) in enumerate(request_of(job.spec.request).processes()):
            suffix = f"{group}.{process}" if many else ""
            folder = os.path.join(fetched.folder, suffix) if many else fetched.folder
            await self._fetch_files(job, rank, folder, back or job.spec.back, fetched)
            for stream in ("out", "err"):
                name = ".".join(part for part in (fetched.folder, suffix, stream) if part)
                await self._fetch_stream(job, rank, stream, name, fetched)
        return fetched

    def put_said(self, job: Job, said: tuple[bytes, bytes]) -> str | None:
        """Put into place all that a job printed, if it made nothing else; where it is now.

        None leaves it to be fetched, which also mends what is half written when we are killed here.
        """
        assert job.attempt is not None
        ending = job.attempt.endings[0]
        more = job.spec.whole or ending.made != 0
        if more or (ending.out_size, ending.err_size) != tuple(map(len, said)):
            return None
        folder = self._folder(job)
        try:
            for name, content in zip((f"{folder}.out", f"{folder}.err"), said, strict=True):
                _write_new(name, content)
        except OSError:
            return None
        return keepable(f"{folder}.out")

    def _folder(self, job: Job) -> str:
        home = original(job.spec.folder)
        top = home if os.path.isdir(home) else self.spare_folder
        return os.path.join(top, FOLDER, original(job.spec.name) or str(job.id))

    async def _fetch_files(
        self, job: Job, rank: int, folder: str, back: tuple[str, ...], fetched: Fetched
    ) -> None:
        header, _ = await self.machines.file_operation(job, rank, "changed")
        found = header["files"]
        if job.spec.whole:
            os.makedirs(folder, exist_ok=True)
            found = [*found, *await unchanged_files(self.machines, job, rank, found)]
        for entry in found:
            name = entry["name"]
            if not _named(name, back):
                continue
            target = inside(folder, name)
            if target is None:
                fetched.refused.append(name)
            elif entry["kind"] == "link":
                self._link(entry, folder, target, fetched)
            else:
                await self._file(job, rank, entry, target, fetched)

    async def _file(
        self, job: Job, rank: int, entry: dict[str, Any], target: str, fetched: Fetched
    ) -> None:
        async def read(offset: int) -> tuple[bytes, bool]:
            if "blob" in entry:
                return self._at_home(entry["blob"], offset)
            header, blob = await self.machines.file_operation(
                job, rank, "get", path=entry["name"], offset=offset, limit=_CHUNK
            )
            return blob, header["eof"]

        try:
            size = await _download(read, target, entry["mode"], fetched)
        except AgentError as error:
            if error.code == "no_such_file":
                return  # the job removed it since it was listed
            if error.code not in _NOT_TO_BE_HAD:
                raise
            fetched.refused.append(entry["name"])
            return
        fetched.files += 1
        fetched.bytes += size

    def _at_home(self, digest: str, offset: int) -> tuple[bytes, bool]:
        with self.machines.blobs.open(digest) as source:
            source.seek(offset)
            piece = source.read(_CHUNK)
            return piece, len(piece) < _CHUNK

    def _link(self, entry: dict[str, Any], folder: str, target: str, fetched: Fetched) -> None:
        """A link comes home only if it stays inside."""
        aim = entry["target"]
        if leads_out(folder, target, aim):
            fetched.refused.append(entry["name"])
            return
        os.makedirs(os.path.dirname(target), exist_ok=True)

        def is_here(place: str) -> bool:
            return os.path.islink(place) and os.readlink(place) == aim

        _put_into_place(lambda place: os.symlink(aim, place), is_here, target, fetched)
        fetched.files += 1

    async def _fetch_stream(
        self, job: Job, rank: int, stream: str, path: str, fetched: Fetched
    ) -> None:
        async def read(offset: int) -> tuple[bytes, bool]:
            blob, _ = await self.machines.read_log(job, rank, stream, offset, wait=False)
            return blob, len(blob) < _CHUNK

        size = await _download(read, path, 0o644, fetched, grows=True)
        fetched.bytes += size
        fetched.printed = fetched.printed or (path if size else "")


def _named(name: str, back: tuple[str, ...]) -> bool:
    """Whether one of these paths leads to it; no paths: to everything, as does `.`."""
    if not back or "." in back:
        return True
    return any(name == path or name.startswith(f"{path}/") for path in back)


def _write_new(path: str, content: bytes) -> None:
    """Write a file that is not there yet."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        file = os.open(path, flags, 0o644)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        file = os.open(path, flags, 0o644)
    try:
        if os.write(file, content) != len(content):
            raise OSError(errno.ENOSPC, "written in part", path)
    finally:
        os.close(file)


async def fetch_kept(machines: Machines, job: Job, folder: str) -> None:
    """Copy what a job put into its `keep` folder to a folder here."""
    fetched = Fetched(folder)
    header, _ = await machines.file_operation(job, 0, "walk", path="", kept=True)
    # Links last: nothing is written through one. They lead where they led, also out of the folder.
    for entry in sorted(header["files"], key=lambda entry: entry["kind"] == "link"):
        target = inside(folder, entry["name"])
        if target is None or entry["kind"] not in ("file", "link"):
            continue
        if entry["kind"] == "link":
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.symlink(entry["target"], target)
            continue

        async def read(offset: int, path: str = entry["name"]) -> tuple[bytes, bool]:
            answer, blob = await machines.file_operation(
                job, 0, "get", path=path, kept=True, offset=offset, limit=_CHUNK
            )
            return blob, answer["eof"]

        await _download(read, target, entry["mode"], fetched)


async def _download(
    read: Callable[[int], Awaitable[tuple[bytes, bool]]],
    target: str,
    mode: int,
    fetched: Fetched,
    grows: bool = False,
) -> int:
    """Write beside, then put into place without ever replacing anything.

    Of something that only `grows`, a beginning that was fetched earlier gives way to the whole.
    """
    folder = os.path.dirname(target)
    os.makedirs(folder, exist_ok=True)
    # Not the target's name with something behind it: that may be as long as names can be.
    beside = os.path.join(folder, f"{_PART}{secrets.token_hex(8)}")
    try:
        with open(beside, "xb") as file:
            at_end = False
            while not at_end:
                blob, at_end = await read(file.tell())
                file.write(blob)
            size = file.tell()
        os.chmod(beside, mode & 0o777)
        if grows and _begins_with(beside, target):
            os.replace(beside, target)
            return size

        def is_here(place: str) -> bool:
            return os.path.isfile(place) and filecmp.cmp(beside, place, shallow=False)

        _put_into_place(lambda place: os.link(beside, place), is_here, target, fetched)
        return size
    finally:
        if os.path.lexists(beside):
            os.unlink(beside)


def _remove_parts(folder: str) -> None:
    """What an Engine that was killed left unfinished among a job's results."""
    top = os.path.dirname(folder)
    beside = os.listdir(top) if os.path.isdir(top) else []
    for place, _, names in [(top, [], beside), *os.walk(folder)]:
        for name in names:
            if name.startswith(_PART):
                os.unlink(os.path.join(place, name))


def _begins_with(path: str, beginning: str) -> bool:
    """True if there is a plain file `beginning` and `path` starts with all that is in it."""
    if not os.path.isfile(beginning) or os.path.islink(beginning):
        return False
    with open(path, "rb") as whole, open(beginning, "rb") as part:
        while piece := part.read(_CHUNK):
            if whole.read(len(piece)) != piece:
                return False
    return True


def _put_into_place(
    put: Callable[[str], None], is_here: Callable[[str], bool], wanted: str, fetched: Fetched
) -> None:
    """Under its own name, or beside what has that name and is something else."""
    for place in itertools.chain([wanted], (f"{wanted}.{number}" for number in itertools.count(2))):
        try:
            put(place)
        except FileExistsError:
            if is_here(place):
                return
            continue
        if place != wanted:
            fetched.conflicts.append((wanted, place))
        return


def leads_out(folder: str, link: str, aim: str) -> bool:
    """True if a link to `aim` would lead out of `folder`, be it through other links in there."""
    parts = aim.split("/")
    ups = len(list(itertools.takewhile(lambda part: part == "..", parts)))
    if os.path.isabs(aim) or ".." in parts[ups:] or "\0" in aim:
        return True
    top = os.path.realpath(folder)
    # What is above a real folder is no link, so counting is enough.
    end = os.path.normpath(os.path.join(os.path.realpath(os.path.dirname(link)), aim))
    return end != top and not end.startswith(top + os.sep)


def inside(folder: str, name: str) -> str | None:
    """The path of `name` below `folder`; None if it would leave it."""
    parts = name.split("/")
    if not name or "\0" in name or any(part in ("", "..") for part in parts):
        return None
    path = os.path.join(folder, *parts)
    real = os.path.realpath(os.path.dirname(path))
    top = os.path.realpath(folder)
    return path if real == top or real.startswith(top + os.sep) else None
