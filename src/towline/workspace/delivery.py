"""The results of one attempt of a job, put into a folder of this machine as they come.

Files are written in threads: the loop never waits for a disk.
"""

import asyncio
import contextlib
import errno
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import ParamSpec, TypeVar

from towline.errors import CannotPlace, Unreachable
from towline.model.odd_text import keepable
from towline.snapshot.blobs import BlobStore
from towline.snapshot.syncing import sync_file_systems
from towline.workspace.base import Item, PlacedResults, Whole
from towline.workspace.inside import all_inside, inside, leads_out
from towline.workspace.parts import PartialFile, size_here
from towline.workspace.placing import InTheWay, Placer
from towline.workspace.settling import Settling

P = ParamSpec("P")
T = TypeVar("T")

_CHUNK = 256 * 1024
#: As soon as so many files were put into place, the disk begins with them.
_MANY = 1000
#: Somebody removed the folder while it was written to; this machine is too busy just now.
_FOR_A_MOMENT = frozenset(
    (errno.ENOENT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ESTALE)
)


class FolderDelivery:
    """A delivery into a folder of this machine (`Delivery` of base.py)."""

    def __init__(
        self,
        placer: Placer,
        blobs: BlobStore,
        writers: Executor,
        settling: Settling,
        left_over: list[str],
    ) -> None:
        self._placer = placer
        self._blobs = blobs
        self._writers = writers
        self._settling = settling
        #: What a killed Engine left of what may be gone on with.
        self._left_over = left_over
        self._placed = PlacedResults(placer.folder)
        self._counting = threading.Lock()
        #: What comes in pieces; None: there is something in its way.
        self._parts: dict[Item, PartialFile | None] = {}
        #: How many files the disk has not been told to begin with, and the last time it was.
        self._unsynced = 0
        self._syncing: asyncio.Future[None] | None = None

    async def _in_thread(self, do: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._writers, lambda: do(*args, **named))
        except OSError as error:
            raise cannot_place(self._placer.folder, error) from error

    # --- what comes whole --------------------------------------------------------------------

    async def make_folder(self, process: str) -> bool:
        folder = self._folder(process)
        try:
            await self._in_thread(self._placer.make_folders, folder)
        except InTheWay:
            self._placed.in_the_way.append(folder)
            return False
        return True

    async def put(self, files: Sequence[Whole]) -> None:
        if files:
            await self._in_thread(self._put, files)
            self._begin_to_sync(len(files))

    def _begin_to_sync(self, count: int) -> None:
        """See to it that little is left to wait for at the end, when everything must be on disk."""
        self._unsynced += count
        if self._unsynced < _MANY or not _went_well(self._syncing):
            return
        self._unsynced = 0
        loop = asyncio.get_running_loop()
        self._syncing = loop.run_in_executor(self._writers, sync_file_systems, [self._placer.top])
        self._syncing.add_done_callback(_went_well)

    def _put(self, files: Sequence[Whole]) -> None:
        for file, target in zip(files, self._targets([file.item for file in files]), strict=True):
            if target is None:
                self._placed.refused.append(file.item.name)
            elif file.blob:
                self._copy(file, target)
            else:
                self._put_one(file, target)

    def _put_one(self, file: Whole, target: str) -> None:
        try:
            self._placer.place_whole(target, file.data, file.item.mode)
        except InTheWay:
            self._placed.in_the_way.append(target)
        else:
            self._count(len(file.data))

    def _copy(self, file: Whole, target: str) -> None:
        """A file whose content is here already."""
        try:
            with self._blobs.open(file.blob) as source:
                part = self._placer.begin(target)
                try:
                    while piece := source.read(_CHUNK):
                        part.write(piece)
                    self._placer.place(part, target, file.item.mode)
                finally:
                    part.discard()
        except InTheWay:
            self._placed.in_the_way.append(target)
        else:
            self._count(part.size)

    async def put_link(self, item: Item, target: str) -> None:
        await self._in_thread(self._put_link, item, target)

    def _put_link(self, item: Item, aim: str) -> None:
        """A link comes home only if it stays inside."""
        folder = self._folder(item.process)
        target = inside(folder, item.name)
        if target is None or leads_out(folder, target, aim):
            self._placed.refused.append(item.name)
            return
        try:
            self._placer.place_link(target, aim)
        except InTheWay:
            self._placed.in_the_way.append(target)
        else:
            self._count(0)

    async def put_output(self, item: Item, content: bytes) -> str:
        path = self._output(item)
        try:
            place = await self._in_thread(
                self._placer.place_whole, path, content, item.mode, grows=True
            )
        except InTheWay:
            self._placed.in_the_way.append(path)
            return ""
        self._count(len(content), files=0)
        return place

    # --- what comes in pieces ----------------------------------------------------------------

    async def sizes(self, items: Sequence[Item]) -> list[int]:
        return await self._in_thread(self._sizes, items) if items else []

    def _sizes(self, items: Sequence[Item]) -> list[int]:
        found = []
        for item, target in zip(items, self._targets(items), strict=True):
            if target is None:
                self._placed.refused.append(item.name)
            found.append(size_here(os.path.dirname(target), item.content) if target else -1)
        return found

    async def write(self, item: Item, offset: int, content: bytes, last: bool) -> str:
        return await self._in_thread(self._write, item, offset, content, last)

    def _write(self, item: Item, offset: int, content: bytes, last: bool) -> str:
        [target] = self._targets([item])
        if target is None or (item in self._parts and self._parts[item] is None):
            return ""
        try:
            return self._go_on(item, target, offset, content, last)
        except InTheWay:
            self._parts[item] = None
            self._placed.in_the_way.append(target)
            return ""

    def _go_on(self, item: Item, target: str, offset: int, content: bytes, last: bool) -> str:
        part = self._parts.get(item)
        if part is None:
            part = self._parts[item] = self._placer.begin(target, item.content)
        if part.size != offset:
            part.discard()
            raise Unreachable(f"{target}: somebody changed what has come of it")
        part.write(content)
        if not last:
            return ""
        place = self._placer.place(part, target, item.mode, grows=bool(item.stream))
        self._count(part.size, files=0 if item.stream else 1)
        return place

    async def let_go(self, items: Sequence[Item], go_on: bool) -> None:
        # Not in a thread: it is the last thing done when the Engine is told to go.
        for item in items:
            part = self._parts.pop(item, None)
            if part is not None and go_on:
                part.leave()
            elif part is not None:
                part.discard()

    # --- the end -----------------------------------------------------------------------------

    async def finish(self, is_all: bool) -> PlacedResults:
        await self._in_thread(self._placer.reveal)
        if is_all:
            await self._in_thread(self._remove_older)
        try:
            if self._syncing is not None:
                await self._syncing
            await self._settling.on_disk(self._placer.placed)
        except OSError as error:
            raise cannot_place(self._placer.folder, error) from error
        placed = self._placed
        placed.in_the_way += self._placer.in_the_way
        placed.conflicts = self._placer.conflicts
        placed.kept = [(self._below(here), self._below(newer)) for here, newer in placed.conflicts]
        placed.memory = self._placer.brought().encoded()
        return placed

    def close(self) -> None:
        # Whoever has to know was told of what cannot be written.
        with contextlib.suppress(OSError):
            self._placer.close()

    def _remove_older(self) -> None:
        self._placer.remove_older()
        # What was gone on with has got its place; the rest is of files that are others now.
        while self._left_over:
            with contextlib.suppress(OSError):
                os.unlink(self._left_over.pop())

    # --- where things go ---------------------------------------------------------------------

    def _folder(self, process: str) -> str:
        return os.path.join(self._placer.folder, process) if process else self._placer.folder

    def _output(self, item: Item) -> str:
        return ".".join(filter(None, (self._placer.folder, item.process, item.stream)))

    def _targets(self, items: Sequence[Item]) -> list[str | None]:
        """Where each goes; None: its name would lead out of its folder."""
        found: list[str | None] = [None] * len(items)
        named: dict[str, list[int]] = {}
        for index, item in enumerate(items):
            if item.stream:
                found[index] = self._output(item)
            else:
                named.setdefault(item.process, []).append(index)
        for process, indexes in named.items():
            names = [items[index].name for index in indexes]
            targets = all_inside(self._folder(process), names)
            for index, target in zip(indexes, targets, strict=True):
                found[index] = target
        return found

    def _below(self, path: str) -> str:
        """As it is named in the folder that was submitted."""
        return keepable(os.path.relpath(path, os.path.dirname(self._placer.top)))

    def _count(self, size: int, files: int = 1) -> None:
        with self._counting:
            self._placed.files += files
            self._placed.bytes += size


def _went_well(syncing: "asyncio.Future[None] | None") -> bool:
    """False while it goes on, too. A failure is told at the end: the next sync does not know it."""
    if syncing is None:
        return True
    return syncing.done() and not syncing.cancelled() and syncing.exception() is None


def cannot_place(folder: str, error: OSError) -> CannotPlace:
    text = f"cannot write to {folder}: {error.strerror or error}"
    return CannotPlace(text, transient=error.errno in _FOR_A_MOMENT)
