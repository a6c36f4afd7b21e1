"""Length-framed JSON with an optional blob behind it, over pipes and sockets."""

import collections
import json
import os
import struct

HEAD = struct.Struct(">II")
MOST_JSON = 64 << 20
MOST_BLOB = 8 << 20
#: Small frames are joined up to this size before one write.
WRITE_AT_ONCE = 256 << 10


class BrokenFrame(Exception):
    """The stream cannot be followed any further."""


def encode(header, blob=b""):
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    return HEAD.pack(len(text), len(blob)) + text + blob


class Decoder:
    """Turns bytes as they arrive into (header, blob) pairs; a bad header is None."""

    def __init__(self):
        self.buffer = bytearray()

    def feed(self, data):
        buffer = self.buffer
        buffer += data
        at = 0
        frames = []
        while len(buffer) - at >= HEAD.size:
            json_size, blob_size = HEAD.unpack_from(buffer, at)
            if json_size > MOST_JSON or blob_size > MOST_BLOB:
                raise BrokenFrame("a frame of %d + %d bytes" % (json_size, blob_size))
            middle = at + HEAD.size + json_size
            end = middle + blob_size
            if len(buffer) < end:
                break
            header = parse(bytes(buffer[at + HEAD.size : middle]))
            frames.append((header, bytes(buffer[middle:end])))
            at = end
        if at:
            del buffer[:at]
        return frames


def parse(text):
    try:
        header = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return header if isinstance(header, dict) else None


class Outbox:
    """What is still to be written to one non-blocking file descriptor."""

    def __init__(self, fd):
        self.fd = fd
        self.parts: "collections.deque[bytes | memoryview]" = collections.deque()
        self.size = 0

    def add(self, data):
        self.parts.append(data)
        self.size += len(data)

    def flush(self):
        """Write what fits now; True when nothing is left."""
        while self.parts:
            data = self.take()
            try:
                written = os.write(self.fd, data)
            except BlockingIOError:
                written = 0
            self.size -= written
            if written < len(data):
                self.parts.appendleft(memoryview(data)[written:])
                return False
        return True

    def take(self):
        first = self.parts.popleft()
        if not self.parts or len(first) >= WRITE_AT_ONCE:
            return first
        several = [first]
        size = len(first)
        while self.parts and size + len(self.parts[0]) <= WRITE_AT_ONCE:
            several.append(self.parts.popleft())
            size += len(several[-1])
        return b"".join(several)
