"""A small HTTP/1.1 client, over a unix socket or TLS (remote.py): one connection per call.

`http.client` alone costs more time than a whole `tow status`. This speaks exactly what the
Engine's API needs: a status line, headers, bodies by content-length, in chunks or until close.
"""

from __future__ import annotations

# The `socket` module builds its enumerations on import, which takes longer than our whole request.
from _socket import AF_UNIX, SOCK_STREAM, socket

from towline.errors import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from ssl import SSLSocket
    from typing import Any, BinaryIO, TypeAlias

    Body: TypeAlias = "bytes | BodyFromDisk | FrameUpload | None"
    #: Of one's own Engine, or of a team's server.
    Connection: TypeAlias = "socket | SSLSocket"

PIECE = 1 << 18
HEAD_LIMIT = 1 << 16
FRAME_HEAD_LIMIT = 1 << 26
#: A Ctrl-C that comes right before we wait for the Engine's next word would wait for it as well.
LOOK_UP_S = 1.0

#: Bytes that may stand in a target as they are.
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~")


class Gone(EngineError):
    """The Engine closed the connection before it had said everything."""

    transient = True

    def __init__(self, text: str) -> None:
        super().__init__(text, "do it again; jobs go on meanwhile: tow status")


def with_query(path: str, /, **values: object) -> str:
    """The target of a request; values that are None are left out."""
    pairs = [f"{name}={quoted(str(value))}" for name, value in values.items() if value is not None]
    return f"{path}?{'&'.join(pairs)}" if pairs else path


def quoted(text: str) -> str:
    """`text` as one part of a path or one value of a query."""
    raw = text.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in raw)


def connect(path: str) -> socket:
    """A connection to the Engine's socket; raises OSError when nobody listens there."""
    connection = socket(AF_UNIX, SOCK_STREAM)
    try:
        connection.connect(path)
    except BaseException:
        connection.close()
        raise
    return connection


class BodyFromDisk:
    """A request body that is read from disk while it is sent: `size` bytes from `start` on."""

    def __init__(self, source: BinaryIO, size: int, start: int = 0) -> None:
        self.source = source
        self.size = size
        self.start = start

    def send_over(self, connection: Connection) -> None:
        # The same request may be sent again, to a newer Engine.
        self.source.seek(self.start)
        left = self.size
        while left:
            piece = self.source.read(min(PIECE, left))
            if not piece:
                raise Gone("the file became shorter while it was sent")
            connection.sendall(piece)
            left -= len(piece)


class FrameUpload:
    """A request body of frames that are made while it is sent."""

    def __init__(self, frames: Callable[[], Iterable[tuple[dict[str, Any], bytes]]]) -> None:
        #: Called again when the same request is sent again.
        self.frames = frames

    def send_over(self, connection: Connection) -> None:
        import json

        for header, blob in self.frames():
            head = json.dumps(header).encode()
            size = 8 + len(head) + len(blob)
            lengths = len(head).to_bytes(4, "big") + len(blob).to_bytes(4, "big")
            connection.sendall(b"%x\r\n" % size + lengths + head + blob + b"\r\n")
        connection.sendall(b"0\r\n\r\n")


def request(
    connection: Connection,
    method: str,
    target: str,
    body: Body = None,
    headers: dict[str, str] | None = None,
) -> Reply:
    """Send one request and read the head of its reply; closes the connection when that fails."""
    lines = [f"{method} {target} HTTP/1.1", "Host: towline", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    lines += ["Content-Type: application/json"] if isinstance(body, bytes) else []
    if isinstance(body, FrameUpload):
        lines += ["Transfer-Encoding: chunked", "", ""]
    else:
        size = body.size if isinstance(body, BodyFromDisk) else len(body or b"")
        lines += [f"Content-Length: {size}", "", ""]
    head = "\r\n".join(lines).encode("latin-1")
    try:
        try:
            connection.sendall(head + (body if isinstance(body, bytes) else b""))
            if isinstance(body, BodyFromDisk | FrameUpload):
                body.send_over(connection)
        except (BrokenPipeError, ConnectionResetError):
            pass  # The Engine may have refused the body early: its answer says why.
        return Reply(connection)
    except BaseException:
        connection.close()
        raise


class Reply:
    """The Engine's answer; its body is read piece by piece."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._raw = bytearray()
        #: When (`time.monotonic`) to stop waiting for more, with a TimeoutError; None: never.
        self.deadline: float | None = None
        self.headers: dict[str, str] = {}
        self.status = self._read_head()
        self._chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        length = self.headers.get("content-length")
        #: Bytes left of the body, or of the current chunk; None: the body ends with the connection.
        self._left: int | None = 0 if self._chunked else int(length) if length else None
        self._first_chunk = True
        self._ended = False

    def __enter__(self) -> Reply:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def read(self, limit: int = PIECE) -> bytes:
        """The next bytes of the body, empty at its end."""
        if self._chunked and self._left == 0 and not self._ended:
            self._next_chunk()
        if self._ended or self._left == 0:
            return b""
        if not self._raw:
            piece = self._received()
            if not piece and self._left is not None:
                raise Gone("the Engine closed the connection")
            if len(piece) <= (limit if self._left is None else min(limit, self._left)):
                # As it came: copying it to and fro would take longer than receiving it.
                self._left = None if self._left is None else self._left - len(piece)
                return piece
            self._raw += piece
        size = (
            min(limit, len(self._raw))
            if self._left is None
            else min(limit, len(self._raw), self._left)
        )
        piece = bytes(self._raw[:size])
        del self._raw[:size]
        if self._left is not None:
            self._left -= size
        return piece

    def read_all(self) -> bytes:
        return b"".join(iter(self.read, b""))

    def read_exactly(self, size: int) -> bytes:
        """`size` bytes; empty when the body ended just before them."""
        pieces = []
        left = size
        while left:
            piece = self.read(left)
            if not piece:
                if left == size:
                    return b""
                raise Gone("the stream ended in the middle of a frame")
            pieces.append(piece)
            left -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def frames(self) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Every frame of a stream: its header and its blob."""
        import json

        while sizes := self.read_exactly(8):
            head_size = int.from_bytes(sizes[:4], "big")
            blob_size = int.from_bytes(sizes[4:], "big")
            if head_size > FRAME_HEAD_LIMIT:
                raise Gone("the stream is not one of frames")
            head = self.read_exactly(head_size)
            blob = self.read_exactly(blob_size) if blob_size else b""
            if len(head) < head_size or len(blob) < blob_size:
                raise Gone("the stream ended in the middle of a frame")
            yield json.loads(head), blob

    def _read_head(self) -> int:
        while (end := self._raw.find(b"\r\n\r\n")) < 0:
            if len(self._raw) > HEAD_LIMIT or not self._receive():
                raise Gone("the Engine did not answer")
        status_line, *lines = self._raw[:end].decode("latin-1").split("\r\n")
        del self._raw[: end + 4]
        for line in lines:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        words = status_line.split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
            raise Gone("what answers on the Engine's socket does not speak HTTP")
        return int(words[1])

    def _next_chunk(self) -> None:
        if not self._first_chunk:
            self._line()
        self._first_chunk = False
        try:
            self._left = int(self._line().split(b";", 1)[0], 16)
        except ValueError:
            raise Gone("the stream is broken") from None
        if self._left == 0:
            while self._line():
                pass
            self._ended = True

    def _line(self) -> bytes:
        while (end := self._raw.find(b"\r\n")) < 0:
            if len(self._raw) > HEAD_LIMIT or not self._receive():
                raise Gone("the Engine closed the connection")
        line = bytes(self._raw[:end])
        del self._raw[: end + 2]
        return line

    def _receive(self) -> bool:
        piece = self._received()
        self._raw += piece
        return bool(piece)

    def _received(self) -> bytes:
        try:
            return self._wait_and_receive()
        except ConnectionResetError:
            raise Gone("the Engine closed the connection") from None

    def _wait_and_receive(self) -> bytes:
        while True:
            wait_s = LOOK_UP_S
            if self.deadline is not None:
                import time

                # Zero would not wait at all, and say so in other words.
                wait_s = min(wait_s, max(0.001, self.deadline - time.monotonic()))
            self._connection.settimeout(wait_s)
            try:
                return self._connection.recv(PIECE)
            except TimeoutError:
                if wait_s < LOOK_UP_S:
                    raise
