"""Frames: two lengths, a JSON header, a blob. The agent and the API's streams both speak them."""

import json
import struct
from collections.abc import Iterator
from typing import Any

import msgspec

from towline.errors import AgentError

LENGTHS = struct.Struct(">II")
MOST_HEADER = 64 * 1024 * 1024
MOST_BLOB = 8 * 1024 * 1024
#: Blobs from this size on are put together when they are all there, and only then copied.
_LONG = 64 * 1024

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def encode_json(value: Any) -> bytes:
    """JSON, also of file names and arguments that are not UTF-8 (lone surrogates in Python)."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def decode_json(data: bytes) -> Any:
    try:
        return _decode(data)
    except msgspec.DecodeError:
        return json.loads(data)


def pack(header: dict[str, Any], blob: bytes = b"") -> bytes:
    return packed_header(header, len(blob)) + blob


def packed_header(header: dict[str, Any], blob_size: int) -> bytes:
    """A frame without its blob."""
    body = encode_json(header)
    return LENGTHS.pack(len(body), blob_size) + body


class Unpacker:
    """Bytes in, frames out."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        #: The frame whose long blob is on its way, what is there of that, and how much is not.
        self._header: dict[str, Any] = {}
        self._pieces: list[bytes | memoryview] = []
        self._lacking = 0

    def feed(self, data: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
        rest: bytes | memoryview = data
        if self._lacking:
            piece = memoryview(data)[: self._lacking]
            self._pieces.append(piece)
            self._lacking -= len(piece)
            if self._lacking:
                return
            blob, self._pieces = b"".join(self._pieces), []
            yield self._header, blob
            rest = memoryview(data)[len(piece) :]
        yield from self._split(rest)

    def _split(self, data: bytes | memoryview) -> Iterator[tuple[dict[str, Any], bytes]]:
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= LENGTHS.size:
            header_size, blob_size = LENGTHS.unpack_from(buffer, start)
            if header_size > MOST_HEADER or blob_size > MOST_BLOB:
                raise AgentError("what comes from the machine is not a frame")
            body = start + LENGTHS.size
            middle = body + header_size
            end = middle + blob_size
            if len(buffer) < end and (blob_size < _LONG or len(buffer) < middle):
                break
            header = decode_json(bytes(buffer[body:middle]))
            if len(buffer) < end:
                self._header, self._pieces = header, [bytes(buffer[middle:])]
                self._lacking = end - len(buffer)
                buffer.clear()
                return
            yield header, bytes(buffer[middle:end])
            start = end
        del buffer[:start]
