"""How many jobs of a batch the core is given, where their cluster has a queue of its own."""

from towline.core.batches import WINDOW, Progress
from towline.model.batch import Batch
from towline.model.job import JobSpec, Queueing, State


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
