"""One Engine for one folder of state, also where several machines see that folder.

The lock file says who holds it: the host, its process and its boot. Where locks reach over the
network file system they decide; where they do not, the holder shows by touching the file that it
lives.
"""

from __future__ import annotations

import fcntl
import json
import os
import time

from towline.errors import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.config.paths import Paths

#: The holder touches its lock at least so often; one that did not for longer is gone.
BEAT_S = 20.0
_ALIVE_S = 3 * BEAT_S
#: One that has left is gone within this time; until then its lock is held.
_GOING_S = 10.0
_LOOK_S = 0.01


def take(paths: Paths) -> int | None:
    """The open lock file, held for as long as this process lives; None if an Engine has it here."""
    check_holder(paths)
    try:
        lock = os.open(paths.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock_once_free(lock, f"{paths.lock_file}.next")
            os.ftruncate(lock, 0)
            os.pwrite(lock, json.dumps(_here()).encode(), 0)
        except OSError:
            os.close(lock)
            raise
    except BlockingIOError:
        return None
    except OSError as error:
        raise EngineError(
            f"cannot lock {paths.lock_file}: {error.strerror}",
            "set TOWLINE_HOME to a folder of your own, on a disk of this machine",
        ) from None
    return lock


def _lock_once_free(lock: int, beside: str) -> None:
    """Lock it; while nobody says that he holds it, whoever did is on his way out.

    One of those who wait for that is enough, and the first of them will be it.
    """
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    except BlockingIOError:
        if os.fstat(lock).st_size:
            raise
    with open(beside, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as turn:
        fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        until = time.monotonic() + _GOING_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if os.fstat(lock).st_size or time.monotonic() > until:
                    raise
            time.sleep(_LOOK_S)


def beat(lock: int) -> None:
    """Show that the holder lives."""
    os.utime(lock)


def leave(lock: int) -> None:
    """Nobody holds it from now on."""
    os.ftruncate(lock, 0)


def check_holder(paths: Paths) -> None:
    """Refuse where an Engine on another machine has this folder."""
    holder = _holder(paths.lock_file)
    if holder is None or not _is_elsewhere(holder):
        return
    lock = os.open(paths.lock_file, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        alive = _is_alive(lock)
    except OSError:
        alive = True
    finally:
        os.close(lock)
    if alive:
        raise _elsewhere(holder)


def _elsewhere(holder: dict[str, Any]) -> EngineError:
    host = "".join(filter(str.isprintable, str(holder.get("host"))))[:100]
    return EngineError(
        f"an Engine runs on {host}, with the same folder of state",
        "use tow there, or set TOWLINE_HOME to a folder of this machine",
    )


def _holder(file: str) -> dict[str, Any] | None:
    """What the lock file says; None where no Engine, or an older one, wrote into it."""
    try:
        with open(file, "rb") as opened:
            found = json.loads(opened.read(1000) or b"null")
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("host") else None


def _is_elsewhere(holder: dict[str, Any]) -> bool:
    here = _here()
    # One with a new name is still the same until it restarts, and then it is known by its name.
    return bool(holder["host"] != here["host"] and holder.get("boot") != here["boot"])


def _is_alive(lock: int) -> bool:
    """Whether it was touched lately, by the clock of the file system itself."""
    touched = os.fstat(lock).st_mtime
    probe = f"{os.path.realpath(f'/proc/self/fd/{lock}')}.{os.getpid()}"
    try:
        os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        now = os.stat(probe).st_mtime
        os.unlink(probe)
    except OSError:
        now = time.time()
    return now - touched < _ALIVE_S


def _here() -> dict[str, Any]:
    try:
        with open("/proc/sys/kernel/random/boot_id") as opened:
            boot = opened.read().strip()
    except OSError:
        boot = ""
    return {"host": os.uname().nodename, "pid": os.getpid(), "boot": boot}
