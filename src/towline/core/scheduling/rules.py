"""The rules of a team: which groups' machines an owner may use, and how much at once.

Without a team there are none, and nothing here costs anything. With one, priorities order an
owner's own jobs only, and owners take turns by what they used (`fairshare.py`).
"""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from towline.core.machines.demand import NO_RIGHTS, Rights, demands_of
from towline.core.scheduling.bucket import Bucket, Waiting
from towline.core.scheduling.obstacles import OverLimit
from towline.model.machine import Placement
from towline.model.request import Request
from towline.model.team.rules import Rulebook

if TYPE_CHECKING:
    from towline.core.scheduling.scheduler import Scheduler


class TeamRules:
    """A team as the scheduler sees it, and what its users have now."""

    def __init__(self, scheduler: "Scheduler") -> None:
        self._scheduler = scheduler
        self.team: Rulebook | None = None
        #: Somebody is limited: whatever starts is counted, and whoever has too much is passed over.
        self.limited = False
        #: user, or group with a mark before it -> (GPUs, jobs) in use.
        self._used: dict[str, tuple[int, int]] = {}
        #: What waits for nothing but its owner's other jobs.
        self._held: dict[Bucket, None] = {}

    # --- rights ------------------------------------------------------------------------------

    def rights_of(self, owner: str) -> Rights:
        """The groups an owner is in, of those that a machine names."""
        named = self._scheduler.machines.named_groups
        if self.team is None or not named:
            return NO_RIGHTS
        return self.team.groups_of(owner) & named

    def member(self, job: Waiting) -> Waiting:
        """A job as the team sees it: with its owner's rights, and a priority among their own."""
        if self.team is None:
            return job
        return replace(
            job,
            priority=0,
            own=job.own if job.own else job.priority,
            rights=self.rights_of(job.owner),
            time_s=self.bounded_s(job.owner, job.time_s),
        )

    def change(self, team: Rulebook) -> None:
        """Go by these rules from now on."""
        scheduler = self._scheduler
        self.team = team
        self.limited = bool(team.user_limits or team.group_limits)
        scheduler.penalties.fair = True
        scheduler.reservations.outranks = scheduler.penalties.outranks
        scheduler.machines.changes.potential += 1
        self._used.clear()
        for running in scheduler.running.values():
            self.started(running.owner, running.placement)
        self.regroup()
        self._wake(list(self._held))

    def regroup(self) -> None:
        """Put every waiting job where it belongs by its owner's rights as they are now."""
        scheduler = self._scheduler
        for bucket in dict.fromkeys(scheduler.queue.waiting.values()):
            old = bucket.as_waiting()
            if old and self.member(old[0]) != old[0]:
                for job in old:
                    scheduler.move(job, self.member(job))
        for job in scheduler.caps.everyone():
            scheduler.caps.renew(self.member(job))

    # --- limits ------------------------------------------------------------------------------

    def started(self, owner: str, placement: Placement) -> None:
        if self.limited:
            self._count(owner, sum(len(slot.gpus) for slot in placement), 1)

    def ended(self, owner: str, placement: Placement) -> None:
        """What somebody had is free again: who waited for that may go on."""
        if not self.limited:
            return
        self._count(owner, -sum(len(slot.gpus) for slot in placement), -1)
        assert self.team is not None
        groups = self.team.groups_of(owner)
        mates = [
            bucket
            for bucket in self._held
            if bucket.owner == owner or not groups.isdisjoint(self.team.groups_of(bucket.owner))
        ]
        self._wake(mates)

    def over(self, owner: str, gpus: int) -> OverLimit | None:
        """The limit that a job with so many GPUs would break now; None: it may start."""
        if not self.limited:
            return None
        assert self.team is not None
        for name, is_group, limits in self.team.limits_of(owner):
            used_gpus, used_jobs = self._used.get(_account(name, is_group), (0, 0))
            if limits.jobs and used_jobs + 1 > limits.jobs:
                return OverLimit(
                    whose=name, is_group=is_group, what="jobs", most=limits.jobs, used=used_jobs
                )
            if limits.gpus and gpus and used_gpus + gpus > limits.gpus:
                return OverLimit(
                    whose=name, is_group=is_group, what="gpus", most=limits.gpus, used=used_gpus
                )
        return None

    def never(self, owner: str, request: Request) -> OverLimit | None:
        """The limit that a job alone would break; None if it could start some day."""
        if not self.limited:
            return None
        assert self.team is not None
        gpus = sum(count * demand.gpu_count for count, demand in demands_of(request))
        for name, is_group, limits in self.team.limits_of(owner):
            if limits.gpus and gpus > limits.gpus:
                return OverLimit(whose=name, is_group=is_group, what="gpus", most=limits.gpus)
        return None

    def limits(self, owner: str) -> bool:
        """Whether an owner's jobs are counted."""
        return self.limited and self.team is not None and bool(self.team.limits_of(owner))

    def longest_s(self, owner: str) -> float:
        """How long each of an owner's jobs may run; 0: as long as it likes."""
        limits = self.team.limits_of(owner) if self.team is not None else []
        return min((one.time_s for _, _, one in limits if one.time_s), default=0.0)

    def bounded_s(self, owner: str, time_s: float) -> float:
        """How long a job runs at most that asks for so long; 0: as long as it likes."""
        longest_s = self.longest_s(owner)
        return min(time_s or longest_s, longest_s) if longest_s else time_s

    def holds_back(self, bucket: Bucket) -> bool:
        """Whether the first job of a bucket may not start because of what its owner has."""
        if self.over(bucket.owner, bucket.gpu_count) is None:
            return False
        self._held[bucket] = None
        return True

    def check(self) -> None:
        """Whatever is counted is what runs."""
        counted, self._used = {k: v for k, v in self._used.items() if any(v)}, {}
        for running in self._scheduler.running.values():
            self.started(running.owner, running.placement)
        assert counted == self._used, (counted, self._used)

    def _count(self, owner: str, gpus: int, jobs: int) -> None:
        assert self.team is not None
        accounts = [_account(group, True) for group in self.team.groups_of(owner)]
        for account in (_account(owner, False), *accounts):
            had_gpus, had_jobs = self._used.get(account, (0, 0))
            self._used[account] = had_gpus + gpus, had_jobs + jobs

    def _wake(self, buckets: list[Bucket]) -> None:
        for bucket in buckets:
            del self._held[bucket]
            if bucket.count:
                self._scheduler.queue.wake(bucket)


def _account(name: str, is_group: bool) -> str:
    return f"@{name}" if is_group else name
