"""A file of a job read from front to back: one stream for all of it, not a question for each piece.

Whoever reads a piece and then the one behind it will want the next one, too. From then on pieces
are taken from a stream that the Engine fills ahead; a little of what was passed is kept, since
kernels ask for pieces out of order. Whoever jumps about gets exactly what he asks for.
"""

from __future__ import annotations

import threading

from towline.client.transport import Gone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from towline.client.transport import Reply

#: So much of what was passed is kept.
KEPT = 4 << 20
#: From so far before a piece the stream is simply read on to it.
NEAR = 4 << 20


class ReadAhead:
    """`stream(offset)` opens one from there to the end, `fetch(start, end)` gets a range."""

    def __init__(self, stream: Callable[[int], Reply], fetch: Callable[[int, int], bytes]) -> None:
        self._open = stream
        self._fetch = fetch
        self._lock = threading.Lock()
        self._reply: Reply | None = None
        #: What the stream gave last, and where that begins.
        self._kept = bytearray()
        self._begin = 0
        #: Where the last piece ended that was asked for.
        self._expected = 0

    def read(self, start: int, end: int) -> bytes:
        """The bytes of a range; fewer only at the end of the file."""
        with self._lock:
            found = self._from_stream(start, end)
            self._expected = max(end, self._expected if found else 0)
        return self._fetch(start, end) if found is None else found

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _from_stream(self, start: int, end: int) -> bytes | None:
        """None where it is not for the stream to give."""
        if self._reply is None:
            if start != self._expected or not start:
                return None
            self._reply, self._kept, self._begin = self._open(start), bytearray(), start
        if not self._begin <= start <= self._begin + len(self._kept) + NEAR:
            self._drop()
            return None
        try:
            self._read_up_to(end)
        except Gone:
            self._drop()
            return None
        found = bytes(self._kept[start - self._begin : end - self._begin])
        if len(found) < end - start:
            # It may have grown since the stream was opened.
            self._drop()
            return None
        passed = max(0, len(self._kept) - KEPT)
        del self._kept[:passed]
        self._begin += passed
        return found

    def _read_up_to(self, end: int) -> None:
        assert self._reply is not None
        while self._begin + len(self._kept) < end:
            piece = self._reply.read()
            if not piece:
                return
            self._kept += piece

    def _drop(self) -> None:
        if self._reply is not None:
            self._reply.close()
        self._reply = None
        self._kept.clear()
