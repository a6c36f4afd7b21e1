"""A disk that each benchmark has for itself: a new ext4, in a file.

A file system that has lost thousands of files in the last minutes is slow to make new ones: ext4
does not use their inodes again so soon, and looks at each of them every time. Whether somebody has
deleted files just now must not decide what is measured, neither of us nor of those beside us.
"""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

#: Not /tmp, which may be memory.
BASE = "/var/tmp"
SIZE_MB = 8192

_present: Path | None = None


@contextlib.contextmanager
def rested_disk() -> Iterator[Path]:
    """Where a benchmark keeps its files; within another one of these, the same."""
    global _present
    if _present is not None:
        yield _present
        return
    # A short path: that of a unix socket has room for some 100 characters.
    with tempfile.TemporaryDirectory(prefix="tow-", dir=BASE) as name:
        disk = Path(name, "disk")
        disk.mkdir()
        mounted = _mounted(Path(name, "image"), disk)
        _present = disk
        try:
            yield disk
        finally:
            _present = None
            if mounted:
                _unmount(disk)


def folder(prefix: str) -> Path:
    """A new folder for somebody's files, on that disk while there is one."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir=_present or BASE))


def _mounted(image: Path, disk: Path) -> bool:
    """Make a file system and mount it; where that cannot be, the benchmark does without."""
    image.touch()
    os.truncate(image, SIZE_MB << 20)
    # Nothing is to be initialised in the background later on.
    tries = (
        ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1,lazy_journal_init=1", str(image)],
        ["mount", "-o", "loop,noinit_itable", str(image), str(disk)],
    )
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    for words in tries:
        try:
            done = subprocess.run(
                words, env={**os.environ, "PATH": path}, capture_output=True, text=True
            )
            problem = done.stderr.strip() if done.returncode else ""
        except OSError as error:
            problem = str(error)
        if problem:
            print(f"no disk of its own, so what others deleted in {BASE} counts: {problem}")
            return False
    return True


def _unmount(disk: Path) -> None:
    if subprocess.run(["umount", str(disk)], capture_output=True).returncode:
        # Something that ends just now still has a file open.
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
