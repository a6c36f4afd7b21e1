"""One fetch: everything that is there of a job, file by file, and what it printed.

Files are written in threads: the loop never waits for a disk.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, ParamSpec, TypeVar

from msgspec import Struct, field

from towline.backends.base import FileSource
from towline.backends.terms import SHORT, FileEntry, Found, Wanted
from towline.engine.results.fetched import Fetched
from towline.engine.results.followed import OVERLAP, Copy, Followed
from towline.engine.results.unchanged import unchanged_files
from towline.errors import AgentError, HostError, Unreachable
from towline.model.job import Job
from towline.workspace.parts import Part, size_here
from towline.workspace.placing import InTheWay, Placer, all_inside, inside, leads_out

P = ParamSpec("P")
T = TypeVar("T")

_CHUNK = 256 * 1024
#: So many short files are written at a time.
_TOGETHER = 200
#: The agent's words for a file that is there but cannot be had.
_NOT_TO_BE_HAD = ("denied", "outside", "is_folder")
_MOST_NAMED = 5


class Coming(Struct):
    """A file on its way home."""

    name: str
    size: int
    mode: int
    target: str
    #: Of a long one: which content it is, as far as that is certain, and what is here of it.
    what: str = ""
    part: Part | None = None
    is_in_the_way: bool = False


class Later(Struct):
    """What of a list is brought once all of it is known."""

    long: list[Coming] = field(default_factory=list)
    links: list[FileEntry] = field(default_factory=list)


class Fetching:
    """One fetch of what is there of a job."""

    def __init__(
        self,
        source: FileSource,
        writers: Executor,
        followed: Followed,
        job: Job,
        placer: Placer,
        back: tuple[str, ...],
    ) -> None:
        self.source = source
        self.followed = followed
        #: Where files are written.
        self.writers = writers
        self.job = job
        self.placer = placer
        self.back = back
        self.fetched = Fetched(placer.folder)
        #: How much has come, of all that is known to come.
        self.came = self.total = 0
        self._counting = threading.Lock()
        self.fetched.missing = [] if "." in back else list(dict.fromkeys(back))

    async def process(self, rank: int, suffix: str) -> None:
        """What one process made, and what it printed."""
        placer = self.placer
        assert self.job.attempt is not None
        printed = {"out": -1, "err": -1}
        ending = self.job.attempt.endings.get(rank)
        if ending is not None and ending.made >= 0:
            printed = {"out": ending.out_size, "err": ending.err_size}
        self.total += sum(max(0, size) for size in printed.values())
        folder = os.path.join(placer.folder, suffix) if suffix else placer.folder
        streams = [
            self._stream(rank, stream, ".".join(filter(None, (placer.folder, suffix, stream))))
            for stream, size in printed.items()
            # Of what its end said that it is empty, nothing has to be asked.
            if size or self.job.spec.empty_outputs
        ]
        _, *places = await _together(self._files(rank, folder), *streams)
        for place in places:
            self.fetched.printed = self.fetched.printed or place

    async def in_thread(self, do: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.writers, lambda: do(*args, **named))

    async def _files(self, rank: int, folder: str) -> str:
        changed: set[str] = set()
        later = Later()
        async for found in self._changed(rank):
            made = self.fetched.made
            made += [one.entry["name"] for one in found[: _MOST_NAMED - len(made)]]
            await self._bring(rank, found, folder, later)
            if self.job.spec.whole:
                changed.update(one.entry["name"] for one in found)
        if self.job.spec.whole:
            try:
                await self.in_thread(self.placer.make_folders, folder)
            except InTheWay:
                self.fetched.in_the_way.append(folder)
                return folder
            unchanged = await unchanged_files(self.source, self.job, rank, changed)
            await self._bring(rank, list(map(Found, unchanged)), folder, later)
        await self._receive(rank, later.long)
        # Links last, one after the other: no file is written through one of them.
        for entry in later.links:
            await self.in_thread(self._link, entry, folder)
        return folder

    def _changed(self, rank: int) -> AsyncIterator[list[Found]]:
        """What the process made; where only some of it is wanted, the rest does not travel."""
        there = self.source.files(self.job, rank)
        if not self.back or "." in self.back:
            return there.gathered("changed")
        return _without_contents(there.listed("changed"))

    async def _bring(self, rank: int, found: list[Found], folder: str, later: "Later") -> None:
        """Put into place what came whole; the rest is for `later`."""
        for path in self.fetched.missing[:]:
            if any(_named(one.entry["name"], (path,)) for one in found):
                self.fetched.missing.remove(path)
        found = [one for one in found if _named(one.entry["name"], self.back)]
        size = sum(len(one.content) for one in found if one.content is not None)
        self.total += size
        await self.in_thread(self._place_found, rank, found, folder, later)
        self.came += size

    def _place_found(self, rank: int, found: list[Found], folder: str, later: "Later") -> None:
        whole: list[tuple[Coming, bytes | memoryview]] = []
        targets = all_inside(folder, [one.entry["name"] for one in found])
        for one, target in zip(found, targets, strict=True):
            entry = one.entry
            if entry["kind"] == "link":
                later.links.append(entry)
            elif target is None:
                self.fetched.refused.append(entry["name"])
            elif "blob" in entry:
                self._copy(entry, target)
            elif one.content is not None:
                whole.append((Coming(entry["name"], 0, entry["mode"], target), one.content))
            else:
                what = self._what(rank, entry) if entry["size"] > SHORT else ""
                later.long.append(Coming(entry["name"], entry["size"], entry["mode"], target, what))
        self._place_all(whole)

    async def _receive(self, rank: int, coming: list[Coming]) -> None:
        """All in one transfer: the next ones are on their way while these are written."""
        self.total += sum(file.size for file in coming)
        wanted = await self.in_thread(lambda: [_wanted(file) for file in coming])
        self.came += sum(file.offset for file in wanted)
        whole: list[tuple[Coming, bytes | memoryview]] = []
        together = 0
        try:
            async for part in self.source.files(self.job, rank).read_all(wanted):
                file = coming[part.index]
                self.came += len(part.data)
                if part.error is not None:
                    self._refused(file, part.error)
                elif part.last and not part.offset:
                    whole.append((file, part.data))
                    together += len(part.data)
                else:
                    await self.in_thread(
                        self._write, file, part.offset, bytes(part.data), part.last
                    )
                if len(whole) == _TOGETHER or together > _CHUNK:
                    await self.in_thread(self._place_all, whole)
                    whole, together = [], 0
            await self.in_thread(self._place_all, whole)
        except (HostError, asyncio.CancelledError):
            for file in coming:
                if file.part is not None:
                    file.part.leave()
                    file.part = None
            raise
        finally:
            for file in coming:
                if file.part is not None:
                    file.part.discard()

    def _what(self, rank: int, entry: FileEntry) -> str:
        """Which content a file is, once it will not change any more."""
        attempt = self.job.attempt
        if not self.job.state.final or attempt is None:
            return ""
        whose = (self.job.id, attempt.number, attempt.token, rank)
        facts = (*whose, entry["name"], entry.get("size"), entry.get("mtime"))
        return "\0".join(map(str, facts))

    def _refused(self, file: Coming, error: AgentError) -> None:
        if error.code == "no_such_file":
            return  # the job removed it since it was listed
        if error.code not in _NOT_TO_BE_HAD:
            raise error
        self.fetched.refused.append(file.name)

    def _place_all(self, files: list[tuple[Coming, bytes | memoryview]]) -> None:
        """Put short files into place."""
        for file, content in files:
            try:
                self.placer.place_whole(file.target, content, file.mode)
            except InTheWay:
                self.fetched.in_the_way.append(file.target)
            else:
                self._count(len(content))

    def _write(self, file: Coming, offset: int, content: bytes, last: bool) -> None:
        """Go on with a long file, and put it into place once it is whole."""
        if file.is_in_the_way:
            return
        try:
            if file.part is None:
                file.part = self.placer.begin(file.target, file.what)
            if file.part.size != offset:
                file.part.discard()
                raise Unreachable(f"{file.target}: somebody changed what has come of it")
            file.part.write(content)
            if last:
                self.placer.place(file.part, file.target, file.mode)
                self._count(file.part.size)
        except InTheWay:
            file.is_in_the_way = True
            self.fetched.in_the_way.append(file.target)

    def _count(self, size: int, files: int = 1) -> None:
        with self._counting:
            self.fetched.files += files
            self.fetched.bytes += size

    def _copy(self, entry: FileEntry, target: str) -> None:
        """A file whose content is here already."""
        file = Coming(entry["name"], 0, entry["mode"], target)
        with self.source.blobs.open(entry["blob"]) as source:
            offset, piece = 0, source.read(_CHUNK)
            while not file.is_in_the_way:
                following = source.read(_CHUNK)
                self._write(file, offset, piece, not following)
                if not following:
                    break
                offset, piece = offset + len(piece), following
        if file.part is not None:
            file.part.discard()

    def _link(self, entry: FileEntry, folder: str) -> None:
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
        self._count(0)

    async def _stream(self, rank: int, stream: str, path: str) -> str:
        """Where it is, if there is any."""
        known = self.followed.take(self.job, rank, stream)
        try:
            size, place = await self._brought_stream(rank, stream, path, known)
        except InTheWay:
            self.fetched.in_the_way.append(path)
            return ""
        finally:
            if known is not None:
                known.close()
        self._count(size, files=0)
        return place if size else ""

    async def _brought_stream(
        self, rank: int, stream: str, path: str, known: Copy | None
    ) -> tuple[int, str]:
        """How long it is and where; what a follower got of it does not travel again."""
        output = self.source.files(self.job, rank).output
        if known is not None:
            pieces = output(stream, known.size - OVERLAP)
            first = await anext(pieces, b"")
            if first[:OVERLAP] == await self.in_thread(known.end):
                return await self._write_long(path, known, first[OVERLAP:], pieces)
        what = self._what(rank, {"name": f"\0{stream}", "kind": "file"})
        if here := await self.in_thread(size_here, os.path.dirname(path), what):
            return await self._write_long(path, None, b"", output(stream, here), what)
        pieces = output(stream)
        first, second = await anext(pieces, b""), await anext(pieces, None)
        if second is not None:
            return await self._write_long(path, None, first + second, pieces, what)
        if not first and not self.job.spec.empty_outputs:
            return 0, ""
        place = await self.in_thread(self.placer.place_whole, path, first, 0o666, True)
        return len(first), place

    async def _write_long(
        self,
        path: str,
        known: Copy | None,
        first: bytes,
        pieces: AsyncIterator[bytes],
        what: str = "",
    ) -> tuple[int, str]:
        """Write beside, then put into place; how long it is and where."""
        part = await self.in_thread(self.placer.begin, path, what)
        try:
            if known is not None:
                await self.in_thread(known.copy_to, part)
            await self.in_thread(part.write, first)
            before = self.came
            self.came += part.size
            async for piece in pieces:
                await self.in_thread(part.write, piece)
                self.came = before + part.size
            return part.size, await self.in_thread(self.placer.place, part, path, 0o666, True)
        except (HostError, asyncio.CancelledError):
            part.leave()
            raise
        finally:
            if not part.left:
                part.discard()


async def _together(*work: Coroutine[Any, Any, str]) -> list[str]:
    """All at the same time; when one fails, so do the others."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _without_contents(
    pages: AsyncIterator[list[FileEntry]],
) -> AsyncIterator[list[Found]]:
    async for page in pages:
        yield [Found(entry) for entry in page]


def _wanted(file: Coming) -> Wanted:
    """Of what an Engine was killed over, only the rest."""
    here = size_here(os.path.dirname(file.target), file.what)
    return Wanted(file.name, file.size, here if here <= file.size else 0)


def _named(name: str, back: tuple[str, ...]) -> bool:
    """Whether one of these paths leads to it; no paths: to everything, as does `.`."""
    if not back or "." in back:
        return True
    return any(name == path or name.startswith(f"{path}/") for path in back)
