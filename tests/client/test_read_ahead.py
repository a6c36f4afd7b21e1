"""A file read from front to back is asked for once; one that is jumped about in, exactly."""

from random import Random

import pytest

from towline.client.read_ahead import KEPT, NEAR, ReadAhead
from towline.client.transport import Gone

CONTENT = Random(1).randbytes(3 * NEAR + 12345)


class Stream:
    """A reply whose body comes in odd pieces, and breaks where it is told to."""

    def __init__(self, content: bytes, breaks_after: int | None) -> None:
        self.content = content
        self.at = 0
        self.breaks_after = breaks_after
        self.closed = False

    def read(self) -> bytes:
        if self.breaks_after is not None and self.at >= self.breaks_after:
            raise Gone("the Engine closed the connection")
        piece = self.content[self.at : self.at + 70_001]
        self.at += len(piece)
        return piece

    def close(self) -> None:
        self.closed = True


class File:
    def __init__(self, breaks_after: int | None = None) -> None:
        self.content = CONTENT
        self.breaks_after = breaks_after
        self.streams: list[Stream] = []
        self.fetched: list[tuple[int, int]] = []
        self.reader = ReadAhead(self._stream, self._fetch)  # type: ignore[arg-type]

    def _stream(self, offset: int) -> Stream:
        self.streams.append(Stream(self.content[offset:], self.breaks_after))
        return self.streams[-1]

    def _fetch(self, start: int, end: int) -> bytes:
        self.fetched.append((start, end))
        return self.content[start:end]

    def read_all(self, size: int) -> bytes:
        pieces = []
        while piece := self.reader.read(at := sum(map(len, pieces)), at + size):
            pieces.append(piece)
        return b"".join(pieces)


@pytest.mark.parametrize("size", [1 << 12, 1 << 17, 1 << 20])
def test_from_front_to_back_it_is_one_stream(size: int) -> None:
    file = File()
    assert file.read_all(size) == CONTENT
    assert len(file.streams) == 1
    assert len(file.fetched) <= 3, "the first piece, and the end"


def test_pieces_that_come_out_of_order_are_all_right() -> None:
    file, size, random = File(), 1 << 17, Random(2)
    offsets = list(range(0, len(CONTENT), size))
    for at in range(2, len(offsets) - 4, 4):
        offsets[at : at + 4] = random.sample(offsets[at : at + 4], 4)
    for offset in offsets:
        assert file.reader.read(offset, offset + size) == CONTENT[offset : offset + size]
    assert len(file.streams) <= 2 and len(file.fetched) <= 5


def test_who_jumps_about_gets_exactly_what_is_asked_for() -> None:
    file, random = File(), Random(3)
    places = [random.randrange(len(CONTENT)) for _ in range(50)]
    for place in places:
        assert file.reader.read(place, place + 100) == CONTENT[place : place + 100]
    assert len(file.fetched) == 50 and not file.streams


def test_what_a_lost_engine_does_not_give_is_fetched() -> None:
    file = File(breaks_after=1 << 20)
    assert file.read_all(1 << 17) == CONTENT
    assert all(stream.closed for stream in file.streams[:-1])


def test_a_file_that_grows_while_it_is_read_is_read_to_its_end() -> None:
    file = File()
    file.content = CONTENT[:1000]
    assert file.reader.read(0, 500) + file.reader.read(500, 1500) == CONTENT[:1000]
    file.content = CONTENT[:3000]
    assert file.reader.read(1000, 4000) == CONTENT[1000:3000]


def test_only_a_little_is_kept() -> None:
    file = File()
    for offset in range(0, 2 * KEPT, 1 << 17):
        file.reader.read(offset, offset + (1 << 17))
        assert len(file.reader._kept) <= KEPT
    file.reader.close()
    assert file.streams[0].closed
