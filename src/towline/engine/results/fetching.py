"""One fetch: everything that is there of a job, file by file, and what it printed.

It is read here and handed to whoever puts it into place; where that is, nobody knows here.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from towline.backends.base import FileSource
from towline.backends.terms import SHORT, FileEntry, FoundFile, WantedFile
from towline.engine.results.fetched import Fetched
from towline.engine.results.followed import OVERLAP, Copy, FollowedOutputs
from towline.engine.results.unchanged import unchanged_files
from towline.errors import AgentError, HostError
from towline.model.job import Job
from towline.workspace.base import Delivery, Item, Whole

_CHUNK = 256 * 1024
#: So many short files are written at a time.
_TOGETHER = 200
#: The agent's words for a file that is there but cannot be had.
_NOT_TO_BE_HAD = ("denied", "outside", "is_folder")
_MOST_NAMED = 5


class ComingFile(Struct, frozen=True):
    """A file on its way home, once all of its list is known."""

    item: Item
    size: int


class Later(Struct):
    """What of a list is brought once all of it is known."""

    long: list[ComingFile] = field(default_factory=list)
    links: list[FileEntry] = field(default_factory=list)


class Fetching:
    """One fetch of what is there of a job."""

    def __init__(
        self,
        source: FileSource,
        followed: FollowedOutputs,
        job: Job,
        delivery: Delivery,
        back: tuple[str, ...],
    ) -> None:
        self.source = source
        self.followed = followed
        self.job = job
        self.delivery = delivery
        self.back = back
        self.fetched = Fetched()
        #: How much has come, of all that is known to come.
        self.came = self.total = 0
        self.fetched.missing = [] if "." in back else list(dict.fromkeys(back))

    async def process(self, rank: int, suffix: str) -> None:
        """What one process made, and what it printed."""
        assert self.job.attempt is not None
        printed = {"out": -1, "err": -1}
        ending = self.job.attempt.endings.get(rank)
        if ending is not None and ending.made >= 0:
            printed = {"out": ending.out_size, "err": ending.err_size}
        self.total += sum(max(0, size) for size in printed.values())
        streams = [
            self._stream(rank, Item(suffix, stream=stream))
            for stream, size in printed.items()
            # Of what its end said that it is empty, nothing has to be asked.
            if size or self.job.spec.empty_outputs
        ]
        _, *places = await _together(self._files(rank, suffix), *streams)
        for place in places:
            self.fetched.printed = self.fetched.printed or place

    async def finish(self, is_all: bool) -> Fetched:
        """Return once everything is on disk."""
        self.fetched.placed = await self.delivery.finish(is_all)
        return self.fetched

    async def _files(self, rank: int, suffix: str) -> str:
        changed: set[str] = set()
        later = Later()
        if self.job.state.final and _writes_outside(self.job):
            await self._collect(rank)
        async for found in self._changed(rank):
            made = self.fetched.made
            made += [one.entry["name"] for one in found[: _MOST_NAMED - len(made)]]
            await self._bring(rank, found, suffix, later)
            if self.job.spec.whole:
                changed.update(one.entry["name"] for one in found)
        if self.job.spec.whole:
            if not await self.delivery.make_folder(suffix):
                return ""
            unchanged = await unchanged_files(self.source, self.job, rank, changed)
            await self._bring(rank, list(map(FoundFile, unchanged)), suffix, later)
        await self._receive(rank, later.long)
        # Links last, one after the other: no file is written through one of them.
        for entry in later.links:
            await self.delivery.put_link(Item(suffix, entry["name"]), entry["target"])
        return ""

    async def _collect(self, rank: int) -> None:
        """What it wrote outside of its folder is put into it first, over there."""
        collected = await self.source.files(self.job, rank).collected()
        self.fetched.not_collected += collected.left_out
        self.fetched.uncollected += collected.count

    def _changed(self, rank: int) -> AsyncIterator[list[FoundFile]]:
        """What the process made; where only some of it is wanted, the rest does not travel."""
        there = self.source.files(self.job, rank)
        if not self.back or "." in self.back:
            return there.gathered("changed")
        return _without_contents(there.listed("changed"))

    async def _bring(self, rank: int, found: list[FoundFile], suffix: str, later: "Later") -> None:
        """Put into place what came whole; the rest is for `later`."""
        for path in self.fetched.missing[:]:
            if any(_named(one.entry["name"], (path,)) for one in found):
                self.fetched.missing.remove(path)
        whole: list[Whole] = []
        for one in found:
            entry = one.entry
            if not _named(entry["name"], self.back):
                continue
            if entry["kind"] == "link":
                later.links.append(entry)
            elif "blob" in entry:
                whole.append(Whole(self._item(rank, suffix, entry), blob=entry["blob"]))
            elif one.content is not None:
                whole.append(Whole(self._item(rank, suffix, entry), one.content))
            else:
                later.long.append(ComingFile(self._item(rank, suffix, entry), entry["size"]))
        size = sum(len(file.data) for file in whole)
        self.total += size
        await self.delivery.put(whole)
        self.came += size

    def _item(self, rank: int, suffix: str, entry: FileEntry) -> Item:
        what = self._what(rank, entry) if entry.get("size", 0) > SHORT else ""
        return Item(suffix, entry["name"], mode=entry["mode"], content=what)

    async def _receive(self, rank: int, files: list[ComingFile]) -> None:
        """All in one transfer: the next ones are on their way while these are written."""
        self.total += sum(file.size for file in files)
        here = await self.delivery.sizes([file.item for file in files])
        coming = [file for file, size in zip(files, here, strict=True) if size >= 0]
        # Of what an Engine was killed over, only the rest.
        wanted = [
            WantedFile(file.item.name, file.size, size if size <= file.size else 0)
            for file, size in zip(files, here, strict=True)
            if size >= 0
        ]
        self.came += sum(file.offset for file in wanted)
        go_on = False
        try:
            await self._read_all(rank, [file.item for file in coming], wanted)
        except (HostError, asyncio.CancelledError):
            go_on = True
            raise
        finally:
            await self.delivery.let_go([file.item for file in coming], go_on)

    async def _read_all(self, rank: int, items: list[Item], wanted: list[WantedFile]) -> None:
        whole: list[Whole] = []
        together = 0
        async for part in self.source.files(self.job, rank).read_all(wanted):
            item = items[part.index]
            self.came += len(part.data)
            if part.error is not None:
                self._refused(item, part.error)
            elif part.last and not part.offset:
                whole.append(Whole(item, part.data))
                together += len(part.data)
            else:
                await self.delivery.write(item, part.offset, bytes(part.data), part.last)
            if len(whole) == _TOGETHER or together > _CHUNK:
                await self.delivery.put(whole)
                whole, together = [], 0
        await self.delivery.put(whole)

    def _what(self, rank: int, entry: FileEntry) -> str:
        """Which content a file is, once it will not change any more."""
        attempt = self.job.attempt
        if not self.job.state.final or attempt is None:
            return ""
        whose = (self.job.id, attempt.number, attempt.token, rank)
        facts = (*whose, entry["name"], entry.get("size"), entry.get("mtime"))
        return "\0".join(map(str, facts))

    def _refused(self, item: Item, error: AgentError) -> None:
        if error.code == "no_such_file":
            return  # the job removed it since it was listed
        if error.code not in _NOT_TO_BE_HAD:
            raise error
        self.fetched.unreadable.append(item.name)

    # --- what it printed ---------------------------------------------------------------------

    async def _stream(self, rank: int, item: Item) -> str:
        """Where it is, if there is any."""
        known = self.followed.take(self.job, rank, item.stream)
        try:
            size, place = await self._brought_stream(rank, item, known)
        finally:
            if known is not None:
                known.close()
        return place if size else ""

    async def _brought_stream(self, rank: int, item: Item, known: Copy | None) -> tuple[int, str]:
        """How long it is and where; what a follower got of it does not travel again."""
        output = self.source.files(self.job, rank).output
        if known is not None:
            pieces = output(item.stream, known.size - OVERLAP)
            first = await anext(pieces, b"")
            if first[:OVERLAP] == await asyncio.to_thread(known.end):
                return await self._write_long(item, 0, _then(known, first[OVERLAP:], pieces))
        what = self._what(rank, {"name": f"\0{item.stream}", "kind": "file"})
        item = replace(item, content=what)
        [here] = await self.delivery.sizes([item])
        if here > 0:
            return await self._write_long(item, here, output(item.stream, here))
        pieces = output(item.stream)
        first, second = await anext(pieces, b""), await anext(pieces, None)
        if second is not None:
            return await self._write_long(item, 0, _then(None, first + second, pieces))
        if not first and not self.job.spec.empty_outputs:
            return 0, ""
        return len(first), await self.delivery.put_output(item, first)

    async def _write_long(
        self, item: Item, offset: int, pieces: AsyncIterator[bytes]
    ) -> tuple[int, str]:
        """Write it piece by piece, from an offset on; how long it is and where."""
        before, go_on = self.came, False
        self.came += offset
        try:
            async for piece in pieces:
                await self.delivery.write(item, offset, piece, last=False)
                offset += len(piece)
                self.came = before + offset
            return offset, await self.delivery.write(item, offset, b"", last=True)
        except (HostError, asyncio.CancelledError):
            go_on = True
            raise
        finally:
            await self.delivery.let_go([item], go_on)


async def _then(
    known: Copy | None, first: bytes, pieces: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    """What is known of an output, and what follows it."""
    at = 0
    while known is not None and (piece := await asyncio.to_thread(known.read, at)):
        yield piece
        at += len(piece)
    yield first
    async for piece in pieces:
        yield piece


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
) -> AsyncIterator[list[FoundFile]]:
    async for page in pages:
        yield [FoundFile(entry) for entry in page]


def _writes_outside(job: Job) -> bool:
    """Whether a folder elsewhere on the machine, which a variable names, is to come home too."""
    return any(target.startswith("$") for target in job.spec.links.values())


def _named(name: str, back: tuple[str, ...]) -> bool:
    """Whether one of these paths leads to it; no paths: to everything, as does `.`."""
    if not back or "." in back:
        return True
    return any(name == path or name.startswith(f"{path}/") for path in back)
