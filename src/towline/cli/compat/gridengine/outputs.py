"""Where the output of a job on other machines is looked for: it grows here while the job runs.

What is to be brought is noted in a folder, and one process of the user brings it, for all jobs. It
goes away when nothing is left; should it be killed, the next `qsub`, `qstat` or `qdel` starts it.
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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.cli.compat.gridengine.options import Tasks

EVERY_S = 1.0
FINAL = ("done", "failed", "stopped", "lost", "skipped")


def _notes() -> str:
    return os.path.join(os.path.dirname(home_paths().store_file), "qsub")


def bring(number: int, tasks: Tasks | None, streams: tuple[str, str]) -> None:
    """Note where the output of a job goes, or that of each task, and see that it is brought."""
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
        note = os.path.join(folder, f"{number + place}.json")
        with open(note + ".new", "w") as file:
            # Where both go into one file, the job itself joins them.
            err = {} if paths[0] == paths[1] else {"err": paths[1]}
            json.dump({"out": paths[0], **err}, file)
        os.rename(note + ".new", note)
        for path in paths:
            open(path, "ab").close()
    see_to_it()


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
                except (TowlineError, OSError, ValueError):
                    continue  # the next round tries again
            time.sleep(EVERY_S)


def _bring_one(session: Session, job: int, note: str) -> None:
    with open(note) as file:
        paths: dict[str, str] = json.load(file)
    try:
        view: dict[str, Any] = session.call("GET", f"/v1/jobs/{job}")
    except NotFound:
        os.unlink(note)
        return
    over = view["state"] in FINAL
    if view["state"] in ("running", "stopping") or (over and view["attempt"]):
        for stream, path in paths.items():
            _go_on(session, job, stream, path)
    if over:
        os.unlink(note)


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
