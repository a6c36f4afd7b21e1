"""What may be removed: which job folders on a machine, and whether it is time to look for them."""

import re
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from towline.model.job import Job

DAY_S = 86400.0
#: A job that ended so recently may still be looked into, however full the machine is.
RECENT_S = 3600.0

#: What follows the Engine's id in the name of a job's folder: the process, or a command beside it.
_PLACE = re.compile(r"-([0-9]+)-[0-9]+(?:-([0-9a-f]{8}))?-[0-9]+(\.x[0-9.]+)?\Z")


class Rules(Struct, frozen=True):
    """What the user allows."""

    after_s: float
    keep_bytes: float
    #: What ended within this time stays in any case.
    recent_s: float = RECENT_S


class Folder(Struct, frozen=True):
    """One job folder on a machine."""

    key: str
    bytes: int
    #: What ran in it has ended, as the machine knows it.
    ended: bool


def job_of(key: str, engine: str) -> int | None:
    """The job that a folder belongs to; None for what is not this Engine's."""
    place = _place(key, engine)
    return int(place[1]) if place else None


def token_of(key: str, engine: str) -> str:
    """The random part of a key; empty for those that an older version made."""
    place = _place(key, engine)
    return place[2] or "" if place else ""


def _place(key: str, engine: str) -> re.Match[str] | None:
    return _PLACE.match(key, len(engine)) if key.startswith(f"{engine}-") else None


def is_ours(key: str, job: Job | None, engine: str, earlier: Mapping[int, Collection[str]]) -> bool:
    """False for a folder of the same number that only a copy of this Engine's store knows of.

    `earlier` are the tokens of attempts that others followed.
    """
    token = token_of(key, engine)
    if not token or job is None:
        return job is not None
    now = job.attempt.token if job.attempt else ""
    return token == now or token in earlier.get(job.id, ())


def is_home(job: Job | None) -> bool:
    """True once a job has ended and nothing of it is still to come home."""
    if job is None or not job.state.final or job.ended is None:
        return False
    return job.results.kind in ("none", "home")


def may_go(job: Job | None, now: float, recent_s: float = RECENT_S) -> bool:
    """True if it is home, and nobody is likely to look into it any more."""
    return is_home(job) and job is not None and now - (job.ended or 0.0) > recent_s


def folders_to_remove(
    folders: Iterable[Folder],
    jobs: Mapping[int, Job],
    engine: str,
    now: float,
    rules: Rules,
    earlier: Mapping[int, Collection[str]],
) -> list[Folder]:
    """The folders of one machine that may go: the old ones, and the oldest while it is too much."""
    whole: dict[int, list[Folder]] = {}
    for folder in folders:
        number = job_of(folder.key, engine)
        if number is not None and is_ours(folder.key, jobs.get(number), engine, earlier):
            whole.setdefault(number, []).append(folder)
    left = sum(folder.bytes for some in whole.values() for folder in some)
    ended_at = {
        number: jobs[number].ended or 0.0
        for number, some in whole.items()
        if may_go(jobs.get(number), now, rules.recent_s) and all(folder.ended for folder in some)
    }
    going: list[Folder] = []
    for number in sorted(ended_at, key=lambda number: (ended_at[number], number)):
        if now - ended_at[number] <= rules.after_s and left <= rules.keep_bytes:
            break
        going += whole[number]
        left -= sum(folder.bytes for folder in whole[number])
    return going


def folders_to_shrink(
    folders: Iterable[Folder],
    jobs: Mapping[int, Job],
    engine: str,
    earlier: Mapping[int, Collection[str]],
) -> list[Folder]:
    """Those that need no longer hold what the job was sent."""
    found = []
    for folder in folders:
        job = jobs.get(job_of(folder.key, engine) or 0)
        if folder.ended and is_home(job) and is_ours(folder.key, job, engine, earlier):
            found.append(folder)
    return found


def is_due(last: float, now: float, idle: bool) -> bool:
    """Once a day while there is nothing else to do; after two days in any case."""
    if last > now:
        return idle  # the clock was put back
    return now - last > (DAY_S if idle else 2 * DAY_S)
