"""Length-framed JSON with an optional blob behind it, over pipes and sockets."""

import collections
import json
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .typed import Frame, Message

HEAD = struct.Struct(">II")
MOST_JSON = 64 << 20
MOST_BLOB = 8 << 20
#: Of blobs from this size on, what is still to come is read into its place.
LONG = 64 << 10
#: Small parts go out together, up to this size and number.
WRITE_AT_ONCE = 256 << 10
MOST_AT_ONCE = 500


class BrokenFrame(Exception):
    """The stream cannot be followed any further."""


def encode(header: "Message", blob: bytes = b"") -> bytes:
    return encode_head(header, len(blob)) + blob


def encode_head(header: "Message", blob_size: int) -> bytes:
    """A frame without its blob, which follows."""
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    return HEAD.pack(len(text), blob_size) + text


class Decoder:
    """Turns bytes as they arrive into (header, blob) pairs; a bad header is None."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        #: The frame whose long blob is on its way, and how much of it is there.
        self.header = None
        self.blob: "bytearray | None" = None
        self.filled = 0

    def read(self, fd: int, most: int) -> "list[Frame] | None":
        """The frames that are complete now; None at the end of the stream."""
        if self.blob is None:
            data = os.read(fd, most)
            return self.feed(data) if data else None
        # Straight into its place: copying and fresh memory would take longer than the rest.
        with memoryview(self.blob) as view:
            count = os.readv(fd, [view[self.filled :]])
        self.filled += count
        return self.taken(self.blob) if count else None

    def taken(self, blob: "Any") -> "list[Frame]":
        if self.filled < len(blob):
            return []
        frame = (self.header, blob)
        self.header = self.blob = None
        return [frame]

    def feed(self, data: bytes) -> "list[Frame]":
        """The frames that are complete with `data`, which came by whatever way."""
        if self.blob is None:
            return self.split(data)
        count = min(len(data), len(self.blob) - self.filled)
        self.blob[self.filled : self.filled + count] = data[:count]
        self.filled += count
        frames = self.taken(self.blob)
        return frames + self.split(data[count:]) if frames else frames

    def split(self, data: bytes) -> "list[Frame]":
        buffer = self.buffer
        buffer += data
        at = 0
        frames: "list[tuple[Any, bytes]]" = []
        while len(buffer) - at >= HEAD.size:
            json_size, blob_size = HEAD.unpack_from(buffer, at)
            if json_size > MOST_JSON or blob_size > MOST_BLOB:
                raise BrokenFrame("a frame of %d + %d bytes" % (json_size, blob_size))
            middle = at + HEAD.size + json_size
            end = middle + blob_size
            if len(buffer) < end and (blob_size < LONG or len(buffer) < middle):
                break
            header = parse(bytes(buffer[at + HEAD.size : middle]))
            if len(buffer) < end:
                self.begin(header, blob_size, middle)
                return frames
            frames.append((header, bytes(buffer[middle:end])))
            at = end
        if at:
            del buffer[:at]
        return frames

    def begin(self, header: "Any", size: int, start: int) -> None:
        """All that is left in the buffer belongs to a long blob."""
        self.header, self.blob = header, bytearray(size)
        self.filled = len(self.buffer) - start
        self.blob[: self.filled] = self.buffer[start:]
        self.buffer.clear()


def parse(text: "Any") -> "Message | None":
    try:
        header = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return header if isinstance(header, dict) else None


class FrameQueue:
    """What is still to be written to one non-blocking file descriptor."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.parts: "collections.deque[bytes | memoryview]" = collections.deque()
        self.size = 0

    def add(self, data: bytes) -> None:
        self.parts.append(data)
        self.size += len(data)

    def add_frame(self, header: "Message", blob: bytes) -> None:
        if len(blob) < LONG:
            self.add(encode(header, blob))
        else:  # joining the two would take longer than writing them
            self.add(encode_head(header, len(blob)))
            self.add(blob)

    def flush(self) -> bool:
        """Write what fits now; True when nothing is left."""
        while self.parts:
            several = self.take()
            try:
                written = os.writev(self.fd, several)
            except BlockingIOError:
                written = 0
            self.size -= written
            if self.put_back(several, written):
                return False
        return True

    def take(self) -> "list[Any]":
        several = [self.parts.popleft()]
        size = len(several[0])
        while self.parts and size < WRITE_AT_ONCE and len(several) < MOST_AT_ONCE:
            several.append(self.parts.popleft())
            size += len(several[-1])
        return several

    def put_back(self, several: "list[Any]", written: int) -> bool:
        """What was not written comes first the next time; whether there is any."""
        for place, part in enumerate(several):
            if written < len(part):
                self.parts.extendleft(reversed(several[place + 1 :]))
                self.parts.appendleft(memoryview(part)[written:] if written else part)
                return True
            written -= len(part)
        return False
