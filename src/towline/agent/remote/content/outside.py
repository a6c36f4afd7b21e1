"""What a job writes outside of its folder, and wants brought home: the folder that `$NAME` names.

While it runs a link leads there, called like the variable. Once its end is written down, what it
changed there is collected: it takes the place of the link, so that it comes home as anything else
that the job made. That may take long, and whoever does it may be killed over it: the file `outside`
of the job's record says what there is to do, is locked by whoever does it, and says at last what
could not be taken along. Its room is reserved, so that a full disk does not keep it from that.
"""

import errno
import json
import os
import re
import shutil
import stat
import time

from ..machine import to_path, to_text
from ..records import record
from . import changes
from .changes import MARK, NEVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..home import Home, JobPlace
    from ..typed import Message

#: Larger files are linked, not copied: they are written once and then left alone.
LARGE = 16 << 20
PIECE = 1 << 20
STATE = "/outside"
#: Beside the job's own tree, until all of it is there.
BESIDE = "/collected"
#: Room for what could not be taken along, and so many of it are named.
ROOM, MOST_NAMED = 4096, 10
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
#: So often whoever collects shows that he lives: not every shared file system has locks.
PULSE_S = 5.0
VARIABLE = re.compile(r"\$(\w+)\Z")
HOME = re.compile(rb"(?:\$HOME|\$\{HOME\}|~(?=/))(?=/|\Z)")
USER = re.compile(rb"(?<=/)(?:\$USER|\$\{USER\})(?=/|\Z)")


def expanded(
    variables: "dict[bytes, bytes]", environ: "dict[bytes, bytes]"
) -> "dict[bytes, bytes]":
    """Values that are paths below a home are meant for the home of this machine."""
    home = environ.get(b"HOME") or os.fsencode(os.path.expanduser("~"))
    user = environ.get(b"USER") or environ.get(b"LOGNAME") or b""
    found = {}
    for name, value in variables.items():
        at = HOME.match(value)
        if at:
            value = home + value[at.end() :]
        if user and value.startswith(b"/"):
            value = USER.sub(lambda _: user, value)
        found[name] = value
    return found


def named(links: "dict[str, str]") -> "dict[str, str]":
    """Name in the job's folder -> the variable that says where it leads."""
    found = {name: VARIABLE.match(target) for name, target in links.items()}
    return {name: match.group(1) for name, match in found.items() if match}


def make_links(place: "JobPlace", links: "dict[str, str]", environ: "dict[bytes, bytes]") -> None:
    """Have a link to each such folder, which is made where it is not there yet."""
    source, folders = place.job + "/src", {}
    for name, variable in named(links).items():
        path = path_of(source, variable, environ)
        if not path or os.path.lexists(source + "/" + to_path(name)):
            continue
        folders[name] = to_text(path)
        try:
            os.makedirs(path, exist_ok=True)
            os.symlink(path, source + "/" + to_path(name))
        except OSError:
            pass  # the job itself will say what is wrong with it
    if folders:
        begin(place, folders)


def path_of(source: str, variable: str, environ: "dict[bytes, bytes]") -> str:
    value = os.fsdecode(environ.get(variable.encode(), b""))
    return os.path.join(source, value) if value else ""


# What there is to do


def begin(place: "JobPlace", folders: "dict[str, str]") -> None:
    """Write down what is to be collected; what an earlier run of the attempt left there, too."""
    since = read_state(place.record).get("since") or os.stat(place.record + MARK).st_mtime_ns
    state = {"folders": folders, "since": since, "done": False}
    text = json.dumps(state).encode("ascii")
    record.write_whole(place.record + STATE, text.ljust(len(text) + ROOM))


def read_state(folder: str) -> "Message":
    """What is written down about it; nothing where there is nothing to collect."""
    try:
        with open(folder + STATE, "rb") as file:
            state = json.loads(file.read().decode("ascii"))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def is_pending(folder: str) -> bool:
    return read_state(folder).get("done") is False


def is_taken(folder: str) -> bool:
    """Whether somebody collects it now, as far as a lock can tell."""
    try:
        fd = os.open(folder + STATE, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not record.lock(fd)
    except OSError:
        return False
    finally:
        os.close(fd)


def quiet_s(folder: str) -> float:
    """For how long nobody has shown that he collects it, by the clock of its disk."""
    shown = [
        os.stat(folder + name).st_mtime
        for name in (STATE, "/exit")
        if os.path.exists(folder + name)
    ]
    record.write_whole(folder + "/clock", b"")
    return os.stat(folder + "/clock").st_mtime - max(shown, default=0.0)


# Doing it


def collect(home: "Home", key: str) -> None:
    """Put what the job changed there into the place of each link, and list all that it made."""
    place = home.place(key)
    try:
        fd = os.open(place.record + STATE, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if taken(fd) and is_pending(place.record):
            os.utime(fd)
            Collection(place, fd).collect()
            changes.keep(home, place, record.read_spec(place.record) or {})
    finally:
        os.close(fd)


def taken(fd: int) -> bool:
    try:
        return record.lock(fd)
    except OSError:
        return True  # a file system without locks


class Collection:
    """What one job wrote elsewhere; `fd` is the locked file that says so."""

    def __init__(self, place: "JobPlace", fd: int) -> None:
        self.place = place
        self.fd = fd
        self.state = read_state(place.record)
        self.left_out: "list[list[str]]" = []
        self.count = 0
        self.shown = time.monotonic()

    def collect(self) -> None:
        beside = self.place.job + BESIDE
        for name, path in sorted(self.state["folders"].items()):
            shutil.rmtree(beside, ignore_errors=True)
            target = self.place.job + "/src/" + to_path(name)
            if os.path.lexists(target) and not os.path.islink(target):
                continue  # the job has something of its own there
            self.bring(name, to_path(path), beside)
            try:
                if os.path.islink(target):
                    os.unlink(target)
                if os.path.isdir(beside):
                    os.rename(beside, target)
            except OSError as problem:
                self.leave(name, problem)
        self.conclude()

    def bring(self, name: str, top: str, beside: str) -> None:
        own = os.path.realpath(self.place.job + "/src")
        unlisted = lambda problem: self.leave(name_of(problem.filename), problem)  # noqa: E731

        def name_of(path: str) -> str:
            return os.path.normpath(os.path.join(name, os.path.relpath(path, top)))

        for folder, folders, names in os.walk(top, onerror=unlisted):
            folders[:] = [
                each
                for each in folders
                if each not in NEVER and os.path.realpath(folder + "/" + each) != own
            ]
            into = os.path.join(beside, os.path.relpath(folder, top))
            for each in names:
                try:
                    self.bring_one(folder + "/" + each, into, each)
                except FileNotFoundError:
                    pass  # gone meanwhile
                except OSError as problem:
                    self.leave(name_of(folder + "/" + each), problem)

    def bring_one(self, path: str, into: str, name: str) -> None:
        facts = os.lstat(path)
        changed = max(facts.st_mtime_ns, facts.st_ctime_ns) >= self.state["since"]
        if not stat.S_ISREG(facts.st_mode) or not changed:
            return
        os.makedirs(into, exist_ok=True)
        target = os.path.join(into, name)
        if facts.st_size > LARGE and linked(path, target):
            return
        try:
            self.copy(path, target)
        except OSError as problem:
            record.remove(target)
            # The same file under another name needs no room.
            if problem.errno not in NO_SPACE or not linked(path, target):
                raise

    def copy(self, path: str, target: str) -> None:
        with open(path, "rb") as source, open(target, "wb") as copy:
            while True:
                piece = source.read(PIECE)
                if not piece:
                    break
                copy.write(piece)
                self.show()
        shutil.copystat(path, target)

    def show(self) -> None:
        """That we live."""
        if time.monotonic() - self.shown > PULSE_S:
            self.shown = time.monotonic()
            os.utime(self.fd)

    def leave(self, name: str, problem: "OSError") -> None:
        self.count += 1
        if len(self.left_out) < MOST_NAMED:
            why = errno.errorcode.get(problem.errno or 0, "")
            self.left_out.append([to_text(name), why])

    def conclude(self) -> None:
        size = os.fstat(self.fd).st_size
        text = b""
        while not text or (len(text) > size and self.left_out):
            self.left_out = self.left_out[:-1] if text else self.left_out
            done = dict(self.state, done=True, left_out=self.left_out, count=self.count)
            text = json.dumps(done).encode("ascii")
        try:
            os.pwrite(self.fd, text.ljust(size), 0)
        except OSError:
            record.remove(self.place.record + STATE)  # or nobody would ever be through with it


def linked(path: str, target: str) -> bool:
    try:
        os.link(path, target)
        return True
    except OSError:
        return False  # another file system
