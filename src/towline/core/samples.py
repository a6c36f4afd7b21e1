"""What jobs use over their lives: measured often, kept in stretches that are longer with age. Pure.

A stretch is a minute of a job. Once there are many of a job, the older ones are put together two by
two, again and again: what was used just now is known to the minute, what was used on the first day
of a week to some hours, and a job never has more of them than `MOST`.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

#: How long a stretch is at first.
STRETCH_S = 60.0
#: So many stretches of a job are kept, and so many of the last ones as they are.
MOST, RECENT = 240, 120


class Use(Struct, frozen=True):
    """What one process of a job used at a moment, with all that it started."""

    mem_mb: float = 0.0
    #: CPUs since the look before; None: it was the first.
    cpus: float | None = None
    #: Share of the compute of its GPUs, 0 to 1, and memory on them; None where it has none.
    gpu_util: float | None = None
    gpu_mem_mb: float | None = None


class Used(Struct, frozen=True, array_like=True):
    """What one process used over a stretch: on average, and at most."""

    rank: int
    cpus: float = 0.0
    most_cpus: float = 0.0
    most_mem_mb: float = 0.0
    gpu_util: float | None = None
    most_gpu_util: float | None = None
    most_gpu_mem_mb: float | None = None


class Reading(Struct, frozen=True):
    """What one process used from a moment on, for so many seconds, as it was measured elsewhere."""

    at: float
    seconds: float
    used: Used


class SampleStretch(Struct, frozen=True):
    """What the processes of one attempt used from a moment on, for so many seconds."""

    at: float
    seconds: float
    attempt: int
    processes: tuple[Used, ...]


class Peaks(Struct, frozen=True):
    """The most that a job used at a time, all its processes together."""

    cpus: float = 0.0
    mem_mb: float = 0.0
    gpu_util: float | None = None
    gpu_mem_mb: float | None = None


class Measuring:
    """The stretch of a job that has not ended yet."""

    def __init__(self, attempt: int, at: float) -> None:
        self.attempt = attempt
        self.at = self.last = at
        self._uses: dict[int, list[Use]] = {}

    def take(self, rank: int, use: Use, at: float) -> None:
        self.last = max(self.last, at)
        self._uses.setdefault(rank, []).append(use)

    @property
    def is_over(self) -> bool:
        return self.last - self.at >= STRETCH_S

    def stretch(self) -> SampleStretch:
        """What was measured so far."""
        processes = tuple(_used(rank, self._uses[rank]) for rank in sorted(self._uses))
        return SampleStretch(self.at, max(self.last - self.at, 1.0), self.attempt, processes)


def _used(rank: int, uses: list[Use]) -> Used:
    cpus = [use.cpus for use in uses if use.cpus is not None]
    util = [use.gpu_util for use in uses if use.gpu_util is not None]
    return Used(
        rank,
        round(_mean(cpus) or 0.0, 3),
        round(max(cpus, default=0.0), 3),
        round(max(use.mem_mb for use in uses), 1),
        None if not util else round(sum(util) / len(util), 3),
        max(util, default=None),
        max((use.gpu_mem_mb for use in uses if use.gpu_mem_mb is not None), default=None),
    )


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def with_readings(
    known: Iterable[SampleStretch], attempt: int, rank: int, readings: Iterable[Reading]
) -> list[SampleStretch]:
    """The stretches that change by what one process of an attempt used. What lies within one that
    is known was put together with others since, and changes nothing."""
    here = {stretch.at: stretch for stretch in known if stretch.attempt == attempt}
    begins = sorted(here)
    changed: dict[float, SampleStretch] = {}
    for reading in readings:
        before = changed.get(reading.at) or here.get(reading.at)
        earlier = bisect_left(begins, reading.at) - 1
        if before is None and earlier >= 0 and reading.at < _end(here[begins[earlier]]):
            continue
        others = () if before is None else before.processes
        used = (*(one for one in others if one.rank != rank), replace(reading.used, rank=rank))
        processes = tuple(sorted(used, key=lambda one: one.rank))
        seconds = max(reading.seconds, 1.0, 0.0 if before is None else before.seconds)
        changed[reading.at] = SampleStretch(reading.at, seconds, attempt, processes)
    return list(changed.values())


def _end(stretch: SampleStretch) -> float:
    """When it was over at the earliest: minutes are measured somewhat late."""
    return stretch.at + stretch.seconds - STRETCH_S / 2


def thinned(stretches: Sequence[SampleStretch]) -> list[SampleStretch]:
    """Fewer stretches, the oldest first: older ones of the same attempt two by two."""
    old, recent = stretches[:-RECENT], stretches[-RECENT:]
    found: list[SampleStretch] = []
    waiting: SampleStretch | None = None
    for stretch in old:
        if waiting is not None and waiting.attempt == stretch.attempt:
            found.append(_together(waiting, stretch))
            waiting = None
            continue
        if waiting is not None:
            found.append(waiting)
        waiting = stretch
    if waiting is not None:
        found.append(waiting)
    return [*found, *recent][-MOST:]


def _together(first: SampleStretch, second: SampleStretch) -> SampleStretch:
    here, there = ({used.rank: used for used in one.processes} for one in (first, second))
    seconds = first.seconds + second.seconds
    share = first.seconds / seconds
    processes = tuple(
        _one(here[rank], there[rank], share)
        if rank in here and rank in there
        else here.get(rank) or there[rank]
        for rank in sorted(here.keys() | there.keys())
    )
    return SampleStretch(first.at, seconds, first.attempt, processes)


def _one(first: Used, second: Used, share: float) -> Used:
    gpu_util = _between(first.gpu_util, second.gpu_util, share)
    return Used(
        first.rank,
        round(first.cpus * share + second.cpus * (1 - share), 3),
        max(first.most_cpus, second.most_cpus),
        max(first.most_mem_mb, second.most_mem_mb),
        None if gpu_util is None else round(gpu_util, 3),
        _most((first.most_gpu_util, second.most_gpu_util)),
        _most((first.most_gpu_mem_mb, second.most_gpu_mem_mb)),
    )


def _between(first: float | None, second: float | None, share: float) -> float | None:
    if first is None or second is None:
        return first if second is None else second
    return first * share + second * (1 - share)


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def peaks_of(stretches: Iterable[SampleStretch]) -> Peaks:
    """The most of everything; processes of a stretch count together, but for the use of GPUs."""
    cpus = mem_mb = 0.0
    util: list[float | None] = []
    gpu_mem_mb: list[float | None] = []
    for stretch in stretches:
        cpus = max(cpus, sum(used.most_cpus for used in stretch.processes))
        mem_mb = max(mem_mb, sum(used.most_mem_mb for used in stretch.processes))
        util += [used.most_gpu_util for used in stretch.processes]
        on_gpus = [used.most_gpu_mem_mb for used in stretch.processes]
        gpu_mem_mb += [sum(filter(None, on_gpus))] if _most(on_gpus) is not None else []
    return Peaks(round(cpus, 2), mem_mb, _most(util), _most(gpu_mem_mb))
