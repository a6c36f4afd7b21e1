"""What a job printed, read from what came home where its machine does not answer."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping

from towline.backends.base import Fleet
from towline.engine.engine import Engine
from towline.engine.following.output import Frame, label, read_once, stream_name
from towline.engine.views import view
from towline.errors import HostError
from towline.model.job import Job
from towline.model.odd_text import original

_PIECE = 256 * 1024
#: What came with the news of an end is not longer.
_LITTLE = 64 * 1024
#: So long it is worth looking for it.
_LATELY_S = 5.0


async def read_somewhere(
    engine: Engine,
    fleet: Fleet,
    job_id: int,
    offsets: Mapping[str, int],
    streams: tuple[str, ...],
) -> AsyncIterator[Frame]:
    """What a job has printed so far: from its machine, or else from here."""
    job = engine.job(job_id)
    files = await asyncio.to_thread(_files, job, streams)
    error = _known_error(fleet, job) if files else None
    if error is None:
        began = False
        try:
            async for frame in read_once(engine, fleet, job_id, offsets, streams):
                began = began or "stream" in frame[0]
                yield frame
            return
        except HostError as failure:
            if began or not files:
                raise
            error = failure
    yield {"job": view(job)}, b""
    yield {"note": f"{error.text}; this is what came home"}, b""
    group, process, prefix = label(job, 0)
    for stream, file in files.items():
        offset = offsets.get(stream_name(job, 0, stream), 0)
        header = {"stream": stream, "group": group, "process": process, "label": prefix}
        while piece := await asyncio.to_thread(_read, file, offset):
            yield {**header, "offset": offset}, piece
            offset += len(piece)
    yield {"end": view(job)}, b""


def _files(job: Job, streams: tuple[str, ...]) -> dict[str, str]:
    """Where the output of an ended job is here, if all of it came home."""
    if not (job.state.final and job.attempt and job.results.here):
        return {}
    stem = original(job.results.path).removesuffix(".out").removesuffix(".err")
    found = {stream: f"{stem}.{stream}" for stream in streams}
    whole = len(job.attempt.placement) == 1 and all(map(os.path.isfile, found.values()))
    return found if whole else {}


def just_told(job: Job, number: int, rank: int, stream: str, offset: int) -> bytes | None:
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
        content = _read(_files(job, (stream,))[stream], 0)
    except (OSError, KeyError):
        return None
    return content[offset:] if len(content) == size else None


def _known_error(fleet: Fleet, job: Job) -> HostError | None:
    assert job.attempt is not None
    machine = fleet.machine_of(job.attempt.placement[0])
    return machine.error if machine else None


def _read(file: str, offset: int) -> bytes:
    with open(file, "rb") as opened:
        opened.seek(offset)
        return opened.read(_PIECE)
