"""`pit stop` and `pit rm job:N`."""

from __future__ import annotations

from towline.cli.pit.failures import Failed
from towline.cli.pit.session import PitSession
from towline.cli.pit.typed.names import job_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from towline.cli.pit.typed.grammar import Typed

_OVER = ("done", "failed", "stopped", "lost", "skipped")


def stop(typed: Typed) -> None:
    number = job_number(typed.words[0])
    session = PitSession()
    job = session.call("GET", f"/v1/jobs/{number}")
    if job["state"] in (*_OVER, "stopping"):
        raise Failed("Only jobs before or in running state can be stopped")
    session.call("POST", "/v1/jobs/stop", {"ids": [number]}, repeat=True)


def remove_job(session: PitSession, number: int) -> None:
    job = session.call("GET", f"/v1/jobs/{number}")
    if job["state"] not in _OVER:
        raise Failed("Only stopped jobs can be deleted", f"first: pit stop {number}")
    session.call("POST", "/v1/jobs/remove", {"ids": [number]}, repeat=True)
