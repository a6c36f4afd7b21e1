"""Machines far away, simulated: messages take their time, and connections break.

The real core decides, and each machine lets jobs follow one another as the agent does
(`agent/remote/series.py`). What runs where is counted here, not by either of them.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import Any

from builders import a_machine
from towline.agent.remote.jobs.series import SeriesTable
from towline.core.decide import Core
from towline.model.events import (
    Fact,
    FindAttempt,
    MachineAway,
    MachineGone,
    MachineSeen,
    ProcessEnded,
    ProcessStarted,
    RecallAttempt,
    Recovered,
    StartAttempt,
    StopAttempt,
    Submitted,
)
from towline.model.grammar import parse_request
from towline.model.job import Ending, Job, JobSpec, State

Key = tuple[int, int]
#: So much of a CPU may be given out twice.
OVERLOAD = 1.5


@dataclass(eq=False)
class Process:
    """One attempt of a job, as its machine knows it."""

    job: int
    key: Key
    cpus: float
    series: str
    began: float = 0.0
    #: Its batch, of which so many may run at a time.
    batch: str = ""
    at_most: int = 0


@dataclass
class Far:
    """One machine, with an agent that forgets what it is told when the connection breaks."""

    name: str
    away_s: float
    cpus: float
    running: dict[Key, Process] = field(default_factory=dict)
    waiting: dict[Key, Process] = field(default_factory=dict)
    endings: dict[Key, Ending] = field(default_factory=dict)
    connection: int = 0
    up: bool = True

    def __post_init__(self) -> None:
        self.series = SeriesTable(lambda process: self.waiting.get(process.key) is process)


class World:
    """`length` says how long a job lasts."""

    def __init__(self, length: Callable[[int], float], *machines: Far) -> None:
        self.core = Core()
        self.length = length
        self.now = 1000.0
        self.machines = {machine.name: machine for machine in machines}
        #: Where each job is wanted: the driver's table.
        self.wanted: dict[int, Job] = {}
        self.ended: dict[int, Job] = {}
        #: How often each job began, and the machine and time of its end.
        self.runs: Counter[int] = Counter()
        self.ends: dict[int, tuple[str, float]] = {}
        self.order: list[int] = []
        self.recalled: set[int] = set()
        self.told: list[tuple[int, str]] = []
        #: Of each machine and batch.
        self.most_running: Counter[str] = Counter()
        #: How often the Engine was started anew.
        self._life = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._last_id = 0
        for machine in machines:
            self.tell(MachineAway(machine.name, machine.away_s), self._seen(machine))

    def _seen(self, machine: Far) -> MachineSeen:
        return MachineSeen(a_machine(machine.name, cpus=machine.cpus))

    # --- what people do ----------------------------------------------------------------------

    def submit(self, count: int, cpus: float = 1.0, priority: int = 0, **more: Any) -> list[int]:
        ids = [self._last_id + 1 + n for n in range(count)]
        self._last_id += count
        request = f"[cpus={cpus}]"
        spec = JobSpec(("x",), "lab", "anna", request, priority=priority, **more)  # type: ignore[arg-type]
        self.tell(*(Submitted(job, spec, parse_request(request)) for job in ids))
        return ids

    def at(self, seconds: float, do: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._events, (self.now + seconds, self._count, do))

    def run(self, until: float | None = None) -> None:
        """Until nothing happens any more, or for so many seconds."""
        limit = None if until is None else self.now + until
        while self._events and (limit is None or self._events[0][0] <= limit):
            self.now, _, do = heappop(self._events)
            do()
        self.now = limit or self.now

    # --- the Engine --------------------------------------------------------------------------

    def tell(self, *facts: Fact) -> None:
        step = self.core.handle(facts, self.now)
        assert not step.failures, step.failures
        self.core.scheduler.check_invariants()
        self.told += [(told.job.id, told.kind) for told in step.told]
        for job in step.changed.values():
            if job.state.final:
                self.ended[job.id] = job
        for order in step.orders:
            if isinstance(order, FindAttempt):
                self.wanted[order.job.id] = order.job
            elif isinstance(order, StartAttempt):
                self.wanted[order.job.id] = order.job
                self._send(order.job, self._start)
            elif isinstance(order, RecallAttempt):
                self.recalled.add(order.job.id)
                self._send(order.job, self._void)
            elif isinstance(order, StopAttempt):
                self._send(order.job, self._void)
        if step.wake_at is not None:
            life = self._life
            self.at(max(0.0, step.wake_at - self.now), lambda: self._wake(life))

    def _wake(self, life: int) -> None:
        if life == self._life:
            self.tell()

    def _send(self, job: Job, do: Callable[[Far, Job], None]) -> None:
        assert job.attempt is not None
        machine = self.machines[job.attempt.placement[0].machine]
        connection = machine.connection

        def arrive() -> None:
            if machine.connection == connection:
                do(machine, job)

        self.at(machine.away_s / 2, arrive)

    def _report(self, machine: Far, fact: ProcessEnded | ProcessStarted) -> None:
        connection = machine.connection

        def arrive() -> None:
            if machine.connection == connection:
                if isinstance(fact, ProcessEnded):
                    self.wanted.pop(fact.job, None)
                self.tell(fact)

        self.at(machine.away_s / 2, arrive)

    # --- the machines ------------------------------------------------------------------------

    def _start(self, machine: Far, job: Job) -> None:
        attempt = job.attempt
        assert attempt is not None
        key = job.id, attempt.number
        if key in machine.endings or key in machine.running or key in machine.waiting:
            return
        cpus = parse_request(job.spec.request).processes()[0][2].cpus
        of = {"batch": job.spec.batch, "at_most": job.spec.at_most}
        process = machine.waiting[key] = Process(job.id, key, cpus, attempt.series, **of)
        if attempt.places:
            ready = machine.series.wait(process, attempt.places)
        else:
            machine.series.join(process)
            ready = [process]
        for one in ready:
            self._begin(machine, one)

    def _begin(self, machine: Far, process: Process) -> None:
        machine.running[process.key] = machine.waiting.pop(process.key)
        process.began = self.now
        self.runs[process.job] += 1
        self.order.append(process.job)
        used = sum(one.cpus for one in machine.running.values())
        assert used <= OVERLOAD * machine.cpus, f"{machine.name} runs {sorted(machine.running)}"
        self._count_running(machine.name, list(machine.running.values()))
        if process.at_most:
            everywhere = [one for far in self.machines.values() for one in far.running.values()]
            batch = [one for one in everywhere if one.batch == process.batch]
            assert len(batch) <= process.at_most, f"{process.batch} runs {batch}"
            self._count_running(process.batch, batch)
        self.at(self.length(process.job), lambda: self._end(machine, process))

    def _count_running(self, name: str, those: list[Process]) -> None:
        self.most_running[name] = max(self.most_running[name], len(those))

    def _end(self, machine: Far, process: Process) -> None:
        del machine.running[process.key]
        self.ends[process.job] = machine.name, self.now
        ending = Ending(code=0, started=process.began, ended=self.now)
        self._over(machine, process, ending)

    def _over(self, machine: Far, process: Process, ending: Ending) -> None:
        machine.endings[process.key] = ending
        self._report(machine, ProcessEnded(*process.key, 0, ending))
        for one in machine.series.leave(process):
            self._begin(machine, one)

    def _void(self, machine: Far, job: Job) -> None:
        assert job.attempt is not None
        key = job.id, job.attempt.number
        ending = Ending(cause="void", ended=self.now)
        if key in machine.waiting:
            self._over(machine, machine.waiting.pop(key), ending)
        elif key not in machine.running:
            machine.endings.setdefault(key, ending)
            self._report(machine, ProcessEnded(*key, 0, machine.endings[key]))

    # --- faults ------------------------------------------------------------------------------

    def cut(self, name: str, for_s: float) -> None:
        """The connection breaks: what was on its way is lost, and so is what the agent knew."""
        machine = self.machines[name]
        if machine.up:
            self._hang_up(machine)
            self.tell(MachineGone(name))
            self.at(for_s, lambda: self._greet(machine))

    def _hang_up(self, machine: Far) -> None:
        machine.connection += 1
        machine.up = False
        machine.waiting.clear()
        machine.series = SeriesTable(lambda process: machine.waiting.get(process.key) is process)
        for process in machine.running.values():
            machine.series.join(process)

    def restart(self) -> None:
        """The Engine is killed: the next one knows what was written, and calls the machines."""
        known = self.core.jobs
        self.core, self.wanted = Core(), {}
        self._life += 1
        for machine in self.machines.values():
            self._hang_up(machine)
        self.tell(
            Recovered(tuple((job, parse_request(job.spec.request)) for job in known.values()))
        )
        for machine in self.machines.values():
            self.tell(MachineAway(machine.name, machine.away_s))
            self.at(machine.away_s, lambda machine=machine: self._greet(machine))

    def _greet(self, machine: Far) -> None:
        """As the driver does it: what is wanted is looked for, and the difference mended."""
        if machine.up:
            return
        machine.up = True
        for job in list(self.wanted.values()):
            attempt = job.attempt
            assert attempt is not None
            if attempt.placement[0].machine != machine.name:
                continue
            key = job.id, attempt.number
            if key in machine.endings:
                self._report(machine, ProcessEnded(*key, 0, machine.endings[key]))
            elif key not in machine.running:
                stopped = self.core.jobs[job.id].state is State.STOPPING
                self._send(job, self._void if attempt.places or stopped else self._start)
        self.at(machine.away_s, lambda: self.tell(self._seen(machine)))


def random_lengths(seed: int, *choices: float) -> Callable[[int], float]:
    """A length for each job, always the same."""
    return lambda job: Random(seed * 1_000_003 + job).choice(choices)
