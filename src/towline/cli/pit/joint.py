"""A connection here, joined to one beside a job: chunks of one request go there, those of its reply
come back."""

from __future__ import annotations

import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any

_PIECE = 65536
_HEAD_LIMIT = 65536


class Chunks:
    """The body of a chunked reply, taken apart as it comes."""

    def __init__(self) -> None:
        self._raw = bytearray()
        self._left = 0
        self._head_read = False
        self.refused = False
        self.ended = False

    def feed(self, data: bytes) -> bytes:
        """What of the body is in these bytes."""
        self._raw += data
        if not self._head_read and not self._read_head():
            return b""
        found = bytearray()
        while not self.ended:
            if self._left:
                piece = self._raw[: self._left]
                if not piece:
                    break
                found += piece
                del self._raw[: len(piece)]
                self._left -= len(piece)
            elif not self._next():
                break
        return bytes(found)

    def _read_head(self) -> bool:
        end = self._raw.find(b"\r\n\r\n")
        if end < 0:
            self.ended = self.refused = len(self._raw) > _HEAD_LIMIT
            return False
        self.refused = self._raw[:end].split(b" ", 2)[1:2] != [b"200"]
        self.ended = self.refused
        # What follows is read as if a chunk had just ended.
        del self._raw[: end + 2]
        self._head_read = True
        return True

    def _next(self) -> bool:
        """Begin the next chunk; False while its size has not come."""
        if len(self._raw) < 3:
            return False
        end = self._raw.find(b"\r\n", 2)
        if end < 0:
            return False
        try:
            self._left = int(bytes(self._raw[2:end]).split(b";")[0], 16)
        except ValueError:
            self.ended = self.refused = True
            return False
        del self._raw[: end + 2]
        self.ended = self._left == 0
        return not self.ended


def carry(local: socket.socket, remote: Any) -> bool:
    """Both ways until the other side has no more to say; False when it refused."""
    chunks = Chunks()
    watched = [local, remote]
    while not chunks.ended:
        ready = [remote] if remote.pending() else select.select(watched, [], [])[0]
        if local in ready:
            data = local.recv(_PIECE)
            remote.sendall(b"%x\r\n%s\r\n" % (len(data), data))
            if not data:
                watched = [remote]
        if remote in ready:
            data = remote.recv(_PIECE)
            if not data:
                break
            local.sendall(chunks.feed(data))
    return not chunks.refused
