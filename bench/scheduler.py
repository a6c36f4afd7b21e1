"""The scheduler core alone: what a decision costs as the queue grows, on 10,000 machines."""

import argparse
import gc
import random
import time
from dataclasses import dataclass
from math import nan

from towline.core.scheduling.scheduler import Scheduler, Waiting
from towline.model.machine import Gpu, Machine
from towline.model.request import GpuNeed, Group, Need, Request

QUEUED = (1_000, 10_000, 100_000, 1_000_000)
MACHINES = 10_000
DECISIONS = 3_000
WARM_UP = 500
#: Decisions between two looks at the clock, which is slow on some machines.
BATCH = 50
OWNERS = tuple(f"owner{number}" for number in range(8))

MODELS = (
    ("NVIDIA GeForce GTX 1070", 8_192),
    ("NVIDIA GeForce RTX 3090", 24_576),
    ("NVIDIA A100-SXM4-80GB", 81_920),
)


@dataclass(frozen=True)
class Row:
    queued: int
    #: Per job placed, with the end of the jobs that made room.
    decision_us: float
    #: Per job that ended, whatever it made room for.
    turn_us: float
    submit_us: float
    memory_mb: float


def machine(number: int) -> Machine:
    """GPU-less ones, and ones with 2, 4 or 8 GPUs of three models."""
    name = f"machine{number:05}"
    gpu_count = (0, 2, 4, 8)[number % 4]
    model, mem_mb = MODELS[number // 4 % len(MODELS)]
    return Machine(
        name=name,
        cpus=(8.0, 16.0, 32.0, 64.0)[number % 4],
        mem_mb=(32, 64, 128, 512)[number % 4] * 1024,
        gpus=tuple(Gpu(index, model, mem_mb) for index in range(gpu_count)),
        foreign_cpus=number % 7 * 0.5,
        foreign_mem_mb=number % 11 * 512,
        clusters=("pool",),
    )


def shapes() -> list[Request]:
    """42 requests: CPUs only, one and many GPUs, shared GPUs, gangs."""
    found = [
        Need(cpus=cpus, mem_mb=mem_mb) for cpus in (1, 2, 4, 8) for mem_mb in (0, 4_096, 16_384)
    ]
    for name in ("", "gtx1070", "rtx3090", "a100"):
        found += [
            Need(cpus=2 * count, mem_mb=4_096, gpus=(GpuNeed(count, name),)) for count in (1, 2, 4)
        ]
    found += [Need(cpus=8, gpus=(GpuNeed(8, name),)) for name in ("rtx3090", "a100")]
    for mem_mb in (2_000, 3_000, 6_000):
        for util in (0.25, 0.5):
            shared = (GpuNeed(1, ""),)
            found.append(Need(gpus=shared, gpu_mem_mb=mem_mb, gpu_util=util, gpu_reserved=False))
    single = [Request((Group(1, need),)) for need in found]
    gang = Need(cpus=4, gpus=(GpuNeed(2, ""),))
    gangs = [Request((Group(count, gang),)) for count in (2, 3, 4, 8)]
    mixed = [
        Request((Group(1, Need(cpus=2)), Group(count, Need(gpus=(GpuNeed(1, "rtx3090"),)))))
        for count in (1, 2, 4)
    ]
    exclusive = [Request((Group(1, Need(cpus=cpus, exclusive=True)),)) for cpus in (4, 16, 32)]
    return single + gangs + mixed + exclusive


class Trial:
    """One scheduler with its machines full, and a queue behind them."""

    def __init__(self) -> None:
        self.chance = random.Random(1)
        self.scheduler = Scheduler()
        self.shapes = shapes()
        #: Running jobs as (id, shape).
        self.running: list[tuple[int, Request]] = []
        self.shape_of: dict[int, Request] = {}
        self.now = 0.0
        self.submitted = 0
        for number in range(MACHINES):
            self.scheduler.see(machine(number))
        self._fill()

    def _fill(self) -> None:
        """Run jobs until some of every shape wait."""
        hungry = self.shapes
        while hungry:
            for request in hungry * 10:
                job = self.job(request)
                self.shape_of[job.id] = request
                self.scheduler.submit(job)
            while self.decide():
                pass
            full = set(self.shape_of.values())
            hungry = [request for request in hungry if request not in full]

    def job(self, request: Request) -> Waiting:
        chance = self.chance.random
        self.submitted += 1
        return Waiting(
            id=self.submitted,
            cluster="pool",
            request=request,
            owner=OWNERS[int(chance() * len(OWNERS))],
            priority=int(chance() < 0.25),
            submitted=self.now + self.submitted * 1e-3,
            time_s=(0.0, 0.0, 600.0, 3600.0)[int(chance() * 4)],
        )

    def grow(self, count: int) -> float:
        """Submit so many more jobs of all shapes; the seconds it took."""
        took = 0.0
        for start in range(0, count, 1_000):
            jobs = [
                self.job(self.shapes[number % len(self.shapes)])
                for number in range(min(1_000, count - start))
            ]
            self.shape_of.update((job.id, job.request) for job in jobs)
            began = time.process_time()
            for job in jobs:
                self.scheduler.submit(job)
            took += time.process_time() - began
        return took

    def decide(self) -> list[Request]:
        """The shapes of what was placed."""
        placed = self.scheduler.decide(self.now)
        found = [(job.id, self.shape_of.pop(job.id)) for job in placed]
        self.running += found
        return [request for _, request in found]

    def end_one(self) -> list[Request]:
        """Any running job ends; the shapes of those that start in its place."""
        self.now += 0.01
        place = int(self.chance.random() * len(self.running))
        self.running[place], self.running[-1] = self.running[-1], self.running[place]
        self.scheduler.release(self.running.pop()[0], self.now)
        return self.decide()

    def steady(self, count: int) -> tuple[float, int]:
        """Jobs end and others take their places; the seconds it took, and how many started."""
        took, placed = 0.0, 0
        for _ in range(count // BATCH):
            began = time.process_time()
            shapes = [shape for _ in range(BATCH) for shape in self.end_one()]
            took += time.process_time() - began
            placed += len(shapes)
            for request in shapes:
                job = self.job(request)
                self.shape_of[job.id] = request
                self.scheduler.submit(job)
        return took, placed


def resident_mb() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096 / 1e6


def measure(trial: Trial, queued: int) -> Row:
    """Let the queue grow to this length, and measure there."""
    more = max(1, queued - trial.scheduler.waiting_count)
    before = resident_mb()
    spent = trial.grow(more)
    memory_mb = resident_mb() - before
    trial.decide()
    trial.steady(WARM_UP)
    gc.collect()
    took, placed = trial.steady(DECISIONS)
    return Row(
        queued=trial.scheduler.waiting_count,
        decision_us=1e6 * took / placed,
        turn_us=1e6 * took / DECISIONS,
        submit_us=1e6 * spent / more if more >= 1_000 else nan,
        memory_mb=memory_mb,
    )


def main(queued: tuple[int, ...] = QUEUED) -> list[Row]:
    trial = Trial()
    print(f"{MACHINES:,} machines, {len(trial.running):,} running jobs, {len(trial.shapes)} shapes")
    print(f"{'queued':>10} {'µs/placed':>10} {'µs/ended':>10} {'µs/submit':>10} {'+MB':>8}")
    rows = []
    for count in queued:
        row = measure(trial, count)
        rows.append(row)
        print(
            f"{row.queued:>10,} {row.decision_us:>10.1f} {row.turn_us:>10.1f}"
            f" {row.submit_us:>10.1f} {row.memory_mb:>8.1f}",
            flush=True,
        )
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("queued", nargs="*", type=int, default=list(QUEUED))
    main(tuple(parser.parse_args().queued))
