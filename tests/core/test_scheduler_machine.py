"""Random events: whatever happens, nothing is over-allocated, lost, or placed twice."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from builders import a_gpu, a_machine
from towline.core.scheduling.obstacles import OverLimit
from towline.core.scheduling.reservations import Reservations
from towline.core.scheduling.scheduler import Scheduler, Waiting
from towline.engine.obstacle_words import obstacle_words, planned, waiting_text
from towline.model.machine import Aside, Machine, Slot
from towline.model.request import GpuNeed, Group, Need, Request
from towline.model.team.rules import Rulebook, UseLimits

OWNERS = ("anna", "ben", "cem")
CLUSTERS = ("lab", "desk")
NAMES = ("m1", "m2", "m3", "m4", "m5")
GPU_NAMES = ("", "gpu", "gtx1070", "gtx 1060", "gtx", "rtx3090", "fast")
MODELS = (("GeForce GTX 1070", 8192), ("GeForce GTX 1060", 6144), ("RTX 3090", 24576))

gpu_needs = st.builds(GpuNeed, count=st.integers(1, 2), name=st.sampled_from(GPU_NAMES))
needs = st.one_of(
    st.just(Need()),
    st.builds(
        Need,
        cpus=st.sampled_from((0.1, 0.5, 1.0, 2.0, 5.5)),
        mem_mb=st.sampled_from((0, 100, 2000, 9000)),
        gpus=st.lists(gpu_needs, max_size=2).map(tuple),
        exclusive=st.sampled_from((False, False, False, True)),
    ),
    st.builds(
        Need,
        gpus=st.just((GpuNeed(1, ""),)),
        gpu_mem_mb=st.sampled_from((0, 1000, 5000)),
        gpu_util=st.sampled_from((0.0, 0.3, 0.7)),
        gpu_reserved=st.booleans(),
    ),
)
requests = st.builds(
    Request,
    st.lists(st.builds(Group, st.integers(1, 3), needs), min_size=1, max_size=2).map(tuple),
)


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    models = draw(st.lists(st.sampled_from(MODELS), max_size=4))
    busy = st.sampled_from(((0, 0.0), (0, 0.0), (200, 0.05), (3000, 0.5)))
    uses = [draw(busy) for _ in models]
    return a_machine(
        draw(st.sampled_from(NAMES)),
        gpus=tuple(
            a_gpu(
                n,
                model,
                mem_mb,
                foreign_mem_mb=used,
                foreign_util=util,
                groups=draw(st.sampled_from(((), (), ("staff",), ("staff", "guests")))),
            )
            for n, ((model, mem_mb), (used, util)) in enumerate(zip(models, uses, strict=True))
        ),
        cpus=draw(st.sampled_from((1.0, 4.0, 8.0))),
        mem_mb=draw(st.sampled_from((4096, 16384))),
        foreign_cpus=draw(st.sampled_from((0.0, 0.0, 0.2, 3.0))),
        foreign_mem_mb=draw(st.sampled_from((0, 0, 50, 3000))),
        clusters=draw(st.sampled_from((("lab",), ("lab",), ("lab", "desk"), ("desk",)))),
        owners=draw(st.sampled_from(((), (), ("anna",)))),
        groups=draw(st.sampled_from(((), (), (), ("staff",)))),
        exact_names=draw(st.booleans()),
        aliases=draw(st.sampled_from(((), (("fast", "RTX 3090"),)))),
        stagger_s=draw(st.sampled_from((0.0, 0.0, 0.5, 100.0))),
        closed=draw(st.sampled_from(("", "", "", "", "has quiet hours until 18:00"))),
    )


groups = st.sampled_from((frozenset[str](), frozenset({"staff"}), frozenset({"staff", "guests"})))
limits = st.sampled_from(
    (UseLimits(), UseLimits(), UseLimits(gpus=2), UseLimits(jobs=1), UseLimits(2, 3))
)


@st.composite
def teams(draw: st.DrawFn) -> Rulebook:
    return Rulebook(
        {owner: draw(groups) for owner in OWNERS},
        {owner: found for owner in OWNERS if (found := draw(limits))},
        {group: found for group in ("staff", "guests") if (found := draw(limits))},
    )


class Keeping(Reservations):
    """Keeps machines for several jobs, as it does in a cluster of many machines."""

    kept = 1

    def most(self, cluster: str) -> int:
        return self.kept


class SchedulerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.scheduler = Scheduler()
        self.reservations = self.scheduler.reservations = Keeping(self.scheduler.machines)
        self.now = 0.0
        self.waiting: dict[int, Waiting] = {}
        self.running: dict[int, Waiting] = {}
        self.seen: dict[str, Machine] = {}
        self.down: set[str] = set()
        self.last_id = 0
        self.team = Rulebook()

    @rule(team=teams())
    def change_rules(self, team: Rulebook) -> None:
        self.team = team
        self.scheduler.rules.change(team)

    @rule(
        request=requests,
        owner=st.sampled_from(OWNERS),
        cluster=st.sampled_from(CLUSTERS),
        priority=st.sampled_from((0, 0, 1)),
        time_s=st.sampled_from((0.0, 0.0, 5.0, 100.0)),
        avoid=st.sampled_from(((), (), ("m1",))),
        copies=st.integers(1, 3),
    )
    def submit(self, copies: int, **job: Any) -> None:
        for _ in range(copies):
            self.last_id += 1
            waiting = Waiting(id=self.last_id, submitted=self.now, **job)  # type: ignore[arg-type]
            self.waiting[waiting.id] = waiting
            self.scheduler.submit(waiting)
            self.scheduler.submit(waiting)

    @rule(machine=machines())
    def see(self, machine: Machine) -> None:
        self.seen[machine.name] = machine
        self.down.discard(machine.name)
        self.scheduler.see(machine)

    @initialize(heads=st.integers(1, 3))
    def keep(self, heads: int) -> None:
        self.reservations.kept = heads

    @rule(
        name=st.sampled_from(NAMES), why=st.sampled_from((None, Aside(3), Aside(3, is_tried=True)))
    )
    def set_aside(self, name: str, why: Aside | None) -> None:
        self.scheduler.set_aside(name, why)

    @rule(name=st.sampled_from(NAMES), away_s=st.sampled_from((0.0, 0.02, 0.2)))
    def reached(self, name: str, away_s: float) -> None:
        self.scheduler.series.reached(name, away_s)

    @rule(comes_back=st.booleans())
    def recall(self, comes_back: bool) -> None:
        for job_id in self.scheduler.recall(self.now):
            assert self.scheduler.series.is_ahead(job_id)
            if comes_back:
                self.waiting[job_id] = self.running.pop(job_id)
                self.scheduler.release(job_id, self.now)
                self.scheduler.submit(self.waiting[job_id])

    @rule(name=st.sampled_from(NAMES))
    def gone(self, name: str) -> None:
        self.down.add(name)
        self.scheduler.gone(name)

    @rule(name=st.sampled_from(NAMES))
    def remove(self, name: str) -> None:
        self.seen.pop(name, None)
        self.scheduler.remove(name)

    @rule(passes=st.sampled_from((0.0, 0.01, 1.0, 50.0)), most=st.sampled_from((1, 2, 1000)))
    def decide(self, passes: float, most: int) -> None:
        self.now += passes
        placed = self.scheduler.decide(self.now, most)
        assert sum(1 for start in placed if not start.places) <= most
        for start in placed:
            job = self.waiting.pop(start.id)
            self.running[start.id] = job
            assert len(start.placement) == job.request.process_count
            for slot, (_, _, need) in zip(start.placement, job.request.processes(), strict=True):
                machine = self.seen[slot.machine]
                assert slot.machine not in self.down and not machine.closed
                assert job.cluster in machine.clusters
                assert not machine.owners or job.owner in machine.owners
                mine = self.team.groups_of(job.owner)
                assert need.gpus or not machine.groups or mine & set(machine.groups)
                for gpu in (gpu for gpu in machine.gpus if gpu.index in slot.gpus):
                    assert not gpu.groups or mine & set(gpu.groups)
                assert len(set(slot.gpus)) == len(slot.gpus) == need.gpu_count

    @precondition(lambda self: self.running)
    @rule(data=st.data(), again=st.booleans())
    def release(self, data: st.DataObject, again: bool) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.running)))
        job = self.running.pop(job_id)
        self.scheduler.release(job_id, self.now)
        self.scheduler.release(job_id, self.now)
        if again:
            self.waiting[job_id] = job
            self.scheduler.submit(job)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), again=st.booleans())
    def withdraw(self, data: st.DataObject, again: bool) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.waiting)))
        assert self.scheduler.withdraw(job_id)
        assert not self.scheduler.withdraw(job_id)
        if again:
            self.scheduler.submit(self.waiting[job_id])
        else:
            del self.waiting[job_id]

    @rule(request=requests, name=st.sampled_from(NAMES), gpu=st.integers(0, 5))
    def adopt(self, request: Request, name: str, gpu: int) -> None:
        self.last_id += 1
        job = Waiting(id=self.last_id, cluster="lab", request=request, owner="ben")
        processes = request.processes()
        placement = tuple(Slot(name, (gpu,) if need.gpus else ()) for _, _, need in processes)
        self.scheduler.adopt(job, placement, self.now)
        self.running[job.id] = job

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def explain(self, data: st.DataObject) -> None:
        job = self.waiting[data.draw(st.sampled_from(sorted(self.waiting)))]
        explanation = self.scheduler.explain(job.id, self.now)
        if isinstance(explanation, OverLimit):
            assert waiting_text(explanation)
            return
        assert 1 <= explanation.position <= explanation.waiting
        assert explanation.waiting == self.scheduler.waiting_in(job.cluster)
        assert all(one.machines and obstacle_words(one.obstacles) for one in explanation.reasons)
        assert waiting_text(explanation)
        self.scheduler.plan(job, self.now)

    @rule()
    def everything_ends_and_what_fits_starts(self) -> None:
        """Nothing that fits on an idle cluster stays waiting."""
        for job_id in list(self.running):
            del self.running[job_id]
            self.scheduler.release(job_id, self.now)
        while self.scheduler.running_count == 0 and self.scheduler.waiting_count:
            started = self.scheduler.decide(self.now)
            for start in started:
                del self.waiting[start.id]
                self.scheduler.release(start.id, self.now)
            if not started:
                break
        for job in self.waiting.values():
            placement, _ = planned(self.scheduler.plan(job, self.now))
            assert placement is None, f"{job} fits and waits"

    @invariant()
    def all_is_consistent(self) -> None:
        self.scheduler.check_invariants()
        assert self.scheduler.waiting_count == len(self.waiting)
        assert self.scheduler.running_count == len(self.running)


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
