"""How many jobs of a batch the core is given, and how far a batch is said to be."""

import pytest
from msgspec.structs import replace

from towline.core.batches import WINDOW, Progress
from towline.model.batch import Batch
from towline.model.job import Job, JobSpec, Queueing, State


def wanted(max_parallel: int, queue: Queueing | None, at_most: int = 0) -> int:
    base = JobSpec(argv=(), cluster="cedar", owner="me", queue=queue, at_most=at_most)
    batch = Batch("many", base, 1, 5000, 0.0, max_parallel=max_parallel)
    return Progress(batch, {State.QUEUED: 5000}).wants()


def test_queue_that_limits_how_many_run_gets_a_whole_window() -> None:
    assert wanted(8, Queueing("slurm", at_once=8)) == WINDOW
    assert wanted(0, Queueing("slurm")) == WINDOW


def test_scheduler_that_limits_how_many_run_gets_a_whole_window() -> None:
    assert wanted(8, None, at_most=8) == WINDOW


def test_what_nobody_else_limits_is_given_to_the_core_so_many_at_a_time() -> None:
    assert wanted(8, None) == 8
    assert wanted(8, Queueing("slurm")) == 8


def test_the_rate_counts_from_the_first_start_so_that_the_end_is_not_promised_too_early() -> None:
    base = JobSpec(argv=(), cluster="lab", owner="me")
    progress = Progress(Batch("many", base, 1, 24, 0.0), {State.QUEUED: 24})
    jobs = [Job(id=n, spec=base, state=State.QUEUED) for n in range(1, 25)]
    progress.take_in(jobs)
    assert progress.eta_s(100.0) is None
    for job in jobs[:7]:
        progress.follow(replace(job, state=State.RUNNING), 100.0)
    for job in jobs[:7]:
        progress.follow(replace(job, state=State.DONE), 103.0)
    assert progress.rate(103.5) == pytest.approx(7 / 3.5)
    assert progress.eta_s(103.5) == pytest.approx(17 * 3.5 / 7)
