"""What a job printed: piece by piece, as its machine and the Engine know it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from towline.backends.base import Backend
from towline.engine.engine import Engine, request_of
from towline.engine.views import view
from towline.errors import AgentError
from towline.model.job import Job, State
from towline.model.odd_text import original

Frame = tuple[dict[str, Any], bytes]
#: What a queue runs elsewhere may end without a record there; its last words get so long.
_LAST_WORDS_S = 2.0


def label(job: Job, rank: int) -> tuple[int, int, str]:
    """Group, process and the prefix of its lines; one process needs no prefix."""
    request = request_of(job.spec.request)
    group, process, _ = request.processes()[rank]
    many = request.process_count > 1
    return group, process, f"{group}.{process}" if many else ""


def stream_name(job: Job, rank: int, stream: str) -> str:
    group, process, _ = label(job, rank)
    return f"{group}.{process}.{stream}"


async def read_more(
    engine: Engine, backend: Backend, job: Job, rank: int, stream: str, offset: int, wait: bool
) -> tuple[bytes, bool]:
    """The next piece of output, and whether it is the last one.

    A machine knows itself when a process has ended. Of one that a queue ran, only the Engine may
    know: refused, cancelled before it began, or its node failed.
    """
    if job.spec.queue is None or not wait:
        return await backend.read_log(job, rank, stream, offset, wait)
    reading = asyncio.ensure_future(backend.read_log(job, rank, stream, offset, True))
    over = asyncio.ensure_future(engine.job_where(job.id, lambda now: _has_ended(job, rank, now)))
    try:
        await asyncio.wait([reading, over], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait([reading], timeout=_LAST_WORDS_S)
        if reading.done():
            return reading.result()
        blob, _ = await backend.read_log(job, rank, stream, offset, False)
        return blob, not blob
    finally:
        reading.cancel()
        over.cancel()


async def read_once(
    engine: Engine,
    backend: Backend,
    job_id: int,
    offsets: Mapping[str, int],
    streams: tuple[str, ...],
) -> AsyncIterator[Frame]:
    """What a job has printed so far, without waiting for more."""
    job = engine.job(job_id)
    yield {"job": view(job)}, b""
    ranks = len(job.attempt.placement) if job.attempt and has_output(job) else 0
    for rank in range(ranks):
        group, process, prefix = label(job, rank)
        for stream in streams:
            offset = offsets.get(stream_name(job, rank, stream), 0)
            header = {"stream": stream, "group": group, "process": process, "label": prefix}
            try:
                async for blob in backend.printed(job, rank, stream, offset):
                    if blob:
                        yield {**header, "offset": offset}, blob
                        offset += len(blob)
            except AgentError as error:
                if error.code != "unknown_job":
                    raise
                if stream == streams[0] and gone(job):
                    yield {"note": gone(job)}, b""
    yield {"end": view(job)}, b""


def gone(job: Job) -> str:
    """Why there is no output of a job that ran; nothing is to be said of one that never did."""
    if not job.started or not job.state.final:
        return ""
    results = job.results
    home = f"; what came home is in {original(results.path)}" if results.here else ""
    return f"its output is no longer on its machine{home}"


def has_begun(job: Job) -> bool:
    return job.state in (State.RUNNING, State.STOPPING) or job.state.final


def has_output(job: Job) -> bool:
    """It runs, ended, or ran before its queue took it back to start it again."""
    return has_begun(job) or (job.attempt is not None and bool(job.attempt.nodes))


def _has_ended(job: Job, rank: int, now: Job) -> bool:
    """Whether a process of the attempt that is read has ended, as the job is now."""
    assert job.attempt is not None
    attempt = now.attempt
    if now.state.final or attempt is None or attempt.number != job.attempt.number:
        return True
    return rank in attempt.endings
