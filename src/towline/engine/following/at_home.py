"""What a job printed, read from what came home where its machine does not answer."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping

from towline.backends.base import Fleet
from towline.engine.engine import Engine
from towline.engine.following.output import Frame, label, read_once, stream_name
from towline.engine.views import view
from towline.errors import HostError
from towline.model.job import Job
from towline.workspace.base import Receiver

#: What came with the news of an end is not longer.
_LITTLE = 64 * 1024
#: So long it is worth looking for it.
_LATELY_S = 5.0


async def read_somewhere(
    engine: Engine,
    fleet: Fleet,
    receiver: Receiver,
    job_id: int,
    offsets: Mapping[str, int],
    streams: tuple[str, ...],
) -> AsyncIterator[Frame]:
    """What a job has printed so far: from its machine, or else from here."""
    job = engine.job(job_id)
    is_here = await asyncio.to_thread(_is_here, receiver, job, streams)
    error = _known_error(fleet, job) if is_here else None
    if error is None:
        began = False
        try:
            async for frame in read_once(engine, fleet, job_id, offsets, streams):
                began = began or "stream" in frame[0]
                yield frame
            return
        except HostError as failure:
            if began or not is_here:
                raise
            error = failure
    yield {"job": view(job)}, b""
    yield {"note": f"{error.text}; this is what came home"}, b""
    group, process, prefix = label(job, 0)
    for stream in streams:
        offset = offsets.get(stream_name(job, 0, stream), 0)
        header = {"stream": stream, "group": group, "process": process, "label": prefix}
        while piece := await asyncio.to_thread(receiver.read_output, job, stream, offset):
            yield {**header, "offset": offset}, piece
            offset += len(piece)
    yield {"end": view(job)}, b""


def _is_here(receiver: Receiver | None, job: Job, streams: tuple[str, ...]) -> bool:
    """Whether all that an ended job printed came home, and still is there."""
    if receiver is None or not (job.state.final and job.attempt and job.results.here):
        return False
    return len(job.attempt.placement) == 1 and receiver.has_output(job, streams)


def just_told(
    receiver: Receiver | None, job: Job, number: int, rank: int, stream: str, offset: int
) -> bytes | None:
    """The rest of what a process printed, if it is here; None where its machine must be asked.

    The news of an end say how much was printed, and bring it along where that is little.
    """
    attempt = job.attempt if job.state.final else None
    ending = attempt.endings.get(rank) if attempt and attempt.number == number else None
    if ending is None or ending.made < 0:
        return None  # nobody counted
    size = ending.out_size if stream == "out" else ending.err_size
    if offset >= size:
        return b""
    if size > _LITTLE or job.ended is None or time.time() - job.ended > _LATELY_S:
        return None
    try:
        here = _is_here(receiver, job, (stream,))
        content = receiver.read_output(job, stream, 0) if receiver and here else b""
    except OSError:
        return None
    return content[offset:] if len(content) == size else None


def _known_error(fleet: Fleet, job: Job) -> HostError | None:
    assert job.attempt is not None
    machine = fleet.machine_of(job.attempt.placement[0])
    return machine.error if machine else None
