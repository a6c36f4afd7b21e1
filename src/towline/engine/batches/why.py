"""Why those jobs of a batch wait that wait."""

from towline.core.batches import Progress
from towline.engine.chains import waiting_words
from towline.engine.engine import Engine
from towline.engine.obstacle_words import waiting_text
from towline.engine.reasons import reason_words
from towline.model.job import State


def why_waiting(engine: Engine, progress: Progress) -> str:
    """Why the next of them waits, in words; empty if none does."""
    batch = progress.batch
    if waits := waiting_words(engine, batch.name, batch.base.after):
        return waits
    if batch.base.queue is not None:
        inside = (engine.core.jobs.get(job) for job in progress.inside)
        waiting_there = (job for job in inside if job and job.state is State.STARTING)
        return next((reason_words(job.reason) for job in waiting_there), "")
    if batch.stopped or not progress.counts[State.QUEUED]:
        return ""
    waiting = (job for job, state in progress.inside.items() if state is State.QUEUED)
    job_id = next(waiting, None)
    if job_id is None:
        return f"{batch.max_parallel} run at a time" if progress.inside else ""
    scheduler = engine.core.scheduler
    if job_id in scheduler.running:
        return ""  # it has just been given its machine
    if scheduler.caps.spare_in(job_id):
        return f"{batch.max_parallel} run at a time"
    return waiting_text(scheduler.explain(job_id, engine.clock()))
