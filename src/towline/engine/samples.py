"""What jobs use, taken from what machines measure anyway, and kept by the minute.

A probe only adds numbers in memory; once a minute a job has a row to be written, and those of all
jobs are written together.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from towline.api.jobs import PeaksView, StretchView, UsedView
from towline.core.samples import (
    Measuring,
    Peaks,
    Reading,
    SampleStretch,
    Use,
    Used,
    peaks_of,
    with_readings,
)
from towline.engine.engine import Engine
from towline.model.job import Job, State, process_of

#: What uses something; what is told of others comes late.
_MEASURED = (State.RUNNING, State.STOPPING)
#: Rows wait so long for others to be written with.
_TOGETHER_S = 10.0


class SampleKeeper:
    """What every running job uses."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._measuring: dict[int, Measuring] = {}
        self._unwritten: list[tuple[int, SampleStretch]] = []
        self._timer: asyncio.TimerHandle | None = None
        engine.on_changed.append(self._changed)

    def take(self, uses: Mapping[str, Use]) -> None:
        """Take what some processes use now, by their keys."""
        at = self.engine.clock()
        for key, use in uses.items():
            found = process_of(self.engine.store.engine_id, key)
            job = self.engine.core.jobs.get(found[0]) if found else None
            if found is None or job is None or job.attempt is None or job.state not in _MEASURED:
                continue
            if (job.attempt.number, job.attempt.token) == found[1:3]:
                self._take(job, job.attempt.number, found[3], use, at)

    def take_readings(self, readings: Mapping[str, Sequence[Reading]]) -> None:
        """Take what processes used on the nodes of queues, by their keys; they may have ended."""
        for key, some in readings.items():
            found = process_of(self.engine.store.engine_id, key)
            job = self._job(found[0]) if found else None
            if found is None or job is None or job.attempt is None:
                continue
            if (job.attempt.number, job.attempt.token) == found[1:3]:
                known = self.of_job(job.id)
                changed = with_readings(known, job.attempt.number, found[3], some)
                self._write_soon((job.id, stretch) for stretch in changed)

    def _job(self, number: int) -> Job | None:
        return self.engine.core.jobs.get(number) or self.engine.store.job(number)

    def _take(self, job: Job, attempt: int, rank: int, use: Use, at: float) -> None:
        measuring = self._measuring.get(job.id)
        if measuring is None or measuring.attempt != attempt:
            self._end(job.id)
            measuring = self._measuring[job.id] = Measuring(attempt, at)
        measuring.take(rank, use, at)
        if measuring.is_over:
            self._end(job.id)

    def of_job(self, job_id: int) -> list[SampleStretch]:
        """All that is known of a job, the oldest first."""
        found = self.engine.store.samples.of_job(job_id)
        found += [stretch for job, stretch in self._unwritten if job == job_id]
        measuring = self._measuring.get(job_id)
        stretches = {stretch.at: stretch for stretch in found}
        if measuring is not None:
            stretches[measuring.at] = measuring.stretch()
        return [stretches[at] for at in sorted(stretches)]

    def latest(self, job_id: int) -> list[SampleStretch]:
        """The last that was measured of a job that runs; nothing, if it was not yet."""
        if (measuring := self._measuring.get(job_id)) is not None:
            return [measuring.stretch()]
        return [stretch for job, stretch in self._unwritten if job == job_id][-1:]

    def peaks(self, job: Job) -> Peaks | None:
        """The most that a job used; None where nobody measured."""
        known = peaks_of(self.of_job(job.id))
        endings = job.attempt.endings.values() if job.attempt else ()
        most_mb = max((ending.peak_kb / 1024 for ending in endings), default=0.0)
        mem_mb = round(max(known.mem_mb, most_mb), 1)
        return Peaks(known.cpus, mem_mb, known.gpu_util, known.gpu_mem_mb) if mem_mb else None

    def close(self) -> None:
        """Write what there is; the Engine's own end writes what is owed."""
        for job_id in list(self._measuring):
            self._end(job_id)
        self._write()

    def _changed(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            if job.id in self._measuring and job.state not in _MEASURED:
                self._end(job.id)

    def _end(self, job_id: int) -> None:
        """A stretch is over."""
        measuring = self._measuring.pop(job_id, None)
        if measuring is None:
            return
        self._write_soon([(job_id, measuring.stretch())])

    def _write_soon(self, measured: Iterable[tuple[int, SampleStretch]]) -> None:
        self._unwritten += measured
        if self._timer is None and self._unwritten:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_TOGETHER_S, self._write)

    def _write(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._unwritten:
            return
        measured, self._unwritten = self._unwritten, []
        store = self.engine.store
        self.engine.soon("what jobs used", lambda: store.samples.add(measured))


def peaks_view(peaks: Peaks | None) -> PeaksView | None:
    """The most that a job used, as programs see it."""
    if peaks is None:
        return None
    return {
        "cpus": peaks.cpus,
        "mem_mb": peaks.mem_mb,
        "gpu_util": peaks.gpu_util,
        "gpu_mem_mb": peaks.gpu_mem_mb,
    }


def stretch_view(stretch: SampleStretch) -> StretchView:
    """What a job used for a while, as programs see it."""
    names = Used.__struct_fields__
    processes = [{name: getattr(used, name) for name in names} for used in stretch.processes]
    return {
        "at": stretch.at,
        "seconds": stretch.seconds,
        "attempt": stretch.attempt,
        "processes": cast("list[UsedView]", processes),
    }
