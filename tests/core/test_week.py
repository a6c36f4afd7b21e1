"""A simulated week: nothing is oversubscribed, machines are used well, and everybody's turn comes.

`week.py` plays it, `packing_bound.py` says what the use of the machines is held against.
"""

from typing import Any

import pytest

from builders import a_job, a_machine
from core.week import Week
from core.week_lab import SORTS
from towline.core.scheduling.scheduler import Scheduler, Waiting

HOUR_S = 3600.0


# --- the week ---------------------------------------------------------------------------------


def test_a_small_week() -> None:
    """A tenth of the machines and a fiftieth of the jobs, for the inner loop."""
    week = Week(scale=0.1, jobs=2_000, seed=3)
    outcome = week.play()
    print(outcome)
    assert not week.planned and not week.running
    assert outcome.starts > outcome.jobs
    assert outcome.moments > 30 and outcome.gpus.share > 0.9


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_week_of_200_machines_50_other_users_and_100_000_jobs() -> None:
    """Memory of GPUs is checked at every event, by the simulation (`Host.check`)."""
    week = Week()
    assert len(week.hosts) == 200
    outcome = week.play()
    print(outcome)
    assert not week.planned and not week.running, "every job has ended"
    assert outcome.starts > outcome.jobs == 100_000 and outcome.foreign > 4_000
    assert outcome.moments > 200, "work must wait, or nothing is shown"
    assert outcome.gpus.share >= 0.98 and outcome.gpus.worst >= 0.95
    assert outcome.repacked.share >= 0.95 and outcome.cpus.share >= 0.95
    assert outcome.waits.keys() == SORTS.keys() and max(outcome.waits.values()) < 72


# --- nobody waits for ever --------------------------------------------------------------------


class Stream:
    """Small jobs without end, each an hour long, on machines that they could fill for ever."""

    def __init__(self, machines: int) -> None:
        self.scheduler = Scheduler()
        for number in range(machines):
            self.scheduler.see(a_machine(f"m{number}", gpus=8, cpus=64.0))
        self.now, self.last, self.ends = 0.0, 0, dict[int, float]()
        self.started: dict[int, float] = {}

    def small(self, count: int) -> None:
        for _ in range(count):
            self.last += 1
            self.scheduler.submit(a_job(self.last, gpus=1, submitted=self.now))

    def big(self, job: Waiting) -> None:
        self.scheduler.submit(job)

    def minute(self) -> None:
        """Whatever is over ends, as many small jobs come, and whoever can starts."""
        self.now += 60.0
        for job in [job for job, end in self.ends.items() if end <= self.now]:
            del self.ends[job]
            self.scheduler.release(job, self.now)
        self.small(max(0, 50 - self.scheduler.waiting_count))
        for placed in self.scheduler.decide(self.now):
            # Not all of the same length, or they would all end together.
            self.ends[placed.id] = self.now + HOUR_S * (0.5 + placed.id % 8 / 14)
            self.started[placed.id] = self.now


@pytest.mark.parametrize("machines", [4, 60])
def test_big_jobs_get_their_turn_in_a_stream_of_small_ones(machines: int) -> None:
    stream = Stream(machines)
    while stream.now < 2 * HOUR_S:
        stream.minute()
    asked = stream.now
    big: dict[int, dict[str, Any]] = {
        900_001: {"gpus": 8},
        900_002: {"cpus": 8.0, "exclusive": True},
        900_003: {"processes": 3, "gpus": 8},
        900_004: {"processes": 12, "gpus": 2},
    }
    for job, need in big.items():
        stream.big(a_job(job, submitted=asked, owner="bob", **need))
    while not big.keys() <= stream.started.keys():
        stream.minute()
        assert stream.now < asked + 8 * HOUR_S, f"only {stream.started.keys() & big.keys()} started"
    stream.scheduler.check_invariants()
