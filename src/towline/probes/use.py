"""What the jobs of an Engine use on a machine, out of two of its probes. Pure."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from towline.core.samples import Reading, Use, Used
from towline.probes.machine import number, own_jobs, seconds_between, text_of
from towline.probes.nvidia import AppReading, GpuReading, parse_apps, parse_gpus

Raw = Mapping[str, Any]
#: What one process can use at most, as far as anybody believes it.
_MOST_CPUS = 10_000.0
#: Two probes that are closer than this say little: processes are charged in hundredths of seconds.
_FEWEST_S = 1.0
_Amount = Annotated[float, Meta(ge=0, le=1e12)]
_Share = Annotated[float, Meta(ge=0, le=1)]


def used_by_jobs(raw: Raw, previous: Raw | None, engine: str) -> dict[str, Use]:
    """What each of our processes there uses, by its key."""
    before = own_jobs(previous or {}, engine)
    seconds = seconds_between(raw, previous or {}) if previous else 0.0
    gpus = {gpu.uuid: gpu for gpu in parse_gpus(text_of(raw.get("gpus"))) if gpu.uuid}
    apps = parse_apps(text_of(raw.get("gpu_apps")))
    found = {}
    for key, job in own_jobs(raw, engine).items():
        cpus = None
        if seconds >= _FEWEST_S and key in before:
            spent = number(job.get("cpu_s")) - number(before[key].get("cpu_s"))
            # What ended in between took its part along.
            cpus = min(max(0.0, spent / seconds), _MOST_CPUS)
        mine = _on_gpus(job, apps)
        found[key] = Use(
            number(job.get("rss_mb")),
            cpus,
            _mean_util(mine, gpus),
            float(sum(app.used_mb or 0 for app in mine)) if mine else None,
        )
    return found


class _Line(Struct, array_like=True):
    at: Annotated[float, Meta(ge=0, le=1e11)]
    seconds: Annotated[float, Meta(ge=0, le=1e9)]
    cpus: _Amount
    most_cpus: _Amount
    most_mem_mb: _Amount
    gpu_util: _Share | None
    most_gpu_util: _Share | None
    most_gpu_mem_mb: _Amount | None


def readings_of(lines: Any) -> list[Reading]:
    """What a node wrote down of a process, a line for each minute; what is none is left out."""
    found = []
    for line in lines if isinstance(lines, list) else ():
        try:
            told = msgspec.convert(line, _Line)
        except msgspec.ValidationError:
            continue
        at, seconds, *used = (getattr(told, name) for name in _Line.__struct_fields__)
        found.append(Reading(at, seconds, Used(0, *used)))
    return found


def _on_gpus(job: Raw, apps: list[AppReading]) -> list[AppReading]:
    pids = job.get("pids")
    return [app for app in apps if app.pid in pids] if isinstance(pids, list) else []


def _mean_util(mine: list[AppReading], gpus: dict[str, GpuReading]) -> float | None:
    readings = (gpus[uuid].util for uuid in {app.uuid for app in mine} if uuid in gpus)
    known = [util for util in readings if util is not None]
    return sum(known) / len(known) if known else None
