"""One machine from its raw probe: what it has, and what others use of it.

`raw` is what the agent sends: {"time", "meminfo", "stat", "loadavg", "gpus", "gpu_apps",
"jobs": {key: {"rss_mb", "cpu_s", "pids"}}}, and if it can, "own_cpu_s": the CPU seconds, ever
growing, of the agent, its supervisors and the jobs that ended, and "claims": what jobs of others
were granted. Every part of it may be missing or not understood.
"""

import math
from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Struct

from towline.config.settings import MachineEntry, hours_of
from towline.model import hours
from towline.model.machine import Gpu, Machine
from towline.model.units import parse_memory_mb
from towline.probes.claims import Claim, beside, claims_of_others, users_of
from towline.probes.cpu import busy_cpus, load
from towline.probes.memory import parse_meminfo
from towline.probes.nvidia import AppReading, GpuReading, parse_apps, parse_gpus

#: Foreign CPU use is smoothed over about this long: a short peak is no reason to wait.
SMOOTHING_S = 20.0

Raw = Mapping[str, Any]


class ConfiguredLimits(Struct, frozen=True):
    """How much of a machine Towline may use; None: all of it."""

    cpus: float | None = None
    mem_mb: int | None = None
    gpus: tuple[int, ...] | None = None
    #: Seconds between starts.
    stagger_s: float = 0.0
    #: Spans of the week in which no job starts.
    quiet: tuple[hours.Span, ...] = ()


ALL_OF_IT = ConfiguredLimits()


def limits_of(entry: MachineEntry) -> ConfiguredLimits:
    """The limits that the configuration sets for a machine."""
    mem = entry.max_mem or entry.mem
    return ConfiguredLimits(
        cpus=entry.max_cpus or entry.cpus,
        mem_mb=parse_memory_mb(mem) if mem else None,
        gpus=None if entry.gpus is None else tuple(entry.gpus),
        stagger_s=entry.stagger or 0.0,
        quiet=tuple(
            span for text in hours_of(entry.quiet_hours) for span in hours.parse_hours(text)
        ),
    )


def closed_at(limits: ConfiguredLimits, minute: int) -> str:
    """Why no job starts at a minute of the week, counted from Monday 00:00; empty if they may."""
    end = hours.until(limits.quiet, minute)
    return "" if end is None else f"has quiet hours until {hours.told(end, minute)}"


def observe(
    raw: Raw,
    previous: Raw | None,
    hello: Raw,
    *,
    limits: ConfiguredLimits = ALL_OF_IT,
    name: str,
    clusters: tuple[str, ...] = (),
    owners: tuple[str, ...] = (),
    aliases: tuple[tuple[str, str], ...] = (),
    before: Machine | None = None,
    ours: Mapping[int, bool] | None = None,
    engine: str = "",
    own: Collection[str] = (),
    own_cpu_s: float = 0.0,
    minute: int = 0,
) -> Machine:
    """The machine as the core sees it.

    `before` is the observation made of `previous`; `ours` says which GPUs our jobs hold; with
    `engine`, only jobs of that Engine are ours; `own` are the keys of our jobs, whose claims we
    count ourselves; `own_cpu_s` is what else of ours used the CPUs between the two probes;
    `minute` is the minute of the week where the Engine is.
    """
    jobs, past = own_jobs(raw, engine), previous or {}
    cpus = max(1.0, number(hello.get("cpus")))
    may_cpus = limits.cpus or cpus
    claims = claims_of_others(raw, past, own, max(cpus, may_cpus))
    own_s = own_cpu_s + _own_seconds(raw, past, jobs, own_jobs(past, engine))
    guess = _first_guess(raw, jobs, may_cpus) if before is None else None
    busy = _busy_others(raw, past, own_s, cpus, guess)
    used, claimed = _cpus(busy, claims, cpus, may_cpus)
    if before is not None:
        used = _smoothed(used, before, 0 if busy is None else seconds_between(raw, past))
    mem_mb, foreign_mem_mb = _memory(raw, jobs, limits, before, claims)
    return Machine(
        name=name,
        cpus=may_cpus,
        mem_mb=mem_mb,
        gpus=_gpus(raw, jobs, limits, ours or {}, claims),
        foreign_cpus=round(used + claimed, 2),
        foreign_mem_mb=foreign_mem_mb,
        claimed_cpus=round(claimed, 2),
        claimed_by=users_of(claims),
        clusters=clusters,
        owners=owners,
        aliases=aliases,
        stagger_s=limits.stagger_s,
        closed=closed_at(limits, minute) or _taken_whole(claims),
    )


def _taken_whole(claims: list[Claim]) -> str:
    users = users_of(claim for claim in claims if claim.exclusive)
    return f"a job of {users} has the whole machine" if users else ""


def seconds_between(raw: Raw, previous: Raw) -> float:
    return number(raw.get("time")) - number(previous.get("time"))


def _busy_others(
    raw: Raw, previous: Raw, own_s: float, cpus: float, guess: float | None
) -> float | None:
    """CPUs that others used between two probes; `guess` if that cannot be told."""
    seconds = seconds_between(raw, previous)
    busy = busy_cpus(text_of(previous.get("stat")), text_of(raw.get("stat")), seconds)
    return guess if busy is None else min(max(0.0, busy - own_s / seconds), cpus)


def _cpus(
    busy: float | None, claims: list[Claim], cpus: float, may_cpus: float
) -> tuple[float, float]:
    """CPUs that others use beyond what they were granted, and that they were granted."""
    kept_back, most = max(0.0, cpus - may_cpus), 2 * max(cpus, may_cpus)
    others, held = beside(busy or 0.0, [(claim.cpus, claim.busy_cpus) for claim in claims])
    return _beyond(others, max(0.0, kept_back - held)), min(_beyond(held, kept_back), most)


def own_jobs(raw: Raw, engine: str) -> dict[str, Raw]:
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
        max(0.0, number(job.get("cpu_s")) - number(jobs_before.get(key, {}).get("cpu_s")))
        for key, job in jobs.items()
    )
    if "own_cpu_s" not in raw or "own_cpu_s" not in previous:
        return running
    # Jobs that ended in between were counted as running up to the previous probe.
    ended = sum(number(job.get("cpu_s")) for key, job in jobs_before.items() if key not in jobs)
    others = number(raw["own_cpu_s"]) - number(previous["own_cpu_s"])
    return running + max(0.0, others - ended)


def _beyond(used: float, kept_back: float) -> float:
    """Others first use what Towline may not use anyway."""
    return max(0.0, used - kept_back)


def _smoothed(value: float, before: Machine, seconds: float) -> float:
    weight = 1 - math.exp(-seconds / SMOOTHING_S)
    measured = max(0.0, before.foreign_cpus - before.claimed_cpus)
    return measured + weight * (value - measured)


def _first_guess(raw: Raw, jobs: dict[str, Raw], cpus: float) -> float:
    # The load average may still remember what has ended, so it is only half believed.
    average = load(text_of(raw.get("loadavg"))) or 0.0
    return min(max(0.0, average - len(jobs)), cpus / 2)


def _memory(
    raw: Raw,
    jobs: dict[str, Raw],
    limits: ConfiguredLimits,
    before: Machine | None,
    claims: list[Claim],
) -> tuple[int, int]:
    """Memory that Towline may use, and how much of it others use, in MB."""
    found = parse_meminfo(text_of(raw.get("meminfo")))
    if found is None:
        return (before.mem_mb, before.foreign_mem_mb) if before else (0, 0)
    may = min(found.total_mb, limits.mem_mb or found.total_mb)
    own = sum(_within_grant(raw, key, number(job.get("rss_mb"))) for key, job in jobs.items())
    measured = max(0.0, found.total_mb - found.available_mb - own)
    others = sum(beside(measured, [(claim.mem_mb, claim.rss_mb) for claim in claims]))
    return may, min(may, int(_beyond(others, found.total_mb - may)))


def _own_claims(raw: Raw, keys: Collection[str]) -> list[Raw]:
    claims = [claim for claim in _list(raw.get("claims")) if isinstance(claim, dict)]
    return [claim for claim in claims if claim.get("mine") and str(claim.get("key")) in keys]


def _within_grant(raw: Raw, key: str, rss_mb: float) -> float:
    """How much of a job's memory it was granted: what it uses beyond that is not there for us."""
    granted = sum(number(claim.get("mem_mb")) for claim in _own_claims(raw, (key,)))
    return min(rss_mb, granted) if granted else rss_mb


def _gpu_grant(raw: Raw, jobs: dict[str, Raw], index: int) -> float:
    """What our jobs that share a GPU were granted of its memory; 0: it is not shared by memory."""
    here = [claim for claim in _own_claims(raw, jobs) if index in _list(claim.get("gpus"))]
    if any(claim.get("reserved") for claim in here):
        return 0.0
    return sum(number(claim.get("gpu_mem_mb")) for claim in here)


def _gpus(
    raw: Raw,
    jobs: dict[str, Raw],
    limits: ConfiguredLimits,
    ours: Mapping[int, bool],
    claims: list[Claim],
) -> tuple[Gpu, ...]:
    pids = {pid for job in jobs.values() for pid in _list(job.get("pids"))}
    apps = parse_apps(text_of(raw.get("gpu_apps")))
    return tuple(
        _gpu(
            reading,
            [app for app in apps if app.uuid == reading.uuid],
            pids,
            ours,
            claims,
            _gpu_grant(raw, jobs, reading.index),
        )
        for reading in parse_gpus(text_of(raw.get("gpus")))
        if reading.index is not None and (limits.gpus is None or reading.index in limits.gpus)
    )


def _gpu(
    reading: GpuReading,
    apps: list[AppReading],
    pids: set[int],
    ours: Mapping[int, bool],
    claims: list[Claim],
    granted_mb: float,
) -> Gpu:
    assert reading.index is not None
    own = [app for app in apps if app.pid in pids]
    others = [app for app in apps if app.pid not in pids]
    # Where programs are not listed (a driver without that, another pid namespace), whoever holds
    # the GPU is taken to be who uses it.
    held = bool(own) or (bool(ours.get(reading.index)) and not others)
    util = reading.util or 0.0
    util = util if not held else util / 2 if others else 0.0
    used_mb = _foreign_gpu_mb(reading.used_mb or 0, own, others, held)
    if granted_mb:
        # What our own jobs use beyond what they asked for is not there for others.
        used_mb += int(max(0.0, sum(app.used_mb or 0 for app in own) - granted_mb))
    here = [claim for claim in claims if reading.index in claim.gpus]
    if here:
        granted = [(claim.gpu_mem_mb, _listed_mb(claim, apps)) for claim in here]
        used_mb = min(int(sum(beside(used_mb, granted))), reading.mem_mb or used_mb)
        util = min(1.0, sum(beside(util, [(claim.gpu_util, None) for claim in here])))
    return Gpu(
        index=reading.index,
        model=reading.model,
        mem_mb=reading.mem_mb or 0,
        uuid=reading.uuid,
        foreign_mem_mb=used_mb,
        foreign_util=util,
        claimed_by=users_of(here),
        reserved=any(claim.reserved for claim in here),
    )


def _listed_mb(claim: Claim, apps: list[AppReading]) -> int | None:
    """What a claimant's programs use of a GPU; None where that is not told."""
    if claim.pids is None or not apps:
        return None
    listed = [app.used_mb for app in apps if app.pid in claim.pids]
    known = [mb for mb in listed if mb is not None]
    return sum(known) if len(known) == len(listed) else None


def _foreign_gpu_mb(
    used_mb: int, own: list[AppReading], others: list[AppReading], held: bool
) -> int:
    if not held:
        return used_mb
    known = [app.used_mb for app in own if app.used_mb is not None]
    if own and len(known) == len(own):
        return max(0, used_mb - sum(known))
    return min(used_mb, sum(app.used_mb or 0 for app in others))


def number(value: Any) -> float:
    usable = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if usable else 0.0


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""
