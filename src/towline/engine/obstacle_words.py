"""Why a job waits, and what keeps it from machines, in words."""

from towline.core.scheduling.obstacles import (
    AvoidedMachine,
    BatchLimit,
    ClosedNow,
    CpusInUse,
    Explanation,
    ForGroups,
    ForOthers,
    GpuShare,
    GpusInUse,
    GpuUse,
    JobsFirst,
    KeptForJob,
    MachineObstacles,
    MemoryInUse,
    NeverFits,
    NextOn,
    NoSuchGpu,
    NotAllGpus,
    NotTogether,
    NotWaiting,
    Obstacle,
    OverLimit,
    PacedStarts,
    SetAside,
    SilentMachine,
    TooFewCpus,
    TooFewGpus,
    TooLittleMemory,
    TooSmallGpus,
    UsedByJobs,
    WholeTaken,
    WholeWanted,
)
from towline.model.machine import Aside, Placement
from towline.model.names import shown_cluster
from towline.model.units import format_duration

#: Jobs that are named one by one.
_MOST_NAMED = 3
_PLAIN: dict[type[Obstacle], str] = {
    SilentMachine: "does not answer",
    AvoidedMachine: "is avoided, because an earlier attempt failed there",
    JobsFirst: "has room; jobs before it come first",
    NotTogether: "has room, but not for all of its processes at once",
}


def waiting_text(why: Explanation) -> str:
    """One sentence for all of it."""
    if isinstance(why, NextOn):
        return f"it is next on {why.machine}, and starts as soon as {_one_of(why.behind)}"
    if isinstance(why, BatchLimit):
        return f"{why.most} of its batch run at a time"
    if isinstance(why, OverLimit):
        return over_limit(why)
    if isinstance(why, NotWaiting):
        return "it has its machines" if why.placed else "it does not wait"
    cluster = shown_cluster(why.cluster)
    text = f"number {why.position} of {why.waiting} that wait in {cluster}"
    if why.kept:
        text += f"; it is next, and {', '.join(why.kept)} is kept free for it"
    elif not why.reasons:
        text += f"; no machine of {cluster} is known yet"
    return text


def would_wait(why: Explanation) -> str:
    """The same of a job that is not submitted yet."""
    if not why.reasons:
        return f"it would wait: no machine of {shown_cluster(why.cluster)} is known yet"
    return "it would wait: " + "; ".join(by_machines(why.reasons))


def planned(found: Placement | Explanation | NeverFits) -> tuple[Placement | None, str]:
    """Where a job would start, or why it would not."""
    if isinstance(found, NeverFits):
        return None, never_fits(found)
    if isinstance(found, Explanation):
        return None, would_wait(found)
    return found, "it would start now"


def by_machines(reasons: tuple[MachineObstacles, ...]) -> list[str]:
    """What keeps it from which machines; those of which the same is said are named together."""
    grouped: dict[str, list[str]] = {}
    for reason in reasons:
        grouped.setdefault(obstacle_words(reason.obstacles), []).extend(reason.machines)
    return [f"{', '.join(machines)}: {text}" for text, machines in grouped.items()]


def never_fits(why: NeverFits) -> str:
    """Why the machines of a cluster can never take a job."""
    called = shown_cluster(why.cluster)
    if why.over is not None:
        return f"it asks for more than it ever may have: {over_limit(why.over)}"
    if not why.closest:
        return f"no machine of {called} may be used by {why.owner or 'you'}"
    if why.lacks:
        lacks = obstacle_words(why.lacks)
        return f"no machine of {called} can ever take it; the closest is {why.closest}: it {lacks}"
    count = why.left_over
    return (
        f"the machines of {called} can never take all of its processes at once: even when nobody"
        f" uses them, {count} process{'es find' if count > 1 else ' finds'} no place"
    )


def over_limit(why: OverLimit) -> str:
    """Which limit keeps a job from starting."""
    one = why.most == 1
    what = ("GPU" if one else "GPUs") if why.what == "gpus" else ("job" if one else "jobs")
    whose = f"the members of {why.whose} together" if why.is_group else why.whose
    text = f"{whose} may use {why.most} {what} at once"
    if why.what == "jobs":
        text = f"{whose} may run {why.most} {what} at once"
    return f"{text}, and {why.used} {'is' if why.used == 1 else 'are'} in use" if why.used else text


def obstacle_words(obstacles: tuple[Obstacle, ...]) -> str:
    """All that keeps a job from a machine."""
    return "; ".join(map(_words, obstacles))


def why_aside(aside: Aside) -> str:
    """Why nothing starts on a machine where jobs failed at once."""
    failed = f"the last {aside.failed} jobs failed within seconds there"
    failed += ", while such jobs do well elsewhere"
    if not aside.is_tried:
        return f"is set aside for {format_duration(aside.for_s)}: {failed}"
    who = f"job {aside.tried_by}" if aside.tried_by else "one job"
    return f"was set aside ({failed}), and {who} tries it now"


def _words(obstacle: Obstacle) -> str:
    match obstacle:
        case ForOthers(owners):
            return f"is only for {', '.join(owners)}"
        case ForGroups(groups, gpus):
            what = "is only" if gpus is None else f"keeps GPUs {gpus}" if gpus else "keeps its GPUs"
            return f"{what} for members of {', '.join(groups)}"
        case SetAside(why):
            return why_aside(why)
        case ClosedNow(text):
            return text
        case TooFewCpus(has, asked):
            return f"has {_cpus(has)}, {_asked(asked)}"
        case TooLittleMemory(has_mb, asked_mb):
            return f"has {_at_most(has_mb)} of memory, {_at_least(asked_mb)} are asked for"
        case WholeTaken(by):
            return f"{_jobs(by)} has the whole machine"
        case WholeWanted(by, user):
            used = f"jobs of {user} run there" if user else f"it is used by {_jobs(by)}"
            return f"the whole machine is asked for, and {used}"
        case MemoryInUse(free_mb, asked_mb, others_mb):
            used = _others(_size(others_mb), others_mb > 0)
            asked_for = f"{_at_least(asked_mb)} are asked for"
            return f"{_at_most(free_mb)} of memory are free, {asked_for}{used}"
        case CpusInUse():
            return _cpus_in_use(obstacle)
        case KeptForJob(job):
            return f"kept free for job {job}, which is next"
        case PacedStarts(every_s):
            return f"starts are paced, one every {_number(every_s, 2)} s (the setting `stagger`)"
    return _PLAIN.get(type(obstacle)) or _gpu_words(obstacle)


def _gpu_words(obstacle: Obstacle) -> str:
    match obstacle:
        case NoSuchGpu(name, models):
            has = _inventory(models)
            lacks = name if name and has else f"GPU, and {name} is asked for" if name else "GPU"
            return f"has no {lacks}" + (f" (it has {has})" if has else "")
        case TooFewGpus(name, count, asked):
            what = name or ("GPU" if count == 1 else "GPUs")
            return f"has {count} {what}, {asked} are asked for"
        case TooSmallGpus(has_mb, asked_mb):
            return f"its GPUs have up to {_at_most(has_mb)}, {_at_least(asked_mb)} are asked for"
        case NotAllGpus(models):
            return f"has {_inventory(models)}, not enough for all the GPUs asked for"
        case GpusInUse():
            return _gpus_in_use(obstacle)
    raise AssertionError(obstacle)


def _gpus_in_use(found: GpusInUse) -> str:
    many = found.matching != 1
    text = f"{found.matching} GPU{'s' if many else ''}"
    if found.names:
        text += f" match{'' if many else 'es'} {', '.join(found.names)}"
    counts: dict[str, int] = {}
    for use, count in found.uses:
        counts[_used_by(use)] = counts.get(_used_by(use), 0) + count
    parts = [text]
    for by, count in counts.items():
        verb = "" if len(parts) > 1 else "is used " if count == 1 else "are used "
        parts.append(f"{count} {verb}{by}")
    if found.share is not None:
        parts.append(_share(found.share))
    return ", ".join(parts)


def _used_by(use: GpuUse) -> str:
    if use.jobs:
        return "by " + " and ".join(f"job {job}" for job in use.jobs)
    if use.user:
        return f"by jobs of {use.user}"
    taken = _size(use.mem_mb) if use.mem_mb else f"{use.util:.0%}"
    return f"by other programs ({taken})"


def _share(share: GpuShare) -> str:
    """What a process asks of a GPU it shares."""
    parts = []
    if share.mem_mb:
        parts.append(_at_least(share.mem_mb))
    if share.util:
        parts.append(f"{share.util:.0%} of the time")
    if not parts:
        return "and a share of a GPU is asked for"
    return f"and {' and '.join(parts)} of a GPU are asked for"


def _cpus_in_use(found: CpusInUse) -> str:
    # Rounded down, or as many would seem to be free as are asked for.
    free = _cpus(round(found.free * 1000) // 100 / 10)
    verb = "is" if free == "1 CPU" else "are"
    used = _others(_number(found.others), found.others > 0)
    return f"{free} {verb} free, {_asked(found.asked)}{used}"


def _one_of(behind: tuple[int, ...]) -> str:
    *others, last = map(str, behind[:_MOST_NAMED])
    names = f"{', '.join(others)} or {last}" if others else last
    return f"job {names}{' or another one' if len(behind) > _MOST_NAMED else ''} has ended"


def _jobs(by: UsedByJobs) -> str:
    named = " and ".join(f"job {job}" for job in by.jobs)
    return named + (f" and {by.more} more" if by.more else "")


def _inventory(models: tuple[tuple[str, int], ...]) -> str:
    return ", ".join(f"{count} {model.removeprefix('NVIDIA ')}" for model, count in models)


def _others(amount: str, any_used: bool) -> str:
    return f" ({amount} used by other programs)" if any_used else ""


def _size(mb: int) -> str:
    return f"{mb / 1024:.1f} GB" if mb >= 1024 else f"{max(0, mb)} MB"


def _at_most(mb: int) -> str:
    """An amount of memory that is free: rounded down, so that it is never what is asked for."""
    return f"{mb * 10 // 1024 / 10:.1f} GB" if mb >= 1024 else f"{max(0, mb)} MB"


def _at_least(mb: int) -> str:
    """An amount of memory that is asked for: rounded up, so that it is never what is free."""
    return f"{-(-mb * 10 // 1024) / 10:.1f} GB" if mb >= 1024 else f"{mb} MB"


def _cpus(count: float) -> str:
    shown = _number(count)
    return f"{shown} CPU" if shown == "1" else f"{shown} CPUs"


def _asked(cpus: float) -> str:
    amount = _number(cpus, 3)
    return f"{amount} {'is' if amount == '1' else 'are'} asked for"


def _number(value: float, digits: int = 1) -> str:
    return f"{value:.{digits}f}".rstrip("0").removesuffix(".")
