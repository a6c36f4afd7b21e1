"""Machines that fail jobs at once, again and again, are set aside.

One ending says nothing: the job may be at fault. So failures within seconds of the start are held
against what the same kind of job does elsewhere. Several different jobs in a row that failed on one
machine, with none ending well there, would be chance once in so many times; if that is less than
once in a million, the machine is to blame. Where such jobs fail everywhere, that is never so.

A machine that is set aside is tried again after some minutes, by one job; if that fails as well, it
is set aside for twice as long.
"""

from collections.abc import Callable, Hashable
from itertools import islice
from math import log

from msgspec import Struct, field

from towline.model.job import SILENT, Ending, Job
from towline.model.journal import Remark
from towline.model.machine import Aside

#: A failure is one at once if it comes so soon after the start.
AT_ONCE_S = 10.0
#: Failures in a row before anyone wonders.
FEWEST = 3
#: How unlikely it must be that the jobs are to blame, as a logarithm.
CHANCE = log(1e-6)
ASIDE_S = 300.0
MOST_ASIDE_S = 4 * 3600.0
#: Jobs of one kind that are remembered of a row of failures, and looked at among those that run.
MOST_JOBS = 64
MOST_KINDS = 1000
#: Causes that say nothing about the machine.
NO_WORD = frozenset({"stopped", "timeout", "void", "lost", "oom", SILENT})

Kind = Hashable
#: When a job's processes started, as far as they have.
Since = Callable[[int], float | None]


class TrackRecord(Struct):
    """What is held against one machine."""

    #: Kind -> jobs of it that failed here at once, since the last one that ended well.
    failed: dict[Kind, set[int]] = field(default_factory=dict)
    #: The longest that any of them ran.
    ran_s: float = 0.0
    #: Set aside until then; 0: it is not.
    until: float = 0.0
    #: How often in a row it was set aside.
    times: int = 0
    #: True while one job may try it, and which one does.
    open_to_one: bool = False
    tried_by: int = 0

    @property
    def count(self) -> int:
        return sum(map(len, self.failed.values()))


class HealthVerdict(Struct, frozen=True):
    """What changed about a machine: `aside` is why nothing starts there; None: jobs may."""

    machine: str
    aside: Aside | None = None
    #: What to tell people, if it is worth a word.
    remark: Remark | None = None


class Health:
    """How jobs fare on every machine, and which machines are set aside."""

    def __init__(self, since: Since) -> None:
        self._since = since
        self._records: dict[str, TrackRecord] = {}
        #: Those of them that are set aside or being tried.
        self._aside: dict[str, TrackRecord] = {}
        #: Kind -> machine -> jobs that ended well there, and that failed at once.
        self._past: dict[Kind, dict[str, list[int]]] = {}
        #: Kind -> job -> its machines, the oldest first.
        self._running: dict[Kind, dict[int, tuple[str, ...]]] = {}

    def started(self, job: Job) -> None:
        """A job was given its machines."""
        names = _machines(job)
        self._running.setdefault(kind_of(job), {})[job.id] = names
        for name in names if self._aside else ():
            record = self._aside.get(name)
            if record is not None and record.open_to_one:
                record.open_to_one, record.tried_by = False, job.id

    def ended(self, job: Job, now: float) -> list[HealthVerdict]:
        """All processes of a job's attempt have ended; what follows for its machines."""
        kind = kind_of(job)
        running = self._running.get(kind, {})
        running.pop(job.id, None)
        if not running:
            self._running.pop(kind, None)
        assert job.attempt is not None
        endings = job.attempt.endings
        verdicts: list[HealthVerdict] = []
        if endings and all(ending.ok for ending in endings.values()):
            for name in _machines(job):
                self._count(kind, name, 0)
                verdicts += self._fared_well(name)
            return verdicts
        rank = _first_failure(endings)
        if rank is not None:
            name = job.attempt.placement[rank].machine
            self._count(kind, name, 1)
            verdicts += self._failed_at_once(name, kind, job.id, endings[rank], now)
            verdicts += self._think_again(kind, name, now)
        for name in _machines(job):
            record = self._aside.get(name)
            if record is not None and record.tried_by == job.id:
                # Stopped, lost, or failed like everywhere: that was no trial.
                verdicts.append(self._open_to_one(name, record))
        return verdicts

    def due(self, now: float) -> list[HealthVerdict]:
        """Machines that may be tried again, and those whose trial goes well."""
        verdicts: list[HealthVerdict] = []
        for name, record in list(self._aside.items()):
            if record.until and record.until <= now:
                verdicts.append(self._open_to_one(name, record))
            elif record.tried_by and self._survived(record.tried_by, now):
                verdicts += self._fared_well(name)
        return verdicts

    def wake_at(self) -> float | None:
        """When `due` may have something to say."""
        found = []
        for record in self._aside.values():
            if record.until:
                found.append(record.until)
            elif record.tried_by and (since := self._since(record.tried_by)) is not None:
                found.append(since + AT_ONCE_S)
        return min(found, default=None)

    def reset(self, machine: str) -> list[HealthVerdict]:
        """Someone mended it: nothing is held against it any more."""
        return self._fared_well(machine)

    def answers_again(self, machine: str) -> list[HealthVerdict]:
        """It was away, so it may have been mended: it can be tried at once."""
        record = self._aside.get(machine)
        return [self._open_to_one(machine, record)] if record is not None and record.until else []

    def forget(self, machine: str) -> None:
        self._records.pop(machine, None)
        self._aside.pop(machine, None)

    # --- one machine -------------------------------------------------------------------------

    def _fared_well(self, name: str) -> list[HealthVerdict]:
        self._records.pop(name, None)
        if self._aside.pop(name, None) is None:
            return []
        return [HealthVerdict(name, remark=Remark("well_again", machine=name))]

    def _failed_at_once(
        self, name: str, kind: Kind, job_id: int, ending: Ending, now: float
    ) -> list[HealthVerdict]:
        record = self._records.setdefault(name, TrackRecord())
        jobs = record.failed.setdefault(kind, set())
        if len(jobs) < MOST_JOBS:
            jobs.add(job_id)
        record.ran_s = max(record.ran_s, ending.ended - ending.started if ending.started else 0.0)
        if name in self._aside:
            if record.tried_by != job_id or not self._well_elsewhere(kind, name, record, now):
                return []
        elif record.count < FEWEST or self._chance(name, record, now) > CHANCE:
            return []
        self._aside[name] = record
        record.tried_by, record.open_to_one = 0, False
        for_s = min(ASIDE_S * 2**record.times, MOST_ASIDE_S)
        record.times += 1
        record.until = now + for_s
        remark = Remark("set_aside", machine=name, count=record.count, for_s=for_s)
        return [HealthVerdict(name, Aside(record.count, for_s), remark)]

    def _think_again(self, kind: Kind, failed_on: str, now: float) -> list[HealthVerdict]:
        """It failed on one machine more: perhaps those that were set aside are not to blame."""
        verdicts = []
        for name, record in list(self._aside.items()):
            suspect = record.until and record.times == 1 and kind in record.failed
            if suspect and name != failed_on and self._chance(name, record, now) > CHANCE:
                self.forget(name)
                verdicts.append(HealthVerdict(name, remark=Remark("not_to_blame", machine=name)))
        return verdicts

    def _open_to_one(self, name: str, record: TrackRecord) -> HealthVerdict:
        record.until, record.tried_by, record.open_to_one = 0.0, 0, True
        return HealthVerdict(name, Aside(record.count, is_tried=True))

    # --- what speaks for and against ---------------------------------------------------------

    def _chance(self, name: str, record: TrackRecord, now: float) -> float:
        """How likely it is that all of these jobs would have failed anywhere, as a logarithm."""
        found = 0.0
        for kind, jobs in record.failed.items():
            good, bad = self._elsewhere(kind, name, record, now)
            if good:
                found += len(jobs) * log((bad + 1) / (good + bad + 2))
        return found

    def _well_elsewhere(self, kind: Kind, name: str, record: TrackRecord, now: float) -> bool:
        good, bad = self._elsewhere(kind, name, record, now)
        return good > bad

    def _elsewhere(self, kind: Kind, name: str, record: TrackRecord, now: float) -> tuple[int, int]:
        """How many jobs of a kind did well on other machines, and how many failed there."""
        past = [counts for other, counts in self._past.get(kind, {}).items() if other != name]
        good, bad = sum(good for good, _ in past), sum(bad for _, bad in past)
        if good < MOST_JOBS:
            good += self._survivors(kind, name, record.ran_s, now)
        return good, bad

    def _survivors(self, kind: Kind, name: str, ran_s: float, now: float) -> int:
        """Jobs of the kind that have run elsewhere for longer than those here did."""
        found = 0
        for job_id, names in islice(self._running.get(kind, {}).items(), MOST_JOBS):
            since = self._since(job_id)
            found += since is not None and name not in names and now - since > 2 * ran_s + 0.1
        return found

    def _survived(self, job_id: int, now: float) -> bool:
        since = self._since(job_id)
        return since is not None and now - since >= AT_ONCE_S

    def _count(self, kind: Kind, name: str, place: int) -> None:
        if kind not in self._past and len(self._past) >= MOST_KINDS:
            del self._past[next(iter(self._past))]
        self._past.setdefault(kind, {}).setdefault(name, [0, 0])[place] += 1


def kind_of(job: Job) -> Kind:
    """What jobs that should fare alike have in common."""
    spec = job.spec
    return spec.batch or (spec.cluster, spec.owner, spec.folder, spec.argv[:1])


def _machines(job: Job) -> tuple[str, ...]:
    assert job.attempt is not None
    return tuple(dict.fromkeys(slot.machine for slot in job.attempt.placement))


def _first_failure(endings: dict[int, Ending]) -> int | None:
    """The process that failed first, if it did so at once and by itself."""
    failed = [
        (ending.ended, rank)
        for rank, ending in endings.items()
        if not ending.ok and ending.cause not in NO_WORD
    ]
    if not failed:
        return None
    ending = endings[min(failed)[1]]
    at_once = not ending.started or ending.ended - ending.started <= AT_ONCE_S
    return min(failed)[1] if at_once else None
