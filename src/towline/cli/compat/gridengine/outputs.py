"""Where the output of a job on other machines is looked for: it grows here while the job runs.

What is to be brought is noted in a folder, and one process of the user brings it, for all jobs, and
writes the mails that were wanted (`qsub -m`). It goes away when nothing is left; should it be
killed, the next `qsub`, `qstat` or `qdel` starts it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

from towline.client.session import Session
from towline.client.transport import with_query
from towline.config.paths import home_paths
from towline.errors import NotFound, TowlineError
from towline.model.names import shown_cluster

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from towline.cli.compat.gridengine.submit.values import Tasks

EVERY_S = 1.0
#: For so long `qsub -sync y` waits for the last of the output, and looks this often.
PATIENCE_S, _LOOK_S = 60.0, 0.1
_NO_PLACE = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
FINAL = ("done", "failed", "stopped", "lost", "skipped")


def _notes() -> str:
    return os.path.join(os.path.dirname(home_paths().store_file), "qsub")


def see_to(
    number: int, tasks: Tasks | None, streams: tuple[str, str], letter: Mapping[str, str]
) -> None:
    """Note where the output of a job goes, or that of each task, and who is written to of it; and
    see that it is done."""
    folder = _notes()
    os.makedirs(folder, mode=0o700, exist_ok=True)
    numbers = list(tasks.numbers) if tasks else [0]
    for place, task in enumerate(numbers):
        paths = [
            path.replace("$JOB_ID", str(number))
            .replace("$TASK_ID", str(task) if tasks else "undefined")
            .replace("$HOSTNAME", os.uname().nodename)
            for path in streams
        ]
        said: dict[str, Any] = {"out": paths[0]} if paths[0] else {}
        if paths[1] != paths[0]:
            # Where both go into one file, the job itself joins them.
            said["err"] = paths[1]
        if letter:
            who = f"Job-array task {number}.{task}" if tasks else f"Job {number}"
            said["mail"] = {**letter, "who": who}
        _write(os.path.join(folder, f"{number + place}.json"), said)
        for path in filter(None, paths):
            open(path, "ab").close()
    see_to_it()


def _write(note: str, said: dict[str, Any]) -> None:
    with open(note + ".new", "w") as file:
        json.dump(said, file)
    os.rename(note + ".new", note)


def see_to_it() -> None:
    """Start the process that brings output, unless it is there or nothing is to be brought."""
    folder = _notes()
    if not os.path.isdir(folder) or not any(n.endswith(".json") for n in os.listdir(folder)):
        return
    subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )


def await_all(jobs: Iterable[int]) -> None:
    """Wait until all that these printed, which have ended, is here, unless it takes too long."""
    until = time.monotonic() + PATIENCE_S
    for job in jobs:
        while os.path.exists(os.path.join(_notes(), f"{job}.json")):
            if time.monotonic() > until:
                sys.stderr.write(f"not all of its output is here yet: tow log {job}\n")
                return
            time.sleep(_LOOK_S)


def main() -> None:
    import fcntl

    folder = _notes()
    with open(os.path.join(folder, "lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        session = Session()
        while names := [name for name in os.listdir(folder) if name.endswith(".json")]:
            for name in sorted(names):
                try:
                    _bring_one(session, int(name[:-5]), os.path.join(folder, name))
                except (TowlineError, OSError, ValueError, subprocess.SubprocessError):
                    continue  # the next round tries again
            time.sleep(EVERY_S)


def _bring_one(session: Session, job: int, note: str) -> None:
    with open(note) as file:
        said: dict[str, Any] = json.load(file)
    letter = said.pop("mail", None)
    try:
        view: dict[str, Any] = session.call("GET", f"/v1/jobs/{job}")
    except NotFound:
        os.unlink(note)
        return
    over = view["state"] in FINAL
    if view["state"] in ("running", "stopping") or (over and view["attempt"]):
        for stream, path in said.items():
            try:
                _go_on(session, job, stream, path)
            except _NO_PLACE:
                if not over:
                    raise
                # Its folder is gone for good; `tow log` has all of it.
    if letter:
        _write_to(letter, view, over, note, said)
    if over:
        os.unlink(note)


def _write_to(
    letter: dict[str, str], view: dict[str, Any], over: bool, note: str, said: dict[str, Any]
) -> None:
    """Noted before it is sent: should this be killed in between, none comes twice."""
    from towline.cli.compat.gridengine.submit import mail

    for kind in mail.due(letter, view, over):
        letter["told"] += kind
        _write(note, {**said, "mail": letter})
        queue = shown_cluster(view["cluster"])
        mail.send(mail.message(kind, letter["who"], view, queue, letter["to"]))


def _go_on(session: Session, job: int, stream: str, path: str) -> None:
    """Add to a file what the job has printed since."""
    size = os.path.getsize(path) if os.path.exists(path) else 0
    begin = json.dumps({f"0.0.{stream}": size})
    target = with_query(f"/v1/jobs/{job}/log", follow=0, stream=stream, **{"from": begin})
    with open(path, "ab") as file:
        for header, blob in session.frames("GET", target):
            if header.get("stream") == stream and not header.get("process"):
                file.write(blob[max(0, size - int(header["offset"])) :])


if __name__ == "__main__":
    main()
