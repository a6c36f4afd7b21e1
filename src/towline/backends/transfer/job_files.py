"""The files of one process of a job, read and written over whatever connection there is.

A transfer that a broken connection interrupts goes on where it was, in the middle of a file too.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from towline.agent.link import Answer
from towline.backends.terms import (
    SHORT,
    Collected,
    FileEntry,
    FileList,
    FilePage,
    FoundFile,
    Part,
    UploadPiece,
    WantedFile,
)
from towline.backends.transfer.files import read_files
from towline.backends.transfer.flow import PIECE, read_range
from towline.backends.transfer.listing import gathered, pages
from towline.backends.transfer.patience import Reach, TransferPatience, ask_patiently
from towline.backends.transfer.upload import Upload
from towline.errors import AgentError, HostError

#: So much short files travel in one message, and no more than so many.
_TOGETHER = 512 << 10
_MANY = 500
#: A folder of any size may be copied on the machine first: so often it is asked whether it is.
_SOON_S, _AGAIN_S = 0.05, 5.0


class JobFiles:
    """`kept`: what it keeps for the next job, instead of its own tree."""

    def __init__(self, reach: Reach, kept: bool = False) -> None:
        self._reach = reach
        self._about: dict[str, Any] = {"kept": True} if kept else {}

    async def entries(self, path: str) -> FilePage:
        """What is in a folder."""
        header = await ask_patiently(self._reach, "list", path=path, **self._about)
        return FilePage(header["entries"], header.get("more", False))

    async def stat(self, path: str) -> FileEntry:
        """What a path is; a link inside the job's folder is followed."""
        header = await ask_patiently(self._reach, "stat", path=path, **self._about)
        return cast("FileEntry", header)

    async def collected(self) -> Collected:
        """Wait until what the process wrote outside of its folder is in it; it has ended."""
        pause_s = _SOON_S
        while not (header := await ask_patiently(self._reach, "collect"))["done"]:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _AGAIN_S)
        return msgspec.convert(header, Collected)

    async def walk(self, path: str) -> FilePage:
        """The files below a folder, as many as one answer has room for."""
        header = await ask_patiently(self._reach, "walk", path=path, **self._about)
        return FilePage(header["files"], header.get("more", False))

    async def read(
        self, path: str, offset: int = 0, end: int | None = None
    ) -> AsyncIterator[tuple[int, bytes]]:
        """The bytes of a file from `offset` up to `end`, each piece with the file's size."""
        version = ""
        async for header, blob in self._range("get", offset, end, path=path, **self._about):
            if version and header["version"] != version:
                raise AgentError(f"{path} was replaced by another file meanwhile")
            version = header["version"]
            yield header["size"], blob

    async def output(self, stream: str, offset: int = 0) -> AsyncIterator[bytes]:
        """What was printed until now, from `offset` on."""
        async for _, blob in self._range("read", offset, None, stream=stream, wait=False):
            yield blob

    async def _range(
        self, op: str, offset: int, end: int | None, **fields: Any
    ) -> AsyncIterator[Answer]:
        """The pieces of something long, over as many connections as it takes."""
        patience = TransferPatience()
        while True:
            link, key = await self._reach()
            try:
                async for answer in read_range(link, op, offset, end, key=key, **fields):
                    offset += len(answer[1])
                    patience.renew()
                    yield answer
                return
            except HostError as error:
                patience.lose(error)

    async def listed(self, of: FileList, path: str = "") -> AsyncIterator[list[FileEntry]]:
        """All files of a list, some at a time."""

        def ask(after: int) -> Coroutine[Any, Any, dict[str, Any]]:
            return ask_patiently(self._reach, of, after=after, **self._fields(of, path))

        async for page in pages(ask):
            yield page

    async def gathered(self, of: FileList, path: str = "") -> AsyncIterator[list[FoundFile]]:
        """The same with what is in the short files, as far as one connection brings it."""
        known: set[str] = set()
        link, key = await self._reach()
        try:
            async for found in gathered(link, of, key=key, **self._fields(of, path)):
                known.update(one.entry["name"] for one in found)
                yield found
            return
        except HostError:
            pass
        # Nothing travels twice, or a long list would not come over a connection that breaks often.
        async for page in self.listed(of, path):
            yield [FoundFile(entry) for entry in page if entry["name"] not in known]

    def _fields(self, of: FileList, path: str) -> dict[str, Any]:
        return self._about | ({"path": path} if of == "walk" else {})

    async def read_all(self, wanted: Sequence[WantedFile]) -> AsyncIterator[Part]:
        """The contents of many files, in parts; `index` says which of them a part is of."""
        patience = TransferPatience()
        left = dict(enumerate(wanted))
        while left:
            link, key = await self._reach()
            indexes = list(left)
            try:
                async for part in read_files(link, list(left.values()), key=key, **self._about):
                    index = indexes[part.index]
                    if part.last:
                        del left[index]
                    else:
                        left[index] = replace(left[index], offset=part.offset + len(part.data))
                    patience.renew()
                    yield replace(part, index=index)
            except HostError as error:
                patience.lose(error)

    async def write(self, path: str, mode: int, pieces: AsyncIterator[bytes]) -> int:
        """Make a file of these bytes; it has its name only once it is whole. Its size."""
        return await self.write_all(_in_order(path, mode, pieces))

    async def write_all(self, pieces: AsyncIterator[UploadPiece]) -> int:
        """Make many files; the pieces of each come in order. How many bytes they have."""
        size = 0
        short: list[UploadPiece] = []
        with Upload(self._reach, **self._about) as upload:
            async for piece in pieces:
                size += len(piece.data)
                if piece.offset or not piece.last or len(piece.data) > SHORT:
                    await _send_piece(upload, piece)
                    continue
                if len(short) == _MANY or sum(len(one.data) for one in short) > _TOGETHER:
                    await _send_together(upload, short)
                    short = []
                short.append(piece)
            if short:
                await _send_together(upload, short)
            await upload.finish()
        return size


async def _send_piece(upload: Upload, piece: UploadPiece) -> None:
    about = {"path": piece.path, "mode": piece.mode}
    await upload.send("put", piece.data, offset=piece.offset, last=piece.last, **about)


async def _send_together(upload: Upload, pieces: list[UploadPiece]) -> None:
    files = [[piece.path, len(piece.data), piece.mode] for piece in pieces]
    body = b"".join(piece.data for piece in pieces)
    await upload.send("put_many", body, files=files)


async def _in_order(
    path: str, mode: int, pieces: AsyncIterator[bytes]
) -> AsyncIterator[UploadPiece]:
    """Bytes as they come, as pieces of one file."""
    held, offset = bytearray(), 0
    async for some in pieces:
        held += some
        while len(held) > PIECE:
            yield UploadPiece(path, mode, offset, bytes(held[:PIECE]), last=False)
            del held[:PIECE]
            offset += PIECE
    yield UploadPiece(path, mode, offset, bytes(held), last=True)
