"""One transfer from a machine: pieces are asked for ahead, and come in the order they were asked.

Memory is bounded by the window: what was asked for and nobody has taken yet is all there is.
"""

import asyncio
import hashlib
import itertools
import zlib
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from towline.agent.link import Answer, Link
from towline.backends.transfer.window import Path
from towline.errors import AgentError, Unreachable

Tag = TypeVar("Tag")
#: What one message carries of a long file or stream.
PIECE = 256 << 10
#: Of many short files, one message holds so much.
MOST_TOGETHER = 1 << 20

_numbers = itertools.count(1)
_paths: "WeakKeyDictionary[Link, tuple[Path, Path]]" = WeakKeyDictionary()


def path_to(link: Link, upwards: bool = False) -> Path:
    """What is known of the way that a link takes, down from the machine or up to it."""
    return _paths.setdefault(link, (Path(), Path()))[upwards]


class _FlowPiece(Generic[Tag]):
    def __init__(self, tag: Tag, size: int, answer: "asyncio.Future[Answer]") -> None:
        self.tag = tag
        self.size = size
        self.answer = answer


class Flow(Generic[Tag]):
    """Ask with `ask`, as long as it `has_room`; take with `take`. Use it in a `with`.

    `upwards`, the bytes go with the questions, and the answers only acknowledge them.
    """

    def __init__(self, link: Link, upwards: bool = False) -> None:
        self.link = link
        self.upwards = upwards
        self.number = next(_numbers)
        self.path = path_to(link, upwards)
        self._clock = asyncio.get_running_loop().time
        self._pieces: deque[_FlowPiece[Tag]] = deque()
        self._on_its_way = 0

    def __enter__(self) -> "Flow[Tag]":
        self.path.transfers += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.path.transfers -= 1
        self.clear()

    def __len__(self) -> int:
        return len(self._pieces)

    @property
    def has_room(self) -> bool:
        return not self._pieces or self._on_its_way < self.path.window

    def ask(self, tag: Tag, size: int, op: str, blob: bytes = b"", **fields: Any) -> None:
        """Ask for about `size` bytes, or send them; `tag` comes back with the answer."""
        asked = self.path.asked(self._clock())
        if not self.upwards:
            fields |= {"flow": self.number, "z": self.path.is_slow}
        answer = self.link.ask_soon(op, blob, **fields)
        self._pieces.append(_FlowPiece(tag, size, answer))
        self._on_its_way += size

        def arrived(done: "asyncio.Future[Answer]") -> None:
            if not done.cancelled() and done.exception() is None:
                carried = len(blob) if self.upwards else len(done.result()[1])
                self.path.arrived(asked, carried, self._clock())

        answer.add_done_callback(arrived)

    async def take(self) -> tuple[Tag, Answer | AgentError]:
        """The next answer, which may be a refusal; HostError if the machine is gone."""
        piece = self._pieces[0]
        try:
            return piece.tag, unpacked(self.link, await piece.answer)
        except AgentError as refusal:
            return piece.tag, refusal
        finally:
            self._pieces.popleft()
            self._on_its_way -= piece.size

    def clear(self) -> None:
        """Forget what was asked and has not been taken."""
        if not self._pieces:
            return
        for piece in self._pieces:
            if not piece.answer.cancel() and not piece.answer.cancelled():
                piece.answer.exception()  # one of them is told, the others are not news
        self._pieces.clear()
        self._on_its_way = 0
        if not self.upwards:
            self.link.send({"op": "drop", "drop": self.number})
            # What is still on its way under the old number is nobody's.
            self.number = next(_numbers)


def unpacked(link: Link, answer: Answer) -> Answer:
    """An answer with its bytes as they were over there, and certainly the same."""
    header, blob = answer
    if header.get("z"):
        # Bounded: a machine may say what it likes.
        blob = zlib.decompressobj().decompress(blob, MOST_TOGETHER)
    told = header.get("sha256")
    if told is not None and hashlib.sha256(blob).hexdigest() != told:
        raise Unreachable(
            f"{link.host.name}: a part of a file arrived damaged",
            hint="try again; if it happens often, its network or memory may be at fault",
        )
    return header, blob


#: Before it is known how long something is, so many pieces of it are asked for.
_UNSEEN = 4


async def read_range(
    link: Link, op: str, offset: int, end: int | None = None, **fields: Any
) -> AsyncIterator[Answer]:
    """All of a file or stream from `offset` on, up to `end`, or as long as it is by then.

    Every answer has the `size` of the whole; one that is shorter than was asked for, though there
    is more, is simply gone on from.
    """
    with Flow[tuple[int, int]](link) as flow:
        position = offset
        size: int | None = None
        while True:
            last = min(value for value in (end, size, _FAR) if value is not None)
            # At least one question, though it be for nothing: it tells whether the file is there.
            while (position < last or size is None) and flow.has_room:
                limit = max(0, min(PIECE, last - position))
                flow.ask((position, limit), limit, op, offset=position, limit=limit, **fields)
                position += limit
                if size is None and (len(flow) == _UNSEEN or position >= last):
                    break
            if not len(flow):
                return
            (at, limit), answer = await flow.take()
            if isinstance(answer, AgentError):
                raise answer
            header, blob = answer
            size = max(size or 0, header["size"])
            if blob or at == offset:
                yield header, blob
            if len(blob) < limit:
                flow.clear()
                position = at + len(blob)
                if not blob or position >= header["size"]:
                    return


_FAR = 1 << 62
