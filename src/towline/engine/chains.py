"""Chains as people ask for them and look at them; core/chains.py decides."""

import time
from collections.abc import Iterable, Sequence
from functools import partial

from msgspec.structs import replace

from towline.api.jobs import After
from towline.engine.engine import Engine, no_job
from towline.engine.lists import meant
from towline.engine.reasons import reason_words
from towline.engine.views import after_view
from towline.errors import UsageError
from towline.model.batch import Batch
from towline.model.events import HoldAsked
from towline.model.job import Awaited, Job, State, Unit, standing
from towline.model.names import ANY, FAILED, OK, awaited_words, unit_name
from towline.model.principal import Principal
from towline.model.reason import because_of

#: How what is awaited must end, and the option that names it.
_OPTIONS = {OK: "--after", ANY: "--after-any", FAILED: "--after-failed"}
#: So many skipped jobs are told of at most.
_MOST_TOLD = 1000


def after_from(
    who: Principal, named: Iterable[tuple[str, str]], engine: Engine
) -> tuple[Awaited, ...]:
    """What is named, as what it is now; each once."""
    found: dict[Unit, Awaited] = {}
    for when, name in named:
        for unit in _units(engine, who, name.strip(), _OPTIONS[when]):
            batch = unit if isinstance(unit, str) else ""
            awaited = Awaited(when, 0 if batch else int(unit), batch)
            if found.setdefault(unit, awaited) != awaited:
                raise UsageError(
                    f"{unit_name(awaited.unit)} is named twice, to end in different ways",
                    hint="name it once: --after, --after-any or --after-failed",
                )
    return tuple(found.values())


def _units(engine: Engine, who: Principal, name: str, option: str) -> list[Unit]:
    first, dash, last = name.partition("-")
    if dash and first.isdecimal() and last.isdecimal() and len(last) < 16:
        if not 0 <= int(last) - int(first) < 10_000:
            raise UsageError(f"{option} {name} is not a range of jobs", hint="write it like 14-20")
        return [_job_of(engine, who, job) for job in range(int(first), int(last) + 1)]
    if name.isascii() and name.isdecimal() and len(name) < 16:
        return [_job_of(engine, who, int(name))]
    if not name:
        raise UsageError(f"{option} names no job", hint=f"like {option} 12,13")
    found = meant(engine.store, who, name)
    return [found["batch"]] if "batch" in found else [found["job"]]


def _job_of(engine: Engine, who: Principal, number: int) -> int:
    if not who.owns(engine.job(number).spec.owner):
        raise no_job(number)
    return number


def waiter(job: Job) -> Unit:
    """Who waits where a job does: the batch that it is of, unless it waits on its own account."""
    return job.spec.batch if job.spec.batch and job.state is State.QUEUED else job.id


def waits_for(engine: Engine, waiter: Unit, after: tuple[Awaited, ...]) -> list[After]:
    """What of it has not ended, and where that stands."""
    if not after:
        return []
    waits = engine.core.chains.waits_for(waiter)
    found = [one for one in after if one.unit in waits]
    views = after_view(tuple(found))
    for view, one in zip(views, found, strict=True):
        view["state"] = _standing(engine, one.unit)
    return views


def waiting_words(engine: Engine, waiter: Unit, after: tuple[Awaited, ...]) -> str:
    """`waits for job 12 (running)`, and what else keeps it back; empty when nothing does."""
    views, holds = waits_for(engine, waiter, after), engine.core.holds
    told = [(view["batch"] or view["job"], view["when"], view["state"]) for view in views]
    words = [f"waits{_where(engine, waiter)} for {awaited_words(told)}"] if told else []
    if begin := holds.begin_of(waiter) or _begin_there(engine, waiter):
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(begin))
        words.append(f"waits{_where(engine, waiter)} until {clock}")
    if holds.is_held(waiter):
        words.append(f"is held: `tow qrls {_number(engine, waiter)}` lets it go")
    return ", and ".join(words)


def _begin_there(engine: Engine, waiter: Unit) -> float:
    """The time that a queue lets it wait for; 0 if it does not."""
    job = engine.core.jobs.get(waiter) if isinstance(waiter, int) else None
    waits = job is not None and job.spec.queue is not None and job.state is State.STARTING
    return job.spec.begin if job and waits and job.spec.begin > engine.clock() else 0.0


def _where(engine: Engine, waiter: Unit) -> str:
    """In which queue it waits, that lets it go on while no Engine runs; empty for our own."""
    if isinstance(waiter, str):
        batch = engine.store.batches.newest(waiter)
        return f" in {batch.base.cluster}'s own queue" if batch and batch.follows else ""
    job = engine.core.jobs.get(waiter)
    follows = job is not None and job.attempt is not None and job.attempt.follows
    there = follows or _begin_there(engine, waiter)
    return f" in {job.spec.cluster}'s own queue" if job and there else ""


def _number(engine: Engine, unit: Unit) -> Unit:
    """What it is called by: a batch by its first job, as an array is."""
    batch = engine.store.batches.newest(unit) if isinstance(unit, str) else None
    return batch.first if batch else unit


async def hold(engine: Engine, jobs: Sequence[Job]) -> list[int]:
    """Keep back jobs that have not begun; those of which it is too late."""
    await engine.tell(HoldAsked(tuple(job.id for job in jobs), held=True))
    return [job.id for job in jobs if not engine.core.holds.is_held(job.id)]


async def let_go(engine: Engine, jobs: Sequence[Job]) -> None:
    """Hold jobs no more, and whole batches that have one of them."""
    units: dict[Unit, None] = {}
    for job in jobs:
        if not job.spec.batch:
            units[job.id] = None
        elif job.spec.batch not in units:
            units[job.spec.batch] = None
            batch = engine.store.batches.named(job.spec.owner, job.spec.batch)
            change = partial(engine.store.batches.change, replace(batch, by_user=False))
            await engine.in_turn(partial(change, engine.clock()))
    await engine.tell(HoldAsked(tuple(units), held=False))


def _standing(engine: Engine, unit: Unit) -> str:
    if isinstance(unit, int):
        return standing(engine.job(unit)) if engine.knows(unit) else ""
    return "" if engine.store.became(unit) is None else "ended"


def check_retry(engine: Engine, jobs: Sequence[Job], batches: Sequence[Batch] = ()) -> None:
    """Refuse to retry what waits for others that have ended otherwise."""
    again: set[Unit] = {*(job.id for job in jobs), *(batch.name for batch in batches)}
    for job in jobs:
        _check_after(engine, f"job {job.id}", job.spec.after, again)
        core = engine.core
        if job.spec.batch and (job.spec.batch in core.chains or job.spec.batch in core.holds):
            raise UsageError(
                f"job {job.id} is of batch {job.spec.batch}, which waits",
                hint=f"it goes on with its batch: tow why {job.spec.batch}",
            )
    for batch in batches:
        _check_after(engine, f"batch {batch.name}", batch.base.after, again)


def _check_after(engine: Engine, who: str, after: Iterable[Awaited], again: Iterable[Unit]) -> None:
    for awaited in after:
        if awaited.unit in again or awaited.unit in engine.core.jobs:
            continue
        state = engine.store.became(awaited.unit)
        if state is not None and not awaited.met_by(state):
            told = reason_words(because_of(awaited.unit, state))
            other = awaited.batch or awaited.job
            gone = state is State.LOST and not _is_known(engine, awaited.unit)
            hint = "submit it anew" if gone else f"both of them: tow retry {other} {who.split()[1]}"
            text = f"{unit_name(awaited.unit)} is forgotten" if gone else told
            raise UsageError(f"{who} can never begin: it was to run after others, and {text}", hint)


def _is_known(engine: Engine, unit: Unit) -> bool:
    if isinstance(unit, str):
        return engine.store.batches.newest(unit) is not None
    return engine.knows(unit)


def skipped_because(engine: Engine, jobs: Iterable[int], batches: Iterable[str] = ()) -> list[Unit]:
    """What was skipped because of these, and because of that in turn: jobs, and batches whole."""
    found: dict[Unit, None] = {}
    ahead: list[Unit] = [*jobs, *batches]
    while ahead and len(found) < _MOST_TOLD:
        for job_id in engine.store.skipped_because(ahead.pop(0)):
            batch = engine.store.batches.of_job(job_id)
            unit: Unit = batch.name if batch else job_id
            if unit not in found:
                found[unit] = None
                ahead.append(unit)
    return list(found)


def check_nobody_waits(engine: Engine, jobs: Iterable[int], batches: Iterable[str]) -> None:
    """Refuse to forget what others were submitted to run after, as long as they wait."""
    going: set[Unit] = {*jobs, *batches}
    for waiter in engine.core.chains.waiters():
        for awaited in _after_of(engine, waiter):
            if awaited.unit in going:
                who = f"batch {waiter}" if isinstance(waiter, str) else f"job {waiter}"
                raise UsageError(
                    f"{who} was submitted to run after {unit_name(awaited.unit)}, and still waits",
                    hint=f"remove it once that has ended, or stop that: tow stop {waiter}",
                )


def _after_of(engine: Engine, waiter: Unit) -> tuple[Awaited, ...]:
    if isinstance(waiter, int):
        return engine.job(waiter).spec.after
    batch = engine.store.batches.newest(waiter)
    return batch.base.after if batch else ()
