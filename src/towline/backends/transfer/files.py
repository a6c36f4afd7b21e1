"""Many files of a job in one transfer: short ones together, long ones piece by piece."""

from collections import deque
from collections.abc import AsyncIterator, Container, Iterator, Sequence
from typing import Any

from msgspec import Struct

from towline.agent.link import Answer, Link
from towline.agent.messages import read_error
from towline.backends.terms import SHORT, Part, WantedFile
from towline.backends.transfer.flow import MOST_TOGETHER, PIECE, Flow
from towline.errors import AgentError, Nonsense

#: One message holds no more than so many.
_MANY = 500


class _Together(Struct, frozen=True):
    """Short files, by their index."""

    indexes: list[int]
    size: int


class _FilePiece(Struct, frozen=True):
    """A piece of a long one."""

    index: int
    offset: int


async def read_files(
    link: Link, wanted: Sequence[WantedFile], **fields: Any
) -> AsyncIterator[Part]:
    """The contents of every wanted file, as they are now; `fields` say whose files they are."""
    grown: deque[_FilePiece] = deque()
    over: set[int] = set()
    requests = _requests(wanted, over)
    with Flow[_Together | _FilePiece](link) as flow:
        more = True
        while more or len(flow):
            while more and flow.has_room:
                request = grown.popleft() if grown else next(requests, None)
                more = request is not None
                if request is not None:
                    _ask(flow, request, wanted, fields)
            if not len(flow):
                return
            tag, answer = await flow.take()
            for part in _parts(link.host.name, tag, answer):
                if part.index in over:
                    continue
                if part.last:
                    over.add(part.index)
                elif part.offset + len(part.data) >= _planned(tag, wanted):
                    # It is longer than it was said to be.
                    grown.append(_FilePiece(part.index, part.offset + len(part.data)))
                    more = True
                yield part


def _planned(tag: _Together | _FilePiece, wanted: Sequence[WantedFile]) -> int:
    """How much of a file was going to be asked for from the beginning, besides this."""
    return wanted[tag.index].size if isinstance(tag, _FilePiece) else 0


def _requests(
    wanted: Sequence[WantedFile], over: Container[int]
) -> Iterator[_Together | _FilePiece]:
    """What to ask for; of a file that is `over` by then no more, however long it was said to be."""
    together: list[int] = []
    size = 0
    for index, file in enumerate(wanted):
        if file.size > SHORT or file.offset:
            for offset in range(file.offset, max(file.size, file.offset + 1), PIECE):
                if index in over:
                    break
                yield _FilePiece(index, offset)
            continue
        if together and (size + file.size > MOST_TOGETHER or len(together) == _MANY):
            yield _Together(together, size)
            together, size = [], 0
        together.append(index)
        size += file.size
    if together:
        yield _Together(together, size)


def _ask(
    flow: "Flow[_Together | _FilePiece]",
    request: _Together | _FilePiece,
    wanted: Sequence[WantedFile],
    fields: dict[str, Any],
) -> None:
    if isinstance(request, _FilePiece):
        path, offset = wanted[request.index].path, request.offset
        flow.ask(request, PIECE, "get", path=path, offset=offset, limit=PIECE, **fields)
        return
    paths = [wanted[index].path for index in request.indexes]
    # Names travel too: a thousand empty files are not nothing.
    size = request.size + sum(map(len, paths))
    flow.ask(request, size, "get_many", paths=paths, **fields)


def _parts(name: str, tag: _Together | _FilePiece, answer: Answer | AgentError) -> Iterator[Part]:
    """What an answer brought of each file that it was asked for."""
    if isinstance(tag, _FilePiece):
        yield _part(tag, answer)
        return
    if isinstance(answer, AgentError):
        for index in tag.indexes:
            yield Part(index, 0, b"", last=True, error=answer)
        return
    header, blob = answer
    content = memoryview(blob)
    at = 0
    if len(header["files"]) != len(tag.indexes):
        raise Nonsense(f"{name}: an answer about other files than those that were asked for")
    for index, found in zip(tag.indexes, header["files"], strict=True):
        if found.get("error"):
            yield Part(index, 0, b"", last=True, error=read_error(found["error"], name))
            continue
        data = content[at : at + found["got"]]
        at += len(data)
        yield Part(index, 0, data, last=len(data) >= found["size"])


def _part(tag: _FilePiece, answer: Answer | AgentError) -> Part:
    if isinstance(answer, AgentError):
        return Part(tag.index, tag.offset, b"", last=True, error=answer)
    header, blob = answer
    # Shorter than was asked for: that is how long it is now.
    last = len(blob) < PIECE or tag.offset + len(blob) >= header["size"]
    return Part(tag.index, tag.offset, blob, last)
