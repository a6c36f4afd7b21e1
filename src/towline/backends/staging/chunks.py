"""Contents on their way to a machine, as messages: small ones together, large ones in pieces."""

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from towline.snapshot.blobs import BlobStore
from towline.snapshot.views import Views

Buffer = bytes | memoryview
#: Bytes in one message: large ones cost less, small ones do not keep others waiting for long.
_LARGE, _SMALL = 2 << 20, 1 << 20
#: Contents up to this size travel many in one message.
_TOGETHER = 1 << 20
#: On a connection faster than this, compressing costs more time than it saves.
_FAST_BYTES_PER_S = 30e6
_NEAR_S = 0.01
_SAMPLE = 4096


class Chunk(Struct, frozen=True):
    """One message with contents; `size` is that of the contents."""

    op: str
    fields: dict[str, Any]
    body: Buffer
    size: int


class UploadPace:
    """Whether the connection is what we wait for, learnt from how long answers took so far."""

    def __init__(self, answer_s: float = 0.0) -> None:
        self._arrived = 0
        self._waited_s = 0.0
        #: A machine that answers at once is near.
        self.is_slow = answer_s > _NEAR_S

    @property
    def most_bytes(self) -> int:
        """How large a message may be."""
        return _SMALL if self.is_slow else _LARGE

    def arrived(self, size: int, waited_s: float) -> None:
        self._arrived += size
        self._waited_s += waited_s
        self.is_slow = self._arrived < self._waited_s * _FAST_BYTES_PER_S


def chunks(
    blobs: BlobStore, digests: list[str], pace: UploadPace, held: Mapping[str, int] | None = None
) -> Iterator[Chunk]:
    """All contents; of those that the machine has `held` so many bytes of, only the rest."""
    views = Views(blobs)
    together: list[tuple[str, int]] = []
    size = 0
    for digest in digests:
        more = blobs.size(digest)
        if more > _TOGETHER:
            yield from _pieces(digest, views.whole(digest), pace, (held or {}).get(digest, 0))
            continue
        if together and size + more > pace.most_bytes:
            yield _joined(views, together, pace)
            together, size = [], 0
        together.append((digest, more))
        size += more
    if together:
        yield _joined(views, together, pace)


def _joined(views: Views, contents: list[tuple[str, int]], pace: UploadPace) -> Chunk:
    body = views.joined([digest for digest, _ in contents])
    return _packed("blobs", {"contents": contents}, body, pace)


def _pieces(digest: str, content: memoryview, pace: UploadPace, offset: int) -> Iterator[Chunk]:
    offset = min(offset, len(content))
    while True:
        piece = content[offset : offset + pace.most_bytes]
        end = offset + len(piece)
        fields = {"hash": digest, "offset": offset, "last": end == len(content)}
        yield _packed("blob", fields, piece, pace)
        if end == len(content):
            return
        offset = end


def _packed(op: str, fields: dict[str, Any], body: Buffer, pace: UploadPace) -> Chunk:
    if not pace.is_slow or not _is_compressible(body):
        return Chunk(op, fields, body, len(body))
    return Chunk(op, {**fields, "z": True}, zlib.compress(body, 1), len(body))


def _is_compressible(body: Buffer) -> bool:
    """Judged by a sample: already compressed data would only cost time."""
    middle = max(0, len(body) // 2 - _SAMPLE // 2)
    sample = body[middle : middle + _SAMPLE]
    return len(zlib.compress(sample, 1)) < 0.8 * len(sample)
