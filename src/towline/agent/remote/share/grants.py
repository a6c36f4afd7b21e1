"""What everybody's jobs on this machine were granted, so that no two count on the same.

Each user has a folder in /tmp with a file per job, which the job's supervisor locks for as long as
it lives: whoever can take the lock knows that the claim is over, unless the command outlived its
supervisor. /tmp, because there everybody may
write and nobody may remove what another wrote: /dev/shm loses a user's files when they log out,
/run/lock is not open to all, and a folder for everybody would belong to whoever came first. Where
somebody else sits on the name of a user's folder, it has another name that nobody can foresee.
Nothing is believed of others but numbers, so the worst that one can do is to claim too much.
"""

import errno
import fcntl
import json
import os
import pwd
import re
import stat
import time

from ..commands import process_tree
from ..home import KEY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..typed import Message, Pause

BASE = "/tmp"
PREFIX = ".towline-claims-"
#: The user's number, and a random part where the plain name is somebody else's.
FOLDER = re.compile(r"\.towline-claims-([0-9]{1,10})(-[0-9a-f]{16})?\Z")
MOST_SIZE = 4096
MOST_FILES = 10000
MOST_GPUS = 64
#: A number beyond this is not one of a machine.
MOST = 1e12
#: Whoever holds the common lock so long does not hold up others any longer.
LOCK_S = 2.0
LOCK_EVERY_S = 0.01
#: A claim of a job with no GPU is not worth its file before the job has lived so long.
SHOW_AFTER_S = 0.02
#: Programs that tidy /tmp take what was not touched for days.
TOUCH_EVERY_S = 3600.0
OVER_FOR_S = 3600.0
NAMES: "dict[int, str]" = {}

#: field -> (allowed types, what is meant when it is left out)
FIELDS: "dict[str, tuple[Any, Any]]" = {
    "cpus": ((int, float), 0),
    "mem_mb": ((int,), 0),
    "gpus": ((list,), []),
    #: Memory and computing that it may use of each of its GPUs.
    "gpu_mem_mb": ((int,), 0),
    "gpu_util": ((int, float), 0),
    #: Nobody else on its GPUs; nobody else on the machine.
    "reserved": ((bool,), False),
    "exclusive": ((bool,), False),
    #: The supervisor, and the command once it runs, with its start in ticks since boot.
    "pid": ((int,), 0),
    "command": ((int,), 0),
    "since": ((int,), 0),
}


class Taken(Exception):
    """Another's claim came first."""


def checked(claim: "Any") -> "Message":
    """The claim, complete; ValueError if it is not one."""
    if not isinstance(claim, dict):
        raise ValueError("a claim is not an object")
    whole: "dict[str, Any]" = {}
    for name, (types, default) in FIELDS.items():
        value = claim.get(name, default)
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise ValueError("`%s` of a claim is wrong" % name)
        if not isinstance(value, list) and not 0 <= value <= MOST:
            raise ValueError("`%s` of a claim is out of bounds" % name)
        whole[name] = value
    gpus = whole["gpus"]
    if len(gpus) > MOST_GPUS or not all(type(gpu) is int and 0 <= gpu < 1000 for gpu in gpus):
        raise ValueError("`gpus` of a claim is wrong")
    return whole


class Grant:
    """What one job was granted, from its start order to its end; None: nothing."""

    def __init__(self, key: str = "", claim: "Message | None" = None) -> None:
        self.key = key
        self.claim = None if claim is None else dict(checked(claim), pid=os.getpid())
        #: How much memory its GPUs have, as far as that is known.
        self.room_mb = (claim or {}).get("room_mb", [])
        self.begun = self.touched = time.monotonic()
        self.fd = -1
        self.path = ""

    def take(self, pause: "Pause") -> None:
        """Claim GPUs before anything is done; `Taken` when they are another's. Between looks at
        the common lock `pause` is called.

        To be seen comes before looking: so even without the lock no two get the same GPU, but both
        may be refused.
        """
        if self.claim is None or not self.claim["gpus"]:
            return
        lock = lock_all(pause)
        try:
            self.show()
            others = [claim for claim in everybody() if claim["key"] != self.key]
            against = conflict(self.claim, self.room_mb, others)
            if against:
                self.release()
                raise Taken(against)
        finally:
            if lock is not None:
                os.close(lock)

    def show(self, after_s: float = 0.0) -> None:
        """Let others see it; a machine where that is not possible is no reason not to run."""
        if self.claim is None or self.fd >= 0 or time.monotonic() - self.begun < after_s:
            return
        try:
            folder = own_folder()
            path, beside = folder + "/" + self.key, folder + "/." + self.key
            # Nobody else can open it, and so lock it, before it is locked by us.
            remove(beside)
            fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError:
            return
        try:
            # It is never seen unlocked: that would mean that it is over.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fchmod(fd, 0o644)
            os.write(fd, json.dumps(self.claim).encode("ascii"))
            os.rename(beside, path)
        except OSError:
            os.close(fd)
            return
        self.fd, self.path = fd, path

    def began(self, pid: int, start: int) -> None:
        """Let others know by what to tell that the job lives, should the supervisor be killed."""
        if self.claim is not None:
            self.claim.update(command=pid, since=start)
            shown, self.fd = self.fd, -1
            if shown >= 0:
                self.show()
                if self.fd < 0:
                    self.fd = shown
                else:
                    os.close(shown)

    def touch(self) -> None:
        """From time to time: nobody shall take it for a leftover, and if one did, show it again."""
        if self.fd < 0:
            return
        if os.fstat(self.fd).st_nlink == 0:
            os.close(self.fd)
            self.fd = -1
            self.show()
        elif time.monotonic() - self.touched > TOUCH_EVERY_S:
            self.touched = time.monotonic()
            os.utime(self.fd)

    def release(self) -> None:
        if self.fd >= 0:
            remove(self.path)
            os.close(self.fd)
            self.fd = -1


def own_path() -> str:
    return "%s/%s%d" % (BASE, PREFIX, os.getuid())


def own_folder() -> str:
    """The folder of our claims; OSError when there can be none."""
    above = os.lstat(BASE)
    if above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX:
        raise OSError(errno.EPERM, "anybody may remove our files from %s" % BASE)
    path = own_path()
    try:
        return made(path)
    except FileExistsError:
        if is_own(path):
            return path
    for name in sorted(os.listdir(BASE)):
        found = FOLDER.match(name)
        if found and int(found.group(1)) == os.getuid() and is_own(BASE + "/" + name):
            return BASE + "/" + name
    return made("%s-%s" % (path, os.urandom(8).hex()))


def made(path: str) -> str:
    os.mkdir(path, 0o755)
    os.chmod(path, 0o755)
    return path


def is_own(path: str) -> bool:
    try:
        return is_folder_of(os.lstat(path), os.getuid())
    except OSError:
        return False


def in_the_way() -> "Message | None":
    """What has the name of our folder, and whose it is; None when nothing is in the way."""
    path = own_path()
    try:
        facts = os.lstat(path)
    except OSError:
        return None
    if is_folder_of(facts, os.getuid()):
        return None
    return {"path": path, "user": user_name(facts.st_uid)}


def is_folder_of(facts: "os.stat_result", uid: int) -> bool:
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == uid and not facts.st_mode & 0o022


def lock_all(pause: "Pause") -> "int | None":
    """The lock by which claims are taken one after the other; None if it could not be had."""
    try:
        fd = os.open(BASE, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    until = time.monotonic() + LOCK_S
    try:
        while is_locked(fd, fcntl.LOCK_EX):
            if time.monotonic() > until:
                os.close(fd)
                return None
            time.sleep(LOCK_EVERY_S)
            pause()
    except BaseException:
        os.close(fd)
        raise
    return fd


def is_locked(fd: int, kind: int) -> bool:
    """True when somebody else holds the lock; otherwise we do now, unless nobody can."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
        return False
    except OSError as problem:
        return problem.errno in (errno.EWOULDBLOCK, errno.EACCES)


def everybody(known: "Any" = ()) -> "list[Message]":
    """Every claim that holds, with `key`, `user` and whether it is `mine`; `known` are the jobs of
    ours that are known to live."""
    found: "list[dict[str, Any]]" = []
    try:
        names = os.listdir(BASE)
    except OSError:
        return found
    for name in names:
        folder = FOLDER.match(name)
        if folder:
            found += of_user(BASE + "/" + name, int(folder.group(1)), known)
    return found


def of_user(path: str, uid: int, known: "Any") -> "list[Message]":
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return []
    mine = uid == os.getuid()
    found = []
    try:
        if not is_folder_of(os.fstat(folder), uid):
            return []
        # Names with a dot in front are still being written.
        for key in filter(KEY.match, os.listdir(folder)[:MOST_FILES]):
            claim = read_claim(folder, key, uid, mine and key in known)
            if claim is not None:
                found.append(dict(claim, key=key, user=user_name(uid), uid=uid, mine=mine))
    except OSError:
        pass
    finally:
        os.close(folder)
    return found


def read_claim(folder: int, key: str, uid: int, alive: bool) -> "Message | None":
    """The claim in a file of a user's folder; None when it is over or is not one."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(key, flags, dir_fd=folder)
    except OSError:
        return None
    try:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != uid or facts.st_size > MOST_SIZE:
            return None
        alive = alive or is_locked(fd, fcntl.LOCK_SH)
        claim = checked(json.loads(os.read(fd, MOST_SIZE).decode("ascii")))
        if alive or outlived(claim, uid):
            return claim
        if uid == os.getuid() and time.time() - facts.st_mtime > OVER_FOR_S:
            remove(key, folder)
        return None
    except (OSError, ValueError, RecursionError):
        return None
    finally:
        os.close(fd)


def outlived(claim: "Message", uid: int) -> bool:
    """Whether the command goes on without a supervisor."""
    pid = claim["command"]
    return belongs(pid, uid) and process_tree.lives(pid, claim["since"])


def belongs(pid: int, uid: int) -> bool:
    """Whether there is such a living process of this user, as far as we may see."""
    try:
        owned = pid > 0 and os.stat("/proc/%d" % pid).st_uid == uid
    except OSError:
        return False
    return owned and process_tree.is_alive(pid)


def conflict(claim: "Message", room_mb: "Any", others: "list[Message]") -> str:
    """Why a claim cannot stand beside those of others, in words; empty if it can."""
    for place, gpu in enumerate(claim["gpus"]):
        beside = [other for other in others if gpu in other["gpus"]]
        if not beside:
            continue
        users = ", ".join(sorted({other["user"] for other in beside}))
        if claim["reserved"] or any(other["reserved"] for other in beside):
            return "GPU %d was given to a job of %s meanwhile" % (gpu, users)
        wanted = claim["gpu_mem_mb"] + sum(other["gpu_mem_mb"] for other in beside)
        if place < len(room_mb) and wanted > room_mb[place]:
            return "the memory of GPU %d was given to jobs of %s meanwhile" % (gpu, users)
    return ""


def user_name(uid: int) -> str:
    if uid not in NAMES:
        try:
            NAMES[uid] = pwd.getpwuid(uid).pw_name
        except KeyError:
            NAMES[uid] = str(uid)
    return NAMES[uid]


def remove(path: str, folder: "int | None" = None) -> None:
    try:
        os.unlink(path, dir_fd=folder)
    except OSError:
        pass
