"""`qsub -sync y`: wait for the end of a job, and tell how it ended."""

from __future__ import annotations

import signal
import sys
import time

from towline.cli.compat.gridengine.listing import Entry
from towline.cli.compat.gridengine.outputs import await_all
from towline.client.waiting import WaitingForJobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.cli.compat.gridengine.submit.values import Tasks
    from towline.client.session import Session

#: What a queue has set aside never ends by itself: it is looked for this often.
_LOOK_S = 5.0
#: So many of those that have not ended are looked at.
_MOST_LOOKED_AT = 100


def wait(session: Session, number: int, tasks: Tasks | None) -> int:
    """Until it has ended; its exit code, or that of the first task that did not end well. Who does
    not want to wait any longer does not want the job, as with a real one."""
    numbers = tasks.numbers if tasks else ()
    names = {number + place: f"{number}.{task}" for place, task in enumerate(numbers)}
    names = names or {number: str(number)}
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _wait(session, names)
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted!\nPlease wait while qsub shuts down.\n")
        session.call("POST", "/v1/jobs/stop", {"ids": list(names)}, repeat=True)
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)


def _wait(session: Session, names: dict[int, str]) -> int:
    waiting = WaitingForJobs(session, list(names), [])
    worst = 0
    while waiting.pending:
        try:
            for view in waiting.ends(deadline=time.monotonic() + _LOOK_S):
                code = _tell(view, names[view["id"]])
                worst = worst or code
        except TimeoutError:
            pending = [int(job) for job in waiting.pending[:_MOST_LOOKED_AT]]
            views = [session.call("GET", f"/v1/jobs/{job}") for job in pending]
            if aside := [view for view in views if "E" in Entry(view).state]:
                return _set_aside(aside, names)
    # What it printed is here when `qsub` returns: the next line of a script reads it.
    await_all(names)
    return worst


def _tell(view: dict[str, Any], who: str) -> int:
    code = view["exit_code"]
    if code is None:
        why = f": {view['reason']}" if view["reason"] else ""
        sys.stderr.write(f"Unable to run job {who}{why}\n")
        return 1
    if code:
        sys.stderr.write(f"Job {who} exited with exit code {code}.\n")
    else:
        print(f"Job {who} exited with exit code 0.", flush=True)
    return int(code)


def _set_aside(views: list[dict[str, Any]], names: dict[int, str]) -> int:
    """A real one would wait for ever."""
    for view in views:
        sys.stderr.write(f"Unable to run job {names[view['id']]}: {view['reason']}\n")
    first = views[0]["id"]
    sys.stderr.write(f"mend that, then: tow retry {first}; or: tow qdel {names[first]}\n")
    return 1
