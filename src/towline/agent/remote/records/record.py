"""The files that tell what became of a job, in a folder that is not the job's own.

`life` is locked by the job's supervisor for as long as that lives. Before the command is started,
it says so: an attempt whose unlocked `life` says nothing was never started. At the end it gets the
ending and is renamed to `exit`: its room was reserved before the command was started, so that a
full disk loses no exit code.
"""

import errno
import fcntl
import json
import os

from ..machine import unique
from .endings import ending

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..typed import Ending, Message

#: What took longer than this is not to be lost by a power cut right after it.
WORTH_SYNCING_S = 1.0
#: Room for the longest ending: its text is cut to fit.
LIFE_SIZE = 1800
#: What stands before the spec in it, and behind.
SPEC, END = b',"spec":', b"}\n"
#: What a file system says that cannot reserve room.
CANNOT_RESERVE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENODEV)


def open_life(folder: str, create: bool) -> "Any":
    """An open `life`, or None where there is none."""
    flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    try:
        return os.open(folder + "/life", flags, 0o600)
    except FileNotFoundError:
        return None


def lock(fd: int) -> bool:
    """True when we hold it now; False when a living process does."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError as problem:
        if problem.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise


def is_current(folder: str, fd: int) -> bool:
    """False when `life` was renamed or removed since it was opened."""
    try:
        there, here = os.stat(folder + "/life"), os.fstat(fd)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def read_life(fd: int) -> "Message":
    """What is written so far, with the spec as `spec`; nothing means that nothing was started."""
    try:
        life = json.loads(os.pread(fd, os.fstat(fd).st_size, 0).decode("utf-8"))
    except ValueError:
        return {}
    return life if isinstance(life, dict) else {}


def read(folder: str) -> "Message":
    """The same of a record that is not open; nothing where it is over."""
    fd = open_life(folder, create=False)
    if fd is None:
        return {}
    try:
        return read_life(fd)
    finally:
        os.close(fd)


def reserve(fd: int, spec: bytes) -> None:
    """Have room for all that `life` will ever say; OSError where there is none."""
    try:
        os.posix_fallocate(fd, 0, LIFE_SIZE + len(SPEC) + len(spec) + len(END))
    except OSError as problem:
        if problem.errno not in CANNOT_RESERVE:
            raise


def write_life(fd: int, life: "Message", spec: bytes) -> None:
    """Replace what `life` says; `spec` is the job's, as JSON."""
    text = whole_life(life, spec)
    if os.pwrite(fd, text, 0) < len(text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def rewrite(fd: int, life: "Message") -> None:
    """Replace what it says by `life`, which was read from it together with the spec."""
    spec = json.dumps(life.pop("spec", {})).encode("ascii")
    write_life(fd, life, spec)


def whole_life(life: "Message", spec: bytes) -> bytes:
    """Always as long as the longest: the next one covers it, and needs no further room."""
    text = json.dumps(life).encode("ascii")
    while len(text) > LIFE_SIZE and life.get("text"):
        life = dict(life, text=life["text"][: len(life["text"]) // 2])
        text = json.dumps(life).encode("ascii")
    return text[:-1].ljust(LIFE_SIZE) + SPEC + spec + END


def write_exit(folder: str, fd: int, end: "Ending", spec: bytes) -> None:
    """Make the ending the truth; `fd` is the locked `life`."""
    write_life(fd, end, spec)
    if ran_long(end):
        sync(fd)
    try:
        os.rename(folder + "/life", folder + "/exit")
    except OSError:
        # The job removed its own folder: the ending must not be lost with it.
        os.makedirs(folder, 0o700, exist_ok=True)
        write_whole(folder + "/exit", json.dumps(end).encode("ascii"))


def ran_long(end: "Ending") -> bool:
    try:
        return bool(end["started"]) and end["ended"] - end["started"] > WORTH_SYNCING_S
    except (KeyError, TypeError):
        return False  # what was written down of it is damaged


def sync(fd: int) -> None:
    """Have it survive a power cut; where that cannot be had, it is still written."""
    try:
        os.fdatasync(fd)
    except OSError:
        pass


def read_exit(folder: str) -> "Ending | None":
    """How the job ended, or None while it has not."""
    try:
        with open(folder + "/exit", "rb") as file:
            end = json.loads(file.read().decode("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        end = None
    if not isinstance(end, dict):
        return ending("lost", "the record of its end is damaged")
    end.pop("spec", None)
    return end


def read_spec(folder: str) -> "Any":
    """What the job was asked to be, or None when it never came so far."""
    # It may become `exit` between the two looks.
    for name in ("/exit", "/life", "/exit"):
        try:
            with open(folder + name, "rb") as file:
                return json.loads(file.read().decode("utf-8"))["spec"]
        except (OSError, ValueError, KeyError, TypeError):
            pass
    return None


def write_whole(path: str, data: bytes, mode: int = 0o600) -> None:
    """Write beside and rename, so that nobody ever reads half of it."""
    beside = "%s.%s.new" % (path, unique())
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        try:
            write_all(fd, data)
        finally:
            os.close(fd)
        os.rename(beside, path)
    except OSError:
        remove(beside)  # half of it would only take the room that is lacking
        raise


def write_first(path: str, data: bytes) -> bool:
    """False when it was there already; whoever finds it there finds all of it."""
    beside = "%s.%s.first" % (path, unique())
    write_whole(beside, data)
    try:
        os.link(beside, path)
        return True
    except FileExistsError:
        # A network file system may have done it, and lost the answer.
        return os.stat(beside).st_nlink > 1
    except OSError:
        return create(path, data)  # a file system without hard links
    finally:
        remove(beside)


def remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # it is in nobody's way


def create(path: str, data: bytes) -> bool:
    """The same in two steps: who is killed between them leaves an empty file."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return False
    try:
        write_all(fd, data)
    finally:
        os.close(fd)
    return True


def write_all(fd: int, data: "bytes | memoryview") -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def asked_to_stop(folder: str) -> "float | None":
    """The grace that a stop was asked with through a file, maybe from another machine; or None."""
    try:
        with open(folder + "/stop") as file:
            return float(file.read())
    except (OSError, ValueError):
        return None


def release(folder: str, word: str) -> str:
    """Decide once and for all whether a held job goes or is void; the first word counts."""
    try:
        os.symlink(word, folder + "/go")
        return word
    except FileExistsError:
        return released(folder)


def released(folder: str) -> str:
    try:
        return os.readlink(folder + "/go")
    except OSError:
        return ""
