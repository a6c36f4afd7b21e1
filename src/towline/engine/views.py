"""Jobs, as programs see them."""

from collections.abc import Sequence
from typing import Any

import msgspec

from towline.api.jobs import After, JobView, QueueEntry
from towline.core.scheduling.obstacles import Explanation, Obstacle
from towline.engine.reasons import reason_words
from towline.engine.wording import results_words
from towline.model.job import Awaited, Entry, Job, standing
from towline.model.journal import JournalEvent
from towline.model.reason import Reason
from towline.model.results import ResultsState


def event_data(event: JournalEvent) -> dict[str, Any]:
    """What an event changed, under the names that the job itself has."""
    fields = event.fields()
    if "results" in fields:
        home = fields["home"] = fields["results"]
        fields["results"] = results_words(msgspec.convert(home, ResultsState))
    if "reason" in fields:
        because = fields["because"] = fields["reason"]
        fields["reason"] = reason_words(msgspec.convert(because, Reason))
    return fields


def entry_of(job: Job) -> QueueEntry | None:
    """What the queue of its cluster calls a job; None for one that Towline places itself."""
    queue = job.spec.queue
    if queue is None:
        return None
    entry = job.attempt.entry if job.attempt else Entry()
    return {
        "kind": queue.kind,
        "options": [list(words) for words in queue.options],
        "number": entry.number,
        "partition": entry.partition,
        "account": entry.account,
        "time_limit": entry.time_limit,
        "requeued_at": entry.requeued_at,
        "requeued": entry.requeued,
        "shared_by": job.spec.pack.parallel if job.spec.pack and job.spec.batch else 0,
    }


def _whereabouts(job: Job) -> list[str]:
    """Where it is or was; of what waits in another's queue, nobody knows yet."""
    if job.attempt is None or (job.spec.queue is not None and not job.attempt.nodes):
        return []
    return job.attempt.machines()


def view(job: Job) -> JobView:
    """What programs see of a job; environment values are left out on purpose."""
    return {
        "id": job.id,
        "title": job.spec.title,
        "state": standing(job),
        "exit_code": job.exit_code,
        "cluster": job.spec.cluster,
        "machines": _whereabouts(job),
        "queue": entry_of(job),
        "request": job.spec.request,
        "submitted": job.submitted,
        "started": job.started,
        "ended": job.ended,
        "reason": reason_words(job.reason),
        "because": msgspec.to_builtins(job.reason),
        "owner": job.spec.owner,
        "command": list(job.spec.argv),
        "folder": job.spec.folder,
        "attempt": job.attempt.number if job.attempt else 0,
        "retries": job.spec.retries,
        "priority": job.spec.priority,
        "results": results_words(job.results),
        "home": msgspec.to_builtins(job.results),
        "batch": job.spec.batch,
        "line": job.spec.line,
        "after": after_view(job.spec.after),
        "begin": job.spec.begin or None,
    }


def after_view(after: tuple[Awaited, ...]) -> list[After]:
    """What a job or a batch is to run after, for programs."""
    return [{"when": one.when, "job": one.job, "batch": one.batch} for one in after]


def obstacles_data(obstacles: Sequence[Obstacle]) -> list[dict[str, Any]]:
    """What keeps a job from a machine, for programs."""
    found: list[dict[str, Any]] = [msgspec.to_builtins(obstacle) for obstacle in obstacles]
    return found


def explanation_data(why: Explanation) -> dict[str, Any]:
    """Why a job waits, for programs; what keeps it from each machine is told beside."""
    found: dict[str, Any] = msgspec.to_builtins(why)
    found.pop("reasons")
    return found
