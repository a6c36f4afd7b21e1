"""GPUs and machines that jobs of other Engines were granted are not given away."""

from typing import Any

import pytest

from builders import a_gpu, a_job, a_machine
from towline.core.scheduling import invariants
from towline.core.scheduling.scheduler import Scheduler
from towline.engine.obstacle_words import obstacle_words
from towline.model.machine import Machine


def placed(machine: Machine, **need: Any) -> bool:
    scheduler = Scheduler()
    scheduler.see(machine)
    scheduler.submit(a_job(1, **need))  # type: ignore[arg-type]
    done = scheduler.decide(now=1)
    invariants.check(scheduler)
    return bool(done)


def claimed(**gpu: Any) -> Machine:
    return a_machine(gpus=(a_gpu(0, claimed_by="ann", **gpu),), claimed_by="ann")


WHOLE: dict[str, Any] = {"gpus": 1}
RESERVED = {"gpus": 1, "gpu_mem_mb": 1000, "gpu_util": 0.1}
SHARED = {**RESERVED, "gpu_reserved": False}
SLIGHT = {"gpus": 1, "gpu_util": 0.1, "gpu_reserved": False}


@pytest.mark.parametrize("need", [WHOLE, RESERVED, SHARED, SLIGHT])
def test_a_gpu_that_another_reserved_is_given_to_nobody(need: dict[str, Any]) -> None:
    assert not placed(claimed(reserved=True), **need)


@pytest.mark.parametrize(
    ("need", "fits"), [(WHOLE, False), (RESERVED, False), (SHARED, True), (SLIGHT, True)]
)
def test_a_gpu_that_another_shares_is_only_given_to_who_shares(
    need: dict[str, Any], fits: bool
) -> None:
    assert placed(claimed(foreign_mem_mb=3000), **need) is fits
    assert not placed(claimed(foreign_mem_mb=8000), **SHARED)


def test_the_whole_machine_is_not_given_out_while_others_run_jobs_there() -> None:
    assert not placed(a_machine(claimed_by="ann"), exclusive=True)
    assert placed(a_machine(claimed_by="ann"))


def test_a_claim_that_ends_lets_the_next_job_start() -> None:
    for busy, need in ((claimed(reserved=True), WHOLE), (claimed(), RESERVED)):
        scheduler = Scheduler()
        scheduler.see(busy)
        scheduler.submit(a_job(1, **need))  # type: ignore[arg-type]
        assert not scheduler.decide(now=1)
        scheduler.see(a_machine(gpus=1))
        assert scheduler.decide(now=2)
    scheduler = Scheduler()
    scheduler.see(a_machine(claimed_by="ann"))
    scheduler.submit(a_job(1, exclusive=True))
    assert not scheduler.decide(now=1)
    scheduler.see(a_machine())
    assert scheduler.decide(now=2)


def test_the_reason_names_whose_jobs_have_it() -> None:
    scheduler = Scheduler()
    scheduler.see(claimed(reserved=True))
    scheduler.submit(a_job(1, **WHOLE))  # type: ignore[arg-type]
    scheduler.submit(a_job(2, exclusive=True))
    scheduler.decide(now=1)
    reasons = [obstacle_words(scheduler.explain(job, now=1).reasons[0].obstacles) for job in (1, 2)]
    assert reasons == [
        "1 GPU, 1 is used by jobs of ann",
        "the whole machine is asked for, and jobs of ann run there",
    ]


def test_a_claim_does_not_make_a_request_impossible() -> None:
    scheduler = Scheduler()
    scheduler.see(claimed(reserved=True, foreign_mem_mb=8192, foreign_util=1.0))
    scheduler.submit(a_job(1, gpus=1, gpu_mem_mb=4000))
    scheduler.decide(now=1)
    assert "used by jobs of ann" in obstacle_words(scheduler.explain(1, now=1).reasons[0].obstacles)
