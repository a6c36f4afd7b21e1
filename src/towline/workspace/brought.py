"""What is remembered of results that came home: what is still so gives way to newer ones."""

import zlib

import msgspec
from msgspec import Struct

_WORTH_PACKING = 4096


class Mark(Struct, frozen=True, array_like=True):
    """What a file was when it was brought home."""

    attempt: int
    size: int
    mtime_ns: int
    #: Of its contents; of a link, where it leads.
    digest: str


class Brought(Struct, frozen=True):
    """All that was brought home of one job so far."""

    #: The `job_results` that it lies in.
    top: str
    #: Path in there -> what the file was.
    files: dict[str, Mark]

    def encoded(self) -> bytes:
        plain = msgspec.json.encode(self)
        return plain if len(plain) < _WORTH_PACKING else zlib.compress(plain, 1)


def decoded(body: bytes | None) -> Brought:
    """What was remembered; what cannot be read counts as forgotten, and nothing is overwritten."""
    body = body or b""
    try:
        plain = body if body.startswith(b"{") else zlib.decompress(body)
        return msgspec.json.decode(plain, type=Brought)
    except (zlib.error, msgspec.DecodeError):
        return Brought("", {})
