"""Which jobs a list has, and which job or batch a name means."""

from msgspec import Struct

from towline.api.jobs import MeantView
from towline.errors import NotFound, UsageError
from towline.model.batch import Batch, BatchKey
from towline.model.job import FINAL, Job, State, standing
from towline.model.principal import Principal
from towline.store.store import Store

#: So long an ended job is listed without being asked for.
_A_DAY_S = 86400.0
#: Rows of a list unless told otherwise; what is active is listed in any case.
_ROWS = 30
#: So many of those that ended are listed beside however many active ones.
_LEAST_ENDED = 5
#: Means every state that is not final.
ACTIVE = "active"
_MOVING = (State.STARTING.value, State.RUNNING.value, State.STOPPING.value)


class JobFilter(Struct, frozen=True):
    """Which jobs are to be listed."""

    state: str = ""
    cluster: str = ""
    #: None: all that are active, and some that ended.
    limit: int | None = None
    #: Also what ended long ago.
    everything: bool = False
    #: Of this one only; empty: everybody's.
    owner: str = ""


class JobPage(Struct, frozen=True):
    """Jobs, oldest first, and how many more there are of that kind."""

    jobs: list[Job]
    left_out: int


def checked_state(name: str) -> str:
    """A state that can be asked for."""
    names = [ACTIVE, *(state.value for state in State)]
    if name and name not in names:
        raise UsageError(f"there is no state {name!r}", hint=f"one of: {', '.join(names)}")
    return name


def listed(store: Store, wanted: JobFilter, now: float) -> JobPage:
    """Jobs that are not of a batch: those that are active first of all, then the newest ended."""
    active = _active(store, wanted)
    most = wanted.limit
    if most is not None and len(active) > most:
        # What runs matters more than what waits, and what is new more than what is old.
        active.sort(key=lambda job: (standing(job) in _MOVING, job.id), reverse=True)
        cut, active = active[most:], sorted(active[:most], key=lambda job: job.id)
        return JobPage(active, len(cut) + _ended_count(store, wanted, now))
    room = _room_for_ended(wanted, len(active))
    ended = _ended(store, wanted, now, room)
    left_out = _ended_count(store, wanted, now) - len(ended) if len(ended) == room else 0
    return JobPage(sorted([*ended, *active], key=lambda job: job.id), left_out)


def _room_for_ended(wanted: JobFilter, active: int) -> int:
    if wanted.limit is not None:
        return wanted.limit - active
    return -1 if wanted.everything else max(_LEAST_ENDED, _ROWS - active)


def _active(store: Store, wanted: JobFilter) -> list[Job]:
    if wanted.state in FINAL:
        return []
    found = store.active(wanted.cluster, wanted.owner)
    if wanted.state in ("", ACTIVE):
        return found
    # As people see it: what waits in the queue of its cluster is queued.
    return [job for job in found if standing(job) == wanted.state]


def _ended(store: Store, wanted: JobFilter, now: float, limit: int) -> list[Job]:
    if wanted.state and wanted.state not in FINAL:
        return []
    return store.ended(_since(wanted, now), limit, wanted.state, wanted.cluster, wanted.owner)


def _ended_count(store: Store, wanted: JobFilter, now: float) -> int:
    if wanted.state and wanted.state not in FINAL:
        return 0
    return store.ended_count(_since(wanted, now), wanted.state, wanted.cluster, wanted.owner)


def _since(wanted: JobFilter, now: float) -> float:
    return 0.0 if wanted.everything else now - _A_DAY_S


def jobs_of_batch(store: Store, batch: Batch, state: str, limit: int) -> list[Job]:
    """The jobs of a batch, all or those in one state as people see it."""
    states = {state} if state else set()
    if state == ACTIVE:
        states = {one.value for one in State if not one.final}
    elif batch.base.queue is not None and state == State.QUEUED:
        states = {State.QUEUED.value, State.STARTING.value}
    elif batch.base.queue is not None and state == State.STARTING:
        return []
    return store.jobs_between(batch.first, batch.last, sorted(states), limit)


def meant(store: Store, who: Principal, name: str) -> MeantView:
    """The job or the batch that a name means: a title, a batch, `BATCH.LINE`, or `last`."""
    if name == "last":
        return _last(store, who)
    batch = store.batches.find(who, name)
    job, is_active = store.titled(name, who.sees)
    if job and (batch is None or (is_active, job) > (batch.key in _going_on(store), batch.first)):
        return {"job": job}
    if batch is not None:
        return {"batch": batch.name, "first": batch.first, "count": batch.count}
    if line := _line(store, who, name):
        return {"job": line}
    raise NotFound(f"there is no job {name!r}", hint="see which there are: tow status --all")


def _last(store: Store, who: Principal) -> MeantView:
    newest = store.newest(who.sees)
    if not newest:
        raise NotFound("there is no job yet", hint="tow run COMMAND starts one")
    job, name = newest
    batch = store.batches.of_job(job) if name else None
    if batch is None:
        return {"job": job}
    return {"batch": name, "first": batch.first, "count": batch.count}


def _going_on(store: Store) -> set[BatchKey]:
    return {batch.key for batch in store.batches.unfinished()}


def _line(store: Store, who: Principal, name: str) -> int:
    """The job that is one line of a batch; 0 when there is none."""
    base, _, number = name.rpartition(".")
    is_line = number.isascii() and number.isdigit()
    batch = store.batches.find(who, base) if is_line else None
    if batch is None:
        return 0
    line = store.batches.line(batch, int(number))
    if not line:
        hint = f"it has {batch.count}: tow batch show {base}"
        raise NotFound(f"batch {base} has no line {number}", hint=hint)
    return line
