"""`qsub -now y`: a job starts at once, or not at all."""

from __future__ import annotations

import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from towline.client.session import Session

#: A job that has no place by then has to go. The schedulers of queues look for places that often.
PATIENCE_S, PATIENCE_WITH_QUEUES_S = 5.0, 15.0
_EVERY_S = 0.1
_WAITS = ("new", "staging", "waiting", "queued")


def start_at_once(session: Session, number: int) -> bool:
    """Whether a job has started; one that has not is gone."""
    sys.stderr.write("Waiting for immediate job to be scheduled.\n")
    begin = time.monotonic()
    while (view := session.call("GET", f"/v1/jobs/{number}"))["state"] in _WAITS:
        patience_s = PATIENCE_WITH_QUEUES_S if view["queue"] else PATIENCE_S
        if time.monotonic() > begin + patience_s:
            session.call("POST", "/v1/jobs/stop", {"ids": [number]}, repeat=True)
            sys.stderr.write("\nYour qsub request could not be scheduled; try again later.\n")
            return False
        time.sleep(_EVERY_S)
    sys.stderr.write(f"\nYour immediate job {number} has been successfully scheduled.\n")
    return True
