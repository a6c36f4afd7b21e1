"""One machine from its raw probe: what it has, and what others use of it.

`raw` is what the agent sends: {"time", "meminfo", "stat", "loadavg", "gpus", "gpu_apps",
"jobs": {key: {"rss_mb", "cpu_s", "pids"}}}, and if it can, "own_cpu_s": the CPU seconds, ever
growing, of the agent, its supervisors and the jobs that ended. Every part of it may be missing or
not understood.
"""

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from towline.config.settings import MachineEntry
from towline.model.machine import Gpu, Machine
from towline.model.units import parse_memory_mb
from towline.probes.cpu import busy_cpus, load
from towline.probes.memory import parse_meminfo
from towline.probes.nvidia import AppReading, GpuReading, parse_apps, parse_gpus

#: Foreign CPU use is smoothed over about this long: a short peak is no reason to wait.
SMOOTHING_S = 20.0

Raw = Mapping[str, Any]


class Limits(Struct, frozen=True):
    """How much of a machine Towline may use; None: all of it."""

    cpus: float | None = None
    mem_mb: int | None = None
    gpus: tuple[int, ...] | None = None


ALL_OF_IT = Limits()


def limits_of(entry: MachineEntry) -> Limits:
    """The limits that the configuration sets for a machine."""
    return Limits(
        cpus=entry.cpus,
        mem_mb=parse_memory_mb(entry.mem) if entry.mem else None,
        gpus=None if entry.gpus is None else tuple(entry.gpus),
    )


def observe(
    raw: Raw,
    previous: Raw | None,
    hello: Raw,
    *,
    limits: Limits = ALL_OF_IT,
    name: str,
    clusters: tuple[str, ...] = (),
    owners: tuple[str, ...] = (),
    aliases: tuple[tuple[str, str], ...] = (),
    before: Machine | None = None,
    ours: Mapping[int, bool] | None = None,
    engine: str = "",
    own_cpu_s: float = 0.0,
) -> Machine:
    """The machine as the core sees it.

    `before` is the observation made of `previous`; `ours` says which GPUs our jobs hold; with
    `engine`, only jobs of that Engine are ours; `own_cpu_s` is what else of ours used the CPUs
    between the two probes.
    """
    jobs = _own_jobs(raw, engine)
    seconds = _number(raw.get("time")) - _number((previous or {}).get("time"))
    cpus = max(1.0, _number(hello.get("cpus")))
    may_cpus = limits.cpus or cpus
    own = own_cpu_s + _own_seconds(raw, previous or {}, jobs, _own_jobs(previous or {}, engine))
    busy = busy_cpus(_text((previous or {}).get("stat")), _text(raw.get("stat")), seconds)
    if busy is not None:
        others = min(max(0.0, busy - own / seconds), cpus)
        foreign_cpus = _smoothed(_beyond(others, max(0.0, cpus - may_cpus)), before, seconds)
    else:
        foreign_cpus = before.foreign_cpus if before else _first_guess(raw, jobs, may_cpus)
    mem_mb, foreign_mem_mb = _memory(raw, jobs, limits, before)
    return Machine(
        name=name,
        cpus=may_cpus,
        mem_mb=mem_mb,
        gpus=_gpus(raw, jobs, limits, ours or {}),
        foreign_cpus=round(foreign_cpus, 2),
        foreign_mem_mb=foreign_mem_mb,
        clusters=clusters,
        owners=owners,
        aliases=aliases,
    )


def _own_jobs(raw: Raw, engine: str) -> dict[str, Raw]:
    jobs = raw.get("jobs")
    if not isinstance(jobs, dict):
        return {}
    start = f"{engine}-" if engine else ""
    return {
        key: job for key, job in jobs.items() if key.startswith(start) and isinstance(job, dict)
    }


def _own_seconds(
    raw: Raw, previous: Raw, jobs: dict[str, Raw], jobs_before: dict[str, Raw]
) -> float:
    """CPU seconds that our processes used between two probes."""
    running = sum(
        max(0.0, _number(job.get("cpu_s")) - _number(jobs_before.get(key, {}).get("cpu_s")))
        for key, job in jobs.items()
    )
    if "own_cpu_s" not in raw or "own_cpu_s" not in previous:
        return running
    # Jobs that ended in between were counted as running up to the previous probe.
    ended = sum(_number(job.get("cpu_s")) for key, job in jobs_before.items() if key not in jobs)
    others = _number(raw["own_cpu_s"]) - _number(previous["own_cpu_s"])
    return running + max(0.0, others - ended)


def _beyond(used: float, kept_back: float) -> float:
    """Others first use what Towline may not use anyway."""
    return max(0.0, used - kept_back)


def _smoothed(value: float, before: Machine | None, seconds: float) -> float:
    if before is None:
        return value
    weight = 1 - math.exp(-seconds / SMOOTHING_S)
    return before.foreign_cpus + weight * (value - before.foreign_cpus)


def _first_guess(raw: Raw, jobs: dict[str, Raw], cpus: float) -> float:
    # The load average may still remember what has ended, so it is only half believed.
    average = load(_text(raw.get("loadavg"))) or 0.0
    return min(max(0.0, average - len(jobs)), cpus / 2)


def _memory(
    raw: Raw, jobs: dict[str, Raw], limits: Limits, before: Machine | None
) -> tuple[int, int]:
    """Memory that Towline may use, and how much of it others use, in MB."""
    found = parse_meminfo(_text(raw.get("meminfo")))
    if found is None:
        return (before.mem_mb, before.foreign_mem_mb) if before else (0, 0)
    may = min(found.total_mb, limits.mem_mb or found.total_mb)
    own = sum(_number(job.get("rss_mb")) for job in jobs.values())
    others = max(0.0, found.total_mb - found.available_mb - own)
    return may, min(may, int(_beyond(others, found.total_mb - may)))


def _gpus(
    raw: Raw, jobs: dict[str, Raw], limits: Limits, ours: Mapping[int, bool]
) -> tuple[Gpu, ...]:
    pids = {pid for job in jobs.values() for pid in _list(job.get("pids"))}
    apps = parse_apps(_text(raw.get("gpu_apps")))
    return tuple(
        _gpu(reading, [app for app in apps if app.uuid == reading.uuid], pids, ours)
        for reading in parse_gpus(_text(raw.get("gpus")))
        if reading.index is not None and (limits.gpus is None or reading.index in limits.gpus)
    )


def _gpu(
    reading: GpuReading, apps: list[AppReading], pids: set[int], ours: Mapping[int, bool]
) -> Gpu:
    assert reading.index is not None
    own = [app for app in apps if app.pid in pids]
    others = [app for app in apps if app.pid not in pids]
    # Where programs are not listed (a driver without that, another pid namespace), whoever holds
    # the GPU is taken to be who uses it.
    held = bool(own) or (bool(ours.get(reading.index)) and not others)
    util = reading.util or 0.0
    return Gpu(
        index=reading.index,
        model=reading.model,
        mem_mb=reading.mem_mb or 0,
        uuid=reading.uuid,
        foreign_mem_mb=_foreign_gpu_mb(reading.used_mb or 0, own, others, held),
        foreign_util=util if not held else util / 2 if others else 0.0,
    )


def _foreign_gpu_mb(
    used_mb: int, own: list[AppReading], others: list[AppReading], held: bool
) -> int:
    if not held:
        return used_mb
    known = [app.used_mb for app in own if app.used_mb is not None]
    if own and len(known) == len(own):
        return max(0, used_mb - sum(known))
    return min(used_mb, sum(app.used_mb or 0 for app in others))


def _number(value: Any) -> float:
    usable = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if usable else 0.0


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
