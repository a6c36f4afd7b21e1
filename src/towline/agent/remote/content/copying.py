"""Copy a snapshot's files into a tree, with the help of further processes where there are many."""

import json
import os
import select
import signal
import time

from .. import machine
from ..machine import to_path
from . import packs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..home import Home
    from ..typed import Entry, Pause

#: Permissions of what is copied, by kind of entry.
KINDS = {"f": 0o644, "x": 0o755}
#: With fewer files than this for each, another process costs more than it saves.
FILES_EACH = 200
MOST_PROCESSES = 4
#: Between two looks at whether somebody asked to stop.
LOOK_S = 0.02
PIECE = 4 << 20
MOST_OPEN = 32
PR_SET_PDEATHSIG = 1
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class CannotMake(Exception):
    """The tree cannot be made; the text goes into the job's ending."""


class Absent(CannotMake):
    """What was sent has been removed from this machine: it helps to send it again."""


class Helper:
    """A further process that copies a share of the files, and says what went wrong."""

    def __init__(self, home: "Home", files: "list[Entry]", into: str) -> None:
        self.files = files
        self.told, tell = os.pipe()
        parent = os.getpid()
        try:
            self.pid = os.fork()
        except OSError:
            os.close(self.told)
            os.close(tell)
            raise
        if self.pid == 0:
            help_and_exit(home, files, into, tell, parent)
        os.close(tell)

    def wait(self, pause: "Pause") -> bytes:
        """What it said at its end: a JSON text, or b"" when it was killed."""
        said = b""
        while True:
            if select.select([self.told], [], [], LOOK_S)[0]:
                data = os.read(self.told, 65536)
                if not data:
                    return said
                said += data
            pause()

    def end(self) -> None:
        os.close(self.told)
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def copy_files(home: "Home", files: "list[Entry]", into: str, pause: "Pause") -> int:
    """Copy all, or raise; no helper is left behind. The size of the largest."""
    count = max(1, min(machine.usable_cpus(), MOST_PROCESSES, len(files) // FILES_EACH))
    shares = [files[number::count] for number in range(count)]
    helpers = []
    try:
        while len(shares) > 1:
            try:
                helpers.append(Helper(home, shares[-1], into))
            except OSError:
                break  # no more processes for this user: it takes longer, that is all
            shares.pop()
        sizes = [copy_share(home, share, into, pause) for share in shares]
        sizes += [finish(home, helper, into, pause) for helper in helpers]
        return max(sizes)
    finally:
        for helper in helpers:
            helper.end()


def finish(home: "Home", helper: "Helper", into: str, pause: "Pause") -> int:
    said = helper.wait(pause)
    if not said:
        # Somebody killed it: what it did not do, and what it may have half done, is done here.
        for text, _, _ in helper.files:
            try:
                os.unlink(into + "/" + to_path(text))
            except FileNotFoundError:
                pass
        return copy_share(home, helper.files, into, pause)
    number, text, largest, absent = json.loads(said.decode("ascii"))
    if number:
        raise OSError(number, text)
    if text:
        raise (Absent if absent else CannotMake)(text)
    return int(largest)


def help_and_exit(home: "Home", files: "list[Entry]", into: str, tell: int, parent: int) -> None:
    """Never returns; without its parent it must not go on writing into a tree made anew."""
    said = [0, "cannot copy the files", 0, False]
    try:
        signal.set_wakeup_fd(-1)
        machine.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        said = [0, "", copy_share(home, files, into, lambda: None), False]
    except CannotMake as problem:
        said = [0, str(problem), 0, isinstance(problem, Absent)]
    except OSError as problem:
        said = [problem.errno or 0, str(problem), 0, False]
    finally:
        os.write(tell, json.dumps(said).encode("ascii"))
        os._exit(0)


def copy_share(home: "Home", files: "list[Entry]", into: str, pause: "Pause") -> int:
    look_at = time.monotonic() + LOOK_S
    largest = 0
    sources = Sources(home, files)
    try:
        for text, kind, digest in files:
            source, offset, size = sources.open(digest, text)
            largest = max(largest, size)
            copy_range(source, offset, size, into + "/" + to_path(text), KINDS[kind], pause)
            if time.monotonic() > look_at:
                pause()
                look_at = time.monotonic() + LOOK_S
    finally:
        sources.close()
    return largest


class Sources:
    """Where the contents of some files are: in packs that stay open, or in a file each."""

    def __init__(self, home: "Home", files: "list[Entry]") -> None:
        self.home = home
        self.places = packs.locate(home, {digest for _, _, digest in files})
        self.packs: "dict[str, int]" = {}
        self.single = -1

    def open(self, digest: str, text: str) -> "tuple[int, int, int]":
        """(fd, offset, size) of a content; the fd is good until the next call."""
        for _ in range(2):
            place = self.places.get(digest)
            if place is None:
                break
            try:
                return self.pack(place[0]), place[1], place[2]
            except FileNotFoundError:
                # A sweep moved what is needed of it to another pack.
                self.places = dict(self.places, **packs.locate(self.home, [digest]))
        self.close_single()
        try:
            self.single = os.open(self.home.blob(digest), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise Absent("the content of %s is not on this machine" % text) from None
        return self.single, 0, os.fstat(self.single).st_size

    def pack(self, path: str) -> int:
        fd = self.packs.get(path)
        if fd is None:
            if len(self.packs) == MOST_OPEN:
                self.close()
            fd = self.packs[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return fd

    def close(self) -> None:
        self.close_single()
        for fd in self.packs.values():
            os.close(fd)
        self.packs.clear()

    def close_single(self) -> None:
        if self.single >= 0:
            os.close(self.single)
            self.single = -1


def copy_range(source: int, offset: int, size: int, path: str, mode: int, pause: "Pause") -> None:
    target = os.open(path, NEW, mode)
    try:
        end = offset + size
        while offset < end:
            copied = os.sendfile(target, source, offset, min(PIECE, end - offset))
            if not copied:
                raise CannotMake("the content of %s is damaged on this machine" % path)
            offset += copied
            if offset < end:
                pause()
    finally:
        os.close(target)
