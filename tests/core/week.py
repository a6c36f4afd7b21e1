"""A week in the life of a lab, simulated: machines, their other users, and jobs by the thousand.

The real core decides (`Core.handle`); the clock, the machines and the people are made up. Nothing
here looks into the core: what runs where is kept in a ledger of its own, from the core's orders.
"""

import math
import random
from collections import Counter
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from core.packing_bound import Sort, cpu_bound, gpu_bound
from core.week_lab import SORTS, Host, allowed, free_cpus, left_over, make_hosts, states
from towline.core.decide import Core
from towline.model.events import (
    Fact,
    MachineGone,
    MachineSeen,
    ProcessEnded,
    ProcessStarted,
    StartAttempt,
    Submitted,
)
from towline.model.grammar import parse_request
from towline.model.job import Attempt, Ending, Job, JobSpec
from towline.model.request import Need, Request

DAY_S = 86_400.0
HOUR_S = 3_600.0
#: Things happen on this grid, so that what happens at the same time is decided together.
TICK_S = 10.0
#: Time between two looks at how well the machines are used.
SAMPLE_S = 1_800.0
#: Nothing is submitted after so many days; what waits then is played out.
SUBMITTING_DAYS = 6.5
OWNERS = 25


@dataclass(frozen=True)
class Planned:
    """A job as its owner knows it."""

    sort: str
    hours: float
    #: How much of the GPU memory it asked for it really takes.
    takes: float
    fails: bool


@dataclass
class Measure:
    """What ran and what could have run at most, over all moments at which such work waited."""

    used: float = 0.0
    bound: float = 0.0
    worst: float = 1.0

    def count(self, used: float, bound: float) -> None:
        self.used += used
        self.bound += bound
        self.worst = min(self.worst, used / bound)

    @property
    def share(self) -> float:
        return self.used / self.bound if self.bound else 1.0


@dataclass
class Outcome:
    """What a week came to."""

    jobs: int = 0
    events: int = 0
    starts: int = 0
    foreign: int = 0
    gpus: Measure = field(default_factory=Measure)
    #: The same against the bound for which what runs may be moved.
    repacked: Measure = field(default_factory=Measure)
    cpus: Measure = field(default_factory=Measure)
    moments: int = 0
    #: sort -> longest wait in hours.
    waits: dict[str, float] = field(default_factory=dict)
    longest_queue: int = 0
    days: float = 0.0

    def __str__(self) -> str:
        waits = ", ".join(f"{sort} {hours:.1f}" for sort, hours in sorted(self.waits.items()))
        return (
            f"{self.jobs:,} jobs, {self.starts:,} starts, {self.foreign:,} foreign programs,"
            f" {self.events:,} decisions, {self.days:.1f} days,"
            f" at most {self.longest_queue:,} waiting\n"
            f"while work waited ({self.moments} looks): GPUs {self.gpus.share:.1%} of the bound"
            f" (worst {self.gpus.worst:.1%}), {self.repacked.share:.1%} of it with all repacked;"
            f" CPUs {self.cpus.share:.1%} (worst {self.cpus.worst:.1%})\n"
            f"longest waits in hours: {waits}"
        )


class Week:
    """The simulation; `scale` is the share of 200 machines, jobs and other users there is."""

    def __init__(self, scale: float = 1.0, jobs: int = 100_000, seed: int = 1) -> None:
        self.chance = random.Random(seed)
        self.core = Core()
        self.now = 0.0
        self.scale = scale
        self.hosts = make_hosts(scale)
        self.requests = {name: parse_request(sort[0]) for name, sort in SORTS.items()}
        self.needs = {name: needs_of(request) for name, request in self.requests.items()}
        self.outcome = Outcome(jobs=jobs)
        self.planned: dict[int, Planned] = {}
        self.running: dict[int, Attempt] = {}
        self.waiting: Counter[str] = Counter()
        self.since: dict[int, float] = {}
        #: What will happen: (when, number, what, with whom).
        self.coming: list[tuple[float, int, str, Any]] = []
        self._number = 0
        self._facts: list[Fact] = [MachineSeen(host.seen()) for host in self.hosts.values()]
        self._plan_jobs(jobs)
        self._plan_others()
        self._plan_machines()

    # --- what is going to happen -------------------------------------------------------------

    def later(self, at: float, what: str, whom: Any) -> None:
        self._number += 1
        on_grid = math.ceil(max(at, self.now) / TICK_S) * TICK_S
        heappush(self.coming, (on_grid, self._number, what, whom))

    def busy_hour(self, days: float) -> float:
        """Some moment, more likely by day and on weekdays."""
        while True:
            at = self.chance.random() * days * DAY_S
            day, hour = at // DAY_S % 7, at % DAY_S / HOUR_S
            likely = (1.0 if 9 <= hour < 19 else 0.35) * (0.5 if day >= 5 else 1.0)
            if self.chance.random() < likely:
                return at

    def _plan_jobs(self, jobs: int) -> None:
        """Batches of all sizes, each of one sort, and single jobs in between."""
        names = list(SORTS)
        weights = [SORTS[name][1] for name in names]
        left = jobs
        while left:
            sort = self.chance.choices(names, weights)[0]
            typical = 4 if SORTS[sort][1] < 2 else 40
            size = min(left, 1 + int(self.chance.lognormvariate(math.log(typical), 1.0)))
            # Few of the big ones per batch, so as many more batches keep the shares.
            if typical == 4 or self.chance.random() < 0.1:
                self.later(self.busy_hour(SUBMITTING_DAYS), "submit", (sort, size))
                left -= size

    def _plan_others(self) -> None:
        """Fifty people who use the machines without asking anybody, day after day."""
        for _ in range(round(50 * self.scale)):
            for _ in range(self.chance.randint(60, 120)):
                hours = min(12.0, self.chance.lognormvariate(math.log(1.0), 1.0))
                self.later(self.busy_hour(7.5), "arrive", hours)

    def _plan_machines(self) -> None:
        """Desks belong to somebody by day, and now and then a machine does not answer."""
        desks = [host for host in self.hosts.values() if host.kind == "desk"]
        for host in desks[: len(desks) // 3]:
            for day in range(5):
                self.later(day * DAY_S + 9 * HOUR_S, "close", host)
                self.later(day * DAY_S + 18 * HOUR_S, "open", host)
        for _ in range(round(40 * self.scale)):
            host = self.chance.choice(list(self.hosts.values()))
            at = self.chance.random() * 7 * DAY_S
            self.later(at, "away", host)
            self.later(at + self.chance.uniform(60, HOUR_S), "back", host)

    # --- the loop ----------------------------------------------------------------------------

    def play(self) -> Outcome:
        sample = 0.0
        wake_at = self._handle()
        while self.coming or wake_at is not None:
            at = self.coming[0][0] if self.coming else math.inf
            self.now = min(at, math.inf if wake_at is None else max(wake_at, self.now))
            while self.coming and self.coming[0][0] <= self.now:
                _, _, what, whom = heappop(self.coming)
                getattr(self, f"_{what}")(whom)
            wake_at = self._handle()
            if self.now >= sample:
                sample = self.now + SAMPLE_S
                self._look()
            if not self.planned and self.now > 7 * DAY_S:
                break
        self.outcome.days = self.now / DAY_S
        return self.outcome

    def _handle(self) -> float | None:
        """Tell the core what happened; what it orders is done, and told it in turn."""
        while True:
            facts, self._facts = self._facts, []
            step = self.core.handle(facts, self.now)
            self.outcome.events += 1
            for order in step.orders:
                if isinstance(order, StartAttempt):
                    self._start(order.job)
            if not self._facts:
                return step.wake_at

    # --- our jobs ----------------------------------------------------------------------------

    def _submit(self, batch: tuple[str, int]) -> None:
        sort, size = batch
        owner = f"owner{self.chance.randrange(OWNERS)}"
        text, _, median, most = SORTS[sort]
        for _ in range(size):
            job_id = len(self.since) + 1
            hours = min(most, self.chance.lognormvariate(math.log(median), 1.0))
            takes, fails = self.chance.uniform(0.6, 1.0), self.chance.random() < 0.02
            self.planned[job_id] = Planned(sort, hours, takes, fails)
            limited = self.chance.random() < 0.5
            spec = JobSpec(
                (sort,),
                cluster="lab",
                owner=owner,
                request=text,
                time_s=2 * hours * HOUR_S if limited else 0.0,
                retries=1,
            )
            self.since[job_id] = self.now
            self.waiting[sort] += 1
            self._facts.append(Submitted(job_id, spec, self.requests[sort]))
        self.outcome.longest_queue = max(self.outcome.longest_queue, self.waiting.total())

    def _start(self, job: Job) -> None:
        assert job.attempt is not None and job.id not in self.running
        planned, attempt = self.planned[job.id], job.attempt
        self.running[job.id] = attempt
        self.waiting[planned.sort] -= 1
        self._wait_over(planned.sort, job.id)
        self.outcome.starts += 1
        touched = self._grant(planned, attempt, 1)
        for name in touched:
            self.hosts[name].check(started=True)
        for rank, slot in enumerate(attempt.placement):
            assert self.hosts[slot.machine].up and not self.hosts[slot.machine].closed
            for gpu in slot.gpus:
                self.hosts[slot.machine].check_gpu(gpu)
            self._facts.append(ProcessStarted(job.id, attempt.number, rank, self.now))
        fails = planned.fails and attempt.number == 1
        self.later(
            self.now + planned.hours * HOUR_S * (0.1 if fails else 1), "end", (job.id, fails)
        )

    def _wait_over(self, sort: str, job_id: int) -> None:
        waited = (self.now - self.since[job_id]) / HOUR_S
        self.outcome.waits[sort] = max(self.outcome.waits.get(sort, 0.0), waited)

    def _end(self, ended: tuple[int, bool]) -> None:
        job_id, fails = ended
        attempt = self.running.pop(job_id)
        planned = self.planned[job_id]
        self._grant(planned, attempt, -1)
        ending = Ending(code=int(fails), started=self.now - planned.hours * HOUR_S, ended=self.now)
        for rank in range(len(attempt.placement)):
            self._facts.append(ProcessEnded(job_id, attempt.number, rank, ending))
        if fails:
            self.since[job_id] = self.now
            self.waiting[planned.sort] += 1
        else:
            del self.planned[job_id]

    def _grant(self, planned: Planned, attempt: Attempt, sign: int) -> set[str]:
        """Enter what a job has into the ledger, or take it out."""
        for slot, need in zip(attempt.placement, self.needs[planned.sort], strict=True):
            host = self.hosts[slot.machine]
            host.granted_cpus += sign * need.cpus
            host.gpu_job_cpus += sign * need.cpus if need.gpus else 0
            host.granted_mb += sign * need.mem_mb
            host.whole += sign * need.exclusive
            for gpu in slot.gpus:
                use = host.uses[gpu]
                use.granted_mb += sign * need.gpu_mem_mb
                use.taken_mb = max(0.0, use.taken_mb + sign * planned.takes * need.gpu_mem_mb)
                use.util += sign * need.gpu_util
                use.users += sign
                use.reserved += sign * need.gpu_reserved
                fill = allowed(need)[host.kind] / len(slot.gpus)
                use.fill = round(use.fill + sign * fill, 9)
        return {slot.machine for slot in attempt.placement}

    # --- the others --------------------------------------------------------------------------

    def _arrive(self, hours: float) -> None:
        """Someone looks for a GPU that has room, or just for a machine, and uses it."""
        host = self.chance.choice(list(self.hosts.values()))
        cpus, mem_mb = self.chance.choice((0.5, 1, 2, 4)), self.chance.choice((512, 2048, 4096))
        if host.foreign_cpus + cpus > host.cpus / 2 or host.foreign_mb + mem_mb > host.mem_mb / 4:
            return
        gpu = self._free_gpu(host)
        gpu_mb = util = 0.0
        if gpu is not None:
            most = int(host.really_free_mb(gpu)) // 512
            gpu_mb = 512 * self.chance.randint(1, max(1, int(most * self.chance.random())))
            util = self.chance.choice((0.1, 0.3, 0.5, 0.9))
        person = (host, gpu, cpus, mem_mb, gpu_mb, util)
        self._use(person, 1)
        self.outcome.foreign += 1
        self.later(self.now + hours * HOUR_S, "leave", person)

    def _free_gpu(self, host: Host) -> int | None:
        """Most take one that nobody uses, some any that has room."""
        anyhow = self.chance.random() < 0.2
        for gpu, use in enumerate(host.uses):
            unused = not use.users and host.foreign_gpus[gpu][1] == 0
            if unused or (anyhow and not use.reserved and host.really_free_mb(gpu) >= 1024):
                return gpu
        return None

    def _leave(self, person: tuple[Any, ...]) -> None:
        self._use(person, -1)

    def _use(self, person: tuple[Any, ...], sign: int) -> None:
        host, gpu, cpus, mem_mb, gpu_mb, util = person
        host.foreign_cpus += sign * cpus
        host.foreign_mb += sign * mem_mb
        if gpu is not None:
            mem, share = host.foreign_gpus[gpu]
            share = max(0.0, round(share + sign * util, 3))
            host.foreign_gpus[gpu] = [mem + sign * gpu_mb, share]
        host.check(started=False)
        self._see(host)

    def _see(self, host: Host) -> None:
        if host.up:
            self._facts.append(MachineSeen(host.seen()))

    def _close(self, host: Host) -> None:
        host.closed = "has quiet hours until 18:00"
        self._see(host)

    def _open(self, host: Host) -> None:
        host.closed = ""
        self._see(host)

    def _away(self, host: Host) -> None:
        host.up = False
        self._facts.append(MachineGone(host.name))

    def _back(self, host: Host) -> None:
        host.up = True
        self._see(host)

    # --- how well it goes --------------------------------------------------------------------

    def _look(self) -> None:
        """Compare what runs with what could at most, if anything waits."""
        self.core.scheduler.check_invariants()
        if not self.waiting.total():
            return
        self.outcome.moments += 1
        everyone = self.sorts(
            Counter(self.planned[job].sort for job in self.running) + self.waiting
        )
        if any(sort.need.gpus for sort in self.sorts(self.waiting)):
            used = sum(use.fill for host in self.hosts.values() for use in host.uses)
            waiting = [sort for sort in self.sorts(self.waiting) if sort.need.gpus]
            bound = gpu_bound(waiting, left_over(self.hosts.values(), waiting), used)
            repacked = gpu_bound(
                [sort for sort in everyone if sort.need.gpus], *states(self.hosts.values())
            )
            assert used <= bound + 1e-6 and used <= repacked + 1e-6, (used, bound, repacked)
            self.outcome.gpus.count(used, bound)
            self.outcome.repacked.count(used, repacked)
        if any(not sort.need.gpus for sort in self.sorts(self.waiting)):
            used = sum(host.granted_cpus - host.gpu_job_cpus for host in self.hosts.values())
            sorts = [sort for sort in everyone if not sort.need.gpus]
            bound = cpu_bound(sorts, *free_cpus(self.hosts.values()))
            assert used <= bound + 1e-6, (used, bound)
            self.outcome.cpus.count(used, bound)

    def sorts(self, jobs: Counter[str]) -> list[Sort]:
        """Jobs by what each of their processes needs."""
        found: dict[Need, Sort] = {}
        for name, count in jobs.items():
            for need in self.needs[name] if count else ():
                found.setdefault(need, Sort(need, allowed(need))).count += count
        return list(found.values())


def needs_of(request: Request) -> list[Need]:
    return [need for _, _, need in request.processes()]
