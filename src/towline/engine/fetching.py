"""One fetch: everything that is there of a job, file by file, and what it printed.

Files are written in threads: the loop never waits for a disk.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any, ParamSpec, TypeVar

from msgspec import Struct, field

from towline.backends.machines import Machines
from towline.engine.engine import KEPT, LEFT_OUT
from towline.engine.listing import pages
from towline.engine.placing import InTheWay, Placer, inside, leads_out
from towline.engine.unchanged import unchanged_files
from towline.errors import AgentError
from towline.model.job import Job

P = ParamSpec("P")
T = TypeVar("T")
#: Reads a file or an output from an offset on; with it, whether that was all.
Read = Callable[[int], Awaitable[tuple[bytes, bool]]]

WHY_LEFT_OUT = "it leads out of the folder, or cannot be read"
_CHUNK = 256 * 1024
_FILES_AT_ONCE = 8
#: The agent's words for a file that is there but cannot be had.
_NOT_TO_BE_HAD = ("denied", "outside", "is_folder")
_MOST_NAMED = 5
#: Of what did not come home as it is over there, so much is told.
_MOST_TOLD = 10


class Fetched(Struct):
    """What came home of one job."""

    folder: str
    files: int = 0
    bytes: int = 0
    #: Where the first of what it printed is.
    printed: str = ""
    #: Files that a person has here with other content, and where the newer copy went.
    conflicts: list[tuple[str, str]] = field(default_factory=list)
    #: Names that were left out: they would lead out of the folder, or cannot be read.
    refused: list[str] = field(default_factory=list)
    #: Where something of a person's is in place of a folder that is needed.
    in_the_way: list[str] = field(default_factory=list)

    #: Paths that were asked for, and of which nothing was made; and the first of what was.
    missing: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)

    def obstacle(self) -> str:
        """Why some of it is not here; it stays on its machine until it is."""
        if not self.in_the_way:
            return ""
        more = len(self.in_the_way) - 1
        return f"there is a file in the way of {self.in_the_way[0]}" + (
            f" and {more} more" if more else ""
        )

    def remarks(self) -> list[str]:
        """What did not come home under its own name, in words."""
        top = os.path.dirname(os.path.dirname(self.folder))
        told = [
            f"{KEPT}{os.path.relpath(here, top)} as it was; "
            f"the newer copy is {os.path.relpath(newer, top)}"
            for here, newer in self.conflicts
        ]
        told += [f"{LEFT_OUT}{name}: {WHY_LEFT_OUT}" for name in self.refused]
        told += [_not_made(path, self.made) for path in self.missing]
        more = len(told) - _MOST_TOLD
        return told[:_MOST_TOLD] + ([f"{LEFT_OUT}{more} more remarks"] if more > 0 else [])


class Fetching:
    """One fetch of what is there of a job."""

    def __init__(
        self, machines: Machines, writers: Executor, job: Job, placer: Placer, back: tuple[str, ...]
    ) -> None:
        self.machines = machines
        #: Where files are written.
        self.writers = writers
        self.job = job
        self.placer = placer
        self.back = back
        self.fetched = Fetched(placer.folder)
        self.fetched.missing = [] if "." in back else list(dict.fromkeys(back))

    async def process(self, rank: int, suffix: str) -> None:
        """What one process made, and what it printed."""
        placer = self.placer
        folder = os.path.join(placer.folder, suffix) if suffix else placer.folder
        await self._files(rank, folder)
        for stream in ("out", "err"):
            name = ".".join(part for part in (placer.folder, suffix, stream) if part)
            await self._stream(rank, stream, name)

    async def in_thread(self, do: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.writers, lambda: do(*args, **named))

    async def _files(self, rank: int, folder: str) -> None:
        changed: set[str] = set()
        links: list[dict[str, Any]] = []
        async for found in pages(self.machines, self.job, rank, "changed"):
            made = self.fetched.made
            made += [entry["name"] for entry in found[: _MOST_NAMED - len(made)]]
            links += await self._bring(rank, found, folder)
            if self.job.spec.whole:
                changed.update(entry["name"] for entry in found)
        if self.job.spec.whole:
            try:
                await self.in_thread(self.placer.make_folders, folder)
            except InTheWay:
                self.fetched.in_the_way.append(folder)
                return
            unchanged = await unchanged_files(self.machines, self.job, rank, changed)
            links += await self._bring(rank, unchanged, folder)
        # Links last, one after the other: no file is written through one of them.
        for entry in links:
            await self.in_thread(self._link, entry, folder)

    async def _bring(
        self, rank: int, found: list[dict[str, Any]], folder: str
    ) -> list[dict[str, Any]]:
        """Bring the files home; the links among them are left for later."""
        for path in self.fetched.missing[:]:
            if any(_named(entry["name"], (path,)) for entry in found):
                self.fetched.missing.remove(path)
        found = [entry for entry in found if _named(entry["name"], self.back)]
        files = [entry for entry in found if entry["kind"] != "link"]
        for at in range(0, len(files), _FILES_AT_ONCE):
            some = files[at : at + _FILES_AT_ONCE]
            work = (self._file(rank, entry, folder) for entry in some)
            # All of them to their end: nobody writes any more when this returns.
            for problem in await asyncio.gather(*work, return_exceptions=True):
                if problem is not None:
                    raise problem
        return [entry for entry in found if entry["kind"] == "link"]

    async def _file(self, rank: int, entry: dict[str, Any], folder: str) -> None:
        name = entry["name"]

        async def read(offset: int) -> tuple[bytes, bool]:
            if "blob" in entry:
                return await self.in_thread(self._at_home, entry["blob"], offset)
            header, blob = await self.machines.file_operation(
                self.job, rank, "get", path=name, offset=offset, limit=_CHUNK
            )
            return blob, header["eof"]

        target = await self.in_thread(inside, folder, name)
        if target is None:
            self.fetched.refused.append(name)
            return
        try:
            size, _ = await self._download(read, target, entry["mode"])
        except InTheWay:
            self.fetched.in_the_way.append(target)
            return
        except AgentError as error:
            if error.code == "no_such_file":
                return  # the job removed it since it was listed
            if error.code not in _NOT_TO_BE_HAD:
                raise
            self.fetched.refused.append(name)
            return
        self.fetched.files += 1
        self.fetched.bytes += size

    def _at_home(self, digest: str, offset: int) -> tuple[bytes, bool]:
        with self.machines.blobs.open(digest) as source:
            source.seek(offset)
            piece = source.read(_CHUNK)
            return piece, len(piece) < _CHUNK

    def _link(self, entry: dict[str, Any], folder: str) -> None:
        """A link comes home only if it stays inside."""
        target, aim = inside(folder, entry["name"]), entry["target"]
        if target is None or leads_out(folder, target, aim):
            self.fetched.refused.append(entry["name"])
            return
        try:
            self.placer.place_link(target, aim)
        except InTheWay:
            self.fetched.in_the_way.append(target)
            return
        self.fetched.files += 1

    async def _stream(self, rank: int, stream: str, path: str) -> None:
        async def read(offset: int) -> tuple[bytes, bool]:
            blob, _ = await self.machines.read_log(self.job, rank, stream, offset, wait=False)
            return blob, len(blob) < _CHUNK

        empty = self.job.spec.empty_outputs
        try:
            size, place = await self._download(read, path, 0o666, grows=True, empty=empty)
        except InTheWay:
            self.fetched.in_the_way.append(path)
            return
        self.fetched.bytes += size
        self.fetched.printed = self.fetched.printed or (place if size else "")

    async def _download(
        self, read: Read, target: str, mode: int, grows: bool = False, empty: bool = True
    ) -> tuple[int, str]:
        """Write beside, then put into place; how long it is and where."""
        blob, at_end = await read(0)
        if at_end:
            if not blob and not empty:
                return 0, ""
            place = await self.in_thread(self.placer.place_whole, target, blob, mode, grows)
            return len(blob), place
        part = await self.in_thread(self.placer.begin, target)
        try:
            await self.in_thread(part.write, blob)
            while not at_end:
                blob, at_end = await read(part.size)
                await self.in_thread(part.write, blob)
            return part.size, await self.in_thread(self.placer.place, part, target, mode, grows)
        finally:
            part.discard()


def _not_made(path: str, made: list[str]) -> str:
    """That nothing of a path came home, and what there is instead."""
    instead = f"it made: {', '.join(sorted(made))}" if made else "it made nothing"
    return f"{path} was not made or changed: nothing of it came home ({instead})"


def _named(name: str, back: tuple[str, ...]) -> bool:
    """Whether one of these paths leads to it; no paths: to everything, as does `.`."""
    if not back or "." in back:
        return True
    return any(name == path or name.startswith(f"{path}/") for path in back)
