"""What is said of a job whose folder on its machine was cleaned up: when, and what remains."""

import time
from collections.abc import Iterable

from towline.engine.engine import CLEANED, Engine
from towline.errors import AgentError, NotFound
from towline.model.job import Job
from towline.model.odd_text import original


async def note_cleaned(engine: Engine, ids: Iterable[int], machine: str) -> None:
    """Write down that the folders of these jobs were removed."""
    at, told = engine.clock(), [(job_id, f"{CLEANED}its folder on {machine}") for job_id in ids]
    if told:
        await engine.in_turn(lambda: engine.store.note(at, told))


def explained(engine: Engine, job: Job, error: AgentError) -> AgentError | NotFound:
    """The error, or in its place that the folder was cleaned up, if that is why."""
    cleaned = [at for at, text in engine.store.history(job.id) if text.startswith(CLEANED)]
    if error.code != "unknown_job" or not cleaned:
        return error
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(cleaned[-1]))
    results = original(job.results)
    remains = [f"its results: {results}"] if results.startswith("/") else []
    if job.spec.snapshot:
        remains.append(f"`tow checkout {job.id}` brings back what was submitted")
    return NotFound(
        f"the folder of job {job.id} was cleaned up on {when}",
        hint=f"what remains: {'; '.join(remains) or f'`tow show {job.id}`'}",
    )
