"""Waiting for several jobs and batches, on the journal, whatever happens to the Engine."""

from __future__ import annotations

from towline.client.batches import jobs_of
from towline.client.events import events, seq_now
from towline.client.transport import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from towline.client.session import Session

FINAL = ("done", "failed", "stopped", "lost", "skipped")
#: What a job made is on its way home.
_ON_THEIR_WAY = "pending"


class WaitingForJobs:
    """Jobs and batches that are waited for."""

    def __init__(self, session: Session, jobs: list[int], batches: list[str]) -> None:
        self.session = session
        self._jobs = dict.fromkeys(jobs)
        #: Batch -> how many of its jobs have not ended.
        self._batches = dict.fromkeys(batches, 1)

    @property
    def pending(self) -> list[str]:
        """What has not ended, as people call it."""
        return [*map(str, self._jobs), *self._batches]

    def ends(self, deadline: float | None = None) -> Iterator[dict[str, Any]]:
        """What the Engine tells of each, once it has ended and what it made is home.

        Raises TimeoutError when the clock (`time.monotonic`) passes `deadline`.
        """
        since = seq_now(self.session)
        yield from filter(None, map(self._look_at_job, list(self._jobs)))
        yield from filter(None, map(self._look_at_batch, list(self._batches)))
        while self._jobs or self._batches:
            for event in events(self.session, since=since, deadline=deadline, **self._only()):
                since = event.seq
                if (view := self._heard(event.job, event.batch, event.data)) is not None:
                    yield view
                    break

    def _only(self) -> dict[str, Any]:
        """Of one job or batch, no event of others is asked for."""
        if len(self._jobs) + len(self._batches) != 1:
            return {}
        return (
            {"job": next(iter(self._jobs))} if self._jobs else {"batch": next(iter(self._batches))}
        )

    def _heard(self, job: int, batch: str, data: dict[str, Any]) -> dict[str, Any] | None:
        ended = data.get("state") in FINAL
        if job in self._jobs and (ended or "results" in data):
            return self._look_at_job(job)
        if batch in self._batches and ended:
            self._batches[batch] -= 1
            if self._batches[batch] <= 0:
                return self._look_at_batch(batch)
        return None

    def _look_at_job(self, job: int) -> dict[str, Any] | None:
        view: dict[str, Any] = self.session.call("GET", f"/v1/jobs/{job}")
        if view["state"] not in FINAL or (view.get("home") or {}).get("kind") == _ON_THEIR_WAY:
            return None
        del self._jobs[job]
        return view

    def _look_at_batch(self, name: str) -> dict[str, Any] | None:
        view: dict[str, Any] = jobs_of(self.session, name, limit=1)["batch"]
        left = view["count"] - sum(view["counts"].get(state) or 0 for state in FINAL)
        if left:
            self._batches[name] = left
            return None
        del self._batches[name]
        if not view["home"]:
            target = f"/v1/batches/{quoted(name)}/results"
            view = self.session.call("POST", target, {}, repeat=True)["batch"]
        return view
