"""The one place where paths of the data are opened.

A path is taken apart, and each of its names is opened in the folder that was opened before it,
without following links: whatever is renamed or replaced meanwhile, nothing above the domain's top
is ever reached.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from towline.errors import EngineError, Exists, NoRoom, NotFound, UsageError

#: In the top of each domain: what is on its way in or out. Nobody reaches it by a path.
OWN = ".towline"
_LONGEST_PATH = 4096
_LONGEST_NAME = 255
_TOP = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: A fifo or a device that lies there is neither waited for nor touched.
_PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FULL = (errno.ENOSPC, errno.EDQUOT)


def names_of(path: str) -> list[str]:
    """The names that a path consists of; a leading `/` is the domain's top."""
    if "\0" in path:
        raise UsageError("a path has a NUL in it")
    names = [name for name in path.split("/") if name not in ("", ".")]
    if ".." in names:
        raise UsageError(f"{path[:100]!r} leads out of the data")
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise UsageError(f"a path has at most {_LONGEST_PATH} bytes")
    if any(len(os.fsencode(name)) > _LONGEST_NAME for name in names):
        raise UsageError(f"a name has at most {_LONGEST_NAME} bytes")
    if names[:1] == [OWN]:
        raise NotFound(f"there is nothing at {path[:100]!r}")
    return names


@contextmanager
def open_folder(top: str, names: list[str], make: bool = False) -> Iterator[int]:
    """A folder below the top of a domain, as a descriptor; `make` makes what is not there."""
    at = _open_top(top)
    try:
        for name in names:
            if make:
                _make(name, at)
            below = os.open(name, _FOLDER, dir_fd=at)
            os.close(at)
            at = below
        yield at
    finally:
        os.close(at)


def _open_top(top: str) -> int:
    """The top itself is the server's: its administrators may have put a link to another disk there.
    It is made when it is first asked for."""
    with contextlib.suppress(FileNotFoundError):
        return os.open(top, _TOP)
    with contextlib.suppress(FileExistsError):
        os.mkdir(top, 0o700)
    return os.open(top, _TOP)


def _make(name: str, at: int) -> None:
    try:
        os.mkdir(name, 0o755, dir_fd=at)
    except FileExistsError:
        return
    os.fsync(at)


@contextmanager
def open_file(top: str, names: list[str]) -> Iterator[int]:
    """A plain file, to be read."""
    if not names:
        raise IsADirectoryError(errno.EISDIR, "is a folder")
    with open_folder(top, names[:-1]) as above:
        file = os.open(names[-1], os.O_RDONLY | _PLAIN, dir_fd=above)
    try:
        mode = os.fstat(file).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, "is a folder")
        if not stat.S_ISREG(mode):
            raise OSError(errno.ENXIO, "is no plain file")
        yield file
    finally:
        os.close(file)


def open_part(own: int, name: str, flags: int) -> int:
    """A file of our own folder; a link or a fifo in its place is not followed."""
    file = os.open(name, flags | _PLAIN, 0o600, dir_fd=own)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.ENXIO, "is no plain file")
    return file


@contextmanager
def told(path: str) -> Iterator[None]:
    """What the system refuses, in the words of whoever asks: of a path of theirs, not of ours."""
    shown = path[:100] or "/"
    try:
        yield
    except OSError as error:
        raise _as_told(shown, error) from None


def _as_told(shown: str, error: OSError) -> Exception:
    number = error.errno
    if number in _FULL:
        return NoRoom(
            f"the server's disk is full: {shown!r} was not written",
            "what was there is as it was; tell an administrator",
        )
    if number == errno.ENOENT:
        return NotFound(f"there is nothing at {shown!r}")
    if number in (errno.ELOOP, errno.EMLINK):
        return UsageError(f"{shown!r} is a link, or leads through one: links are not followed")
    if number == errno.ENOTDIR:
        # Opening a link as a folder says so as well.
        return UsageError(f"{shown!r} leads through something that is no folder")
    if number == errno.EISDIR:
        return UsageError(f"{shown!r} is a folder", "name a file")
    if number in (errno.EEXIST, errno.ENOTEMPTY):
        return Exists(f"{shown!r} is there already, and is something else")
    if number == errno.ENXIO:
        return UsageError(f"{shown!r} is no plain file")
    if number == errno.ENAMETOOLONG:
        return UsageError(f"{shown!r} is too long for the server's file system")
    return EngineError(f"the server cannot do that with {shown!r}: {os.strerror(number or 0)}")
