"""A content of which more is to come; it outlives the connection that began to send it."""

import hashlib
import os

from ..machine import unique
from ..records.record import lock, write_all

#: How much of what an earlier connection left is looked at for one answer.
MOST_LOOKED_AT = 32 << 20
FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


class Partial:
    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = open_locked(path)
        #: The same content as another connection has it so far.
        self.other = -1
        if self.fd < 0:
            # That connection may be dead without knowing it: what it has is copied.
            self.other = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self.path += "." + unique()
            self.fd = os.open(self.path, FLAGS | os.O_TRUNC, 0o600)
        self.left = os.fstat(self.fd if self.other < 0 else self.other).st_size
        self.begin()

    def begin(self) -> None:
        self.sum = hashlib.sha256()
        self.size = 0

    def look(self) -> bool:
        """Take in a part of what came earlier; True while there is more of it."""
        most = max(0, min(MOST_LOOKED_AT, self.left - self.size))
        if self.other < 0:
            data = os.pread(self.fd, most, self.size)
            self.sum.update(data)
            self.size += len(data)
        else:
            data = os.pread(self.other, most, self.size)
            self.add(data)
        return bool(data) and self.size < self.left

    def add(self, data: bytes) -> None:
        if os.lseek(self.fd, 0, os.SEEK_END) != self.size:
            os.ftruncate(self.fd, self.size)
            os.lseek(self.fd, self.size, os.SEEK_SET)
        write_all(self.fd, data)
        self.sum.update(data)
        self.size += len(data)

    def drop(self) -> None:
        self.close()
        try:
            os.unlink(self.path)
        except OSError:
            pass

    def close(self) -> None:
        os.close(self.fd)
        if self.other >= 0:
            os.close(self.other)


def open_locked(path: str) -> int:
    """An fd that no other agent writes to; -1 if one does."""
    while True:
        fd = os.open(path, FLAGS, 0o600)
        if not lock(fd):
            os.close(fd)
            return -1
        # Whoever had it before us may have completed it, and put it into its place.
        try:
            if os.path.samestat(os.stat(path), os.fstat(fd)):
                return fd
        except FileNotFoundError:
            pass
        os.close(fd)
