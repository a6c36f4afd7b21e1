"""How many jobs of a batch the core is given, where their cluster has a queue of its own."""

from towline.core.batches import WINDOW, Progress
from towline.model.batch import Batch
from towline.model.job import JobSpec, Queueing, State


def wanted(max_parallel: int, queue: Queueing | None) -> int:
    base = JobSpec(argv=(), cluster="cedar", owner="me", queue=queue)
    batch = Batch("many", base, 1, 5000, 0.0, max_parallel=max_parallel)
    return Progress(batch, {State.QUEUED: 5000}).wants()


def test_queue_that_limits_how_many_run_gets_a_whole_window() -> None:
    assert wanted(8, Queueing("slurm", at_once=8)) == WINDOW
    assert wanted(0, Queueing("slurm")) == WINDOW


def test_core_itself_limits_how_many_run_elsewhere() -> None:
    assert wanted(8, None) == 8
    assert wanted(8, Queueing("slurm")) == 8
