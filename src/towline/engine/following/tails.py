"""Where the last lines of a job's output begin, without reading all of it."""

from typing import Protocol

from towline.engine.following.output import has_output, stream_name
from towline.errors import AgentError
from towline.model.job import Job

#: How much is read from the end at first, and how much at most: lines may be very long.
_FIRST_LOOK, _LONGEST_LOOK = 1 << 16, 1 << 26


class Logs(Protocol):
    """Where a job's output can be read."""

    async def log_size(self, job: Job, rank: int, stream: str) -> int: ...

    async def read_log(
        self, job: Job, rank: int, stream: str, offset: int, wait: bool
    ) -> tuple[bytes, bool]: ...


async def beginnings(
    logs: Logs, job: Job, streams: tuple[str, ...], *, lines: int = 0, size: int = 0
) -> dict[str, int]:
    """For each stream of each process, where its last lines or bytes begin."""
    if not has_output(job):
        # Its machine may not know it yet; all of what it prints is its last lines.
        return {}
    found = {}
    for rank in range(len(job.attempt.placement) if job.attempt else 0):
        for stream in streams:
            try:
                whole = await logs.log_size(job, rank, stream)
            except AgentError as error:
                if error.code != "unknown_job":
                    raise
                # It is gone: whoever reads it says so.
                continue
            begins = max(0, whole - size)
            if lines:
                begins = await _before_lines(logs, job, rank, stream, whole, lines)
            found[stream_name(job, rank, stream)] = begins
    return found


async def _before_lines(
    logs: Logs, job: Job, rank: int, stream: str, whole: int, lines: int
) -> int:
    window = _FIRST_LOOK
    while True:
        start = max(0, whole - window)
        text = await _between(logs, job, rank, stream, start, whole)
        place = place_of_lines(text, lines)
        if place is not None or not start or window >= _LONGEST_LOOK:
            return start + (place or 0)
        window *= 8


async def _between(logs: Logs, job: Job, rank: int, stream: str, start: int, end: int) -> bytes:
    pieces = []
    while start < end:
        piece, _ = await logs.read_log(job, rank, stream, start, wait=False)
        if not piece:
            break
        pieces.append(piece[: end - start])
        start += len(piece)
    return b"".join(pieces)


def place_of_lines(text: bytes, lines: int) -> int | None:
    """Where the last so many lines of a text begin; None when it may not have them all."""
    place = len(text) - text.endswith(b"\n")
    for _ in range(lines):
        place = text.rfind(b"\n", 0, place)
        if place < 0:
            return None
    return place + 1
