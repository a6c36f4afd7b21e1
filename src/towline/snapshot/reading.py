"""Read small files as a whole."""

import os

#: Files up to this size are read at once.
SMALL = 1 << 20


def read_small(path: str, size: int) -> tuple[bytes, os.stat_result] | None:
    """The content of a file, which probably has this size, and its facts; None if it is longer."""
    if size > SMALL:
        return None
    fd = open_plain(path, os.O_RDONLY)
    try:
        content = os.read(fd, size + 1)
        while len(content) <= SMALL and (more := os.read(fd, SMALL + 1 - len(content))):
            content += more
        return None if len(content) > SMALL else (content, os.fstat(fd))
    finally:
        os.close(fd)


def open_plain(path: str, flags: int) -> int:
    # A file swapped for a link or a fifo since it was listed is neither followed nor waited on.
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
