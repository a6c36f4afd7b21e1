"""What is said of a job whose folder on its machine was cleaned up: when, and what remains."""

import time
from collections.abc import Iterable

from towline.engine.engine import Engine
from towline.errors import AgentError, NotFound
from towline.model.job import Job
from towline.model.journal import Kind
from towline.model.odd_text import original


async def note_cleaned(engine: Engine, ids: Iterable[int], machine: str) -> None:
    """Write down that the folders of these jobs were removed."""
    at, jobs = engine.clock(), engine.jobs(ids).values()
    if jobs:
        await engine.in_turn(lambda: engine.store.note(Kind.CLEANED, at, jobs, machine=machine))


def explained(engine: Engine, job: Job, error: AgentError) -> AgentError | NotFound:
    """The error, or in its place that the folder is gone and since when, if that is why."""
    if error.code != "unknown_job":
        return error
    cleaned_at = engine.store.journal.cleaned_at(job.id)
    said = f"the folder of job {job.id} is not on its machine"
    if cleaned_at is not None:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(cleaned_at))
        said = f"the folder of job {job.id} was cleaned up on {when}"
    results = job.results
    remains = [f"its results: {original(results.path)}"] if results.here else []
    if job.spec.snapshot:
        remains.append(f"`tow checkout {job.id}` brings back what was submitted")
    return NotFound(
        said,
        hint=f"what remains: {'; '.join(remains) or f'`tow show {job.id}`'}",
    )
