"""The Engine of this user on this machine: started where none runs, looked at, asked to end."""

from __future__ import annotations

import json
import os
import sys
import time

from towline.client.transport import Gone, connect, request
from towline.errors import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from subprocess import Popen
    from typing import Any

    from towline.client.transport import Body
    from towline.config.paths import Paths

#: A cold start from a slow disk, on a machine that has other things to do.
START_LIMIT_S = 60.0
END_LIMIT_S = 20.0
POLL_S = 0.01
#: A second Engine gives way to the first; this long the first may take until it listens.
GIVE_WAY_S = 2.0
#: How the programs begin that `tow shims` writes.
SHIM = "#!/bin/sh\n# Written by `tow shims`.\n"
#: Engines that this process started: they outlive it, but are its children as long as it lives.
_children: set[int] = set()


def running(paths: Paths) -> dict[str, Any] | None:
    """What the Engine says of itself, whatever its version; None when there is none."""
    try:
        with request(connect(paths.socket), "GET", "/v1/engine") as reply:
            answer: dict[str, Any] = json.loads(reply.read_all())
            return answer
    except (OSError, Gone, ValueError):
        return None


def retire(paths: Paths) -> bool:
    """Ask the Engine to end, and wait until it did; False when there was none."""
    before = running(paths)
    if before is None:
        return False
    try:
        request(connect(paths.socket), "POST", "/v1/engine/retire", b"{}").close()
    except (OSError, Gone):
        pass  # It may have been on its way out already.
    deadline = time.monotonic() + END_LIMIT_S
    while (now := running(paths)) is not None and now.get("pid") == before.get("pid"):
        if time.monotonic() > deadline:
            raise EngineError(
                f"the Engine (process {before.get('pid')}) does not end",
                f"end it yourself: kill {before.get('pid')}; running jobs go on",
            )
        time.sleep(POLL_S)
    return True


def first_job(submission: Body) -> tuple[str, ...]:
    """The folder and the cluster of what is submitted: its machines are called while the Engine
    still starts."""
    asked = json.loads(submission) if isinstance(submission, bytes) else {}
    job = (asked.get("jobs") or [asked])[0]
    return (job["cwd"], job.get("cluster") or "") if job.get("cwd") else ()


def start(paths: Paths, first: tuple[str, ...] = ()) -> socket:
    """Start the Engine and connect to it; of two started at once, one gives way by itself."""
    from towline.config.lock import check_holder

    check_holder(paths)
    log_size = _size(paths.log_file)
    child = _launch(paths, first)
    deadline = time.monotonic() + START_LIMIT_S
    ended: float | None = None
    while time.monotonic() < deadline:
        try:
            connection = connect(paths.socket)
            _let_go(child)
            return connection
        except OSError:
            time.sleep(POLL_S)
        code = child.poll()
        if code is not None and code < 0:
            # Killed, which says nothing about the next one.
            child = _launch(paths, first)
            continue
        ended = (ended or time.monotonic()) if code is not None else None
        if ended and time.monotonic() > ended + GIVE_WAY_S:
            if code:
                raise EngineError(
                    "the Engine does not start", _last_lines(paths.log_file, log_size)
                )
            # The one it gave way to has ended meanwhile.
            child = _launch(paths, first)
    raise EngineError(
        f"the Engine does not answer on {paths.socket}", _last_lines(paths.log_file, log_size)
    )


def _let_go(child: Popen[bytes]) -> None:
    """Leave an Engine to itself, and bury those that ended since the last one was started."""
    if child.poll() is None:
        _children.add(child.pid)
        # Python warns of a child that nobody waited for, unless it seems to have ended.
        child.returncode = 0
    for pid in list(_children):
        try:
            ended = os.waitpid(pid, os.WNOHANG)[0]
        except ChildProcessError:
            ended = pid
        if ended:
            _children.discard(pid)  # another thread may be at it too


def path_without_shims(path: str) -> str:
    """The Engine calls the real `qsub` of a queue, and never one that leads back to itself."""
    return os.pathsep.join(
        folder for folder in path.split(os.pathsep) if not _has_shims(folder or ".")
    )


def _has_shims(folder: str) -> bool:
    try:
        with open(os.path.join(folder, "qsub"), "rb") as file:
            return file.read(len(SHIM)) == SHIM.encode()
    except OSError:
        return False


def _launch(paths: Paths, first: tuple[str, ...] = ()) -> Popen[bytes]:
    import subprocess

    from towline.config.paths import make_folders

    make_folders(paths)
    # It stands in another folder, where a relative path would lead elsewhere.
    home = {"TOWLINE_HOME": paths.home} if os.environ.get("TOWLINE_HOME") else {}
    log = os.open(paths.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "towline.server.laptop", *first],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env={**os.environ, **home, "PATH": path_without_shims(os.environ.get("PATH", ""))},
            start_new_session=True,
        )
    finally:
        os.close(log)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _last_lines(path: str, start: int, count: int = 10) -> str:
    """The end of what the Engine logged since `start`."""
    try:
        with open(path, "rb") as log:
            log.seek(max(start, os.fstat(log.fileno()).st_size - 8192))
            lines = log.read().decode("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    if lines:
        return "\n  ".join(["its log ends with:", *lines[-count:]])
    return _no_room(os.path.dirname(path)) or f"its log: {path}"


def _no_room(folder: str) -> str:
    """Why nothing can be written there, if that is so: then the log says nothing, either."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return f"{folder} cannot be looked at"
    if disk.f_bavail * disk.f_frsize < 65536:
        return f"the disk of {folder} is full: free some space there"
    return "" if os.access(folder, os.W_OK) else f"{folder} cannot be written to"
