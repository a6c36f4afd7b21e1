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

    def feed(self, data: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= LENGTHS.size:
            header_size, blob_size = LENGTHS.unpack_from(buffer, start)
            if header_size > MOST_HEADER or blob_size > MOST_BLOB:
                raise AgentError("what comes from the machine is not a frame")
            body = start + LENGTHS.size
            end = body + header_size + blob_size
            if len(buffer) < end:
                break
            header = decode_json(bytes(buffer[body : body + header_size]))
            yield header, bytes(buffer[body + header_size : end])
            start = end
        del buffer[:start]
