"""In a team owners take turns: nobody's thousands of jobs hold up another's first."""

from typing import Any

import pytest

from builders import a_job, a_machine, a_request
from towline.core.scheduling.explain import in_turn
from towline.core.scheduling.fairshare import FairShares
from towline.core.scheduling.scheduler import Placed, Scheduler
from towline.model.request import GpuNeed
from towline.model.team.rules import Rulebook

DAY = 86_400.0


def a_team_scheduler(machines: int = 1, gpus: int = 2, **more: Any) -> Scheduler:
    scheduler = Scheduler()
    scheduler.rules.change(Rulebook())
    for number in range(machines):
        scheduler.see(a_machine(f"n{number}", gpus=gpus, cpus=64, **more))
    return scheduler


def ids(placed: list[Placed]) -> list[int]:
    return [one.id for one in placed]


@pytest.mark.parametrize("wide", [1, 2], ids=["small", "as wide as a machine"])
@pytest.mark.parametrize("asked", [1, 2], ids=["one GPU", "two GPUs"])
@pytest.mark.parametrize("others", [0.0, 500 * DAY], ids=["nobody before", "a third used much"])
def test_five_thousand_jobs_of_one_delay_another_by_one_end(
    wide: int, asked: int, others: float
) -> None:
    scheduler = a_team_scheduler(machines=1)
    # Somebody else's past makes what anna uses seem little.
    scheduler.shares.start("cem", others / DAY, 0.0)
    scheduler.shares.stop("cem", others / DAY, DAY)
    now = 3 * DAY
    for number in range(1, 5001):
        needs = (GpuNeed(wide, ""),)
        job = a_job(number, request=a_request(gpus=needs), owner="anna", submitted=DAY + number)
        scheduler.submit(job)
    running = ids(scheduler.decide(now))
    for _ in range(3):
        now += 600
        scheduler.release(running.pop(0), now)
        running += ids(scheduler.decide(now))
    needs = (GpuNeed(asked, ""),)
    scheduler.submit(a_job(9000, request=a_request(gpus=needs), owner="ben", submitted=now))
    running += ids(scheduler.decide(now))
    ends = 0
    while 9000 not in running:
        now += 600
        scheduler.release(running.pop(0), now)
        ends += 1
        running += ids(scheduler.decide(now))
    # Two GPUs that two jobs have are free when both have ended: nobody takes the first meanwhile.
    assert ends == (2 if asked > wide else 1)
    scheduler.check_invariants()


def test_work_without_gpus_starts_though_gpu_jobs_wait_before_it() -> None:
    scheduler = a_team_scheduler(gpus=2)
    for number in range(1, 300):
        needs = (GpuNeed(2, ""),)
        request = a_request(gpus=needs, cpus=0)
        scheduler.submit(a_job(number, request=request, owner=f"user{number}"))
    scheduler.submit(a_job(500, owner="ben"))
    assert 500 in ids(scheduler.decide(now=1000))


def test_priorities_order_the_own_jobs_only() -> None:
    scheduler = a_team_scheduler(gpus=1)
    scheduler.submit(a_job(1, gpus=1, owner="cem"))
    scheduler.decide(now=1)
    scheduler.submit(a_job(2, gpus=1, owner="anna"))
    scheduler.submit(a_job(3, gpus=1, owner="anna", priority=5))
    scheduler.submit(a_job(4, gpus=1, owner="ben", priority=-5))
    scheduler.submit(a_job(5, gpus=1, owner="cem", priority=1000))
    assert in_turn(scheduler, "lab", 10) == [3, 2, 4, 5]
    started, now = [1], 10.0
    for _ in range(4):
        now += 100
        scheduler.release(started[-1], now)
        started += ids(scheduler.decide(now))
    assert started[1:] == [3, 4, 2, 5]


def test_two_who_always_have_more_to_do_get_about_the_same() -> None:
    scheduler = a_team_scheduler(gpus=4)
    for number in range(1, 2001):
        scheduler.submit(a_job(number, gpus=1, owner="anna", submitted=0.0))
    for number in range(2001, 4001):
        scheduler.submit(a_job(number, gpus=1, owner="ben", submitted=7200.0))
    running, now, of_ben = ids(scheduler.decide(10_000.0)), 10_000.0, 0
    for _ in range(400):
        now += 300
        scheduler.release(running.pop(0), now)
        started = ids(scheduler.decide(now))
        of_ben += sum(1 for job in started if job > 2000)
        running += started
    assert 180 <= of_ben <= 220


def test_a_big_job_is_not_starved_by_small_ones_of_the_same_and_of_others() -> None:
    scheduler = a_team_scheduler(gpus=4)
    now, running = 1000.0, []
    for number in range(1, 401):
        owner = ("anna", "ben")[number % 2]
        scheduler.submit(a_job(number, gpus=1, owner=owner, submitted=now))
    running += ids(scheduler.decide(now))
    needs = (GpuNeed(4, ""),)
    scheduler.submit(a_job(900, request=a_request(gpus=needs), owner="cem", submitted=now + 1))
    running += ids(scheduler.decide(now + 1))
    for _ in range(4):
        assert 900 not in running
        now += 60
        scheduler.release(running.pop(0), now)
        running += ids(scheduler.decide(now))
    assert running == [900]


def test_what_was_used_is_the_same_after_a_restart() -> None:
    first, second = FairShares(), FairShares()
    first.start("anna", 8.0, 1000.0)
    first.start("ben", 2.0, 2000.0)
    first.stop("ben", 2.0, 5000.0)
    first.start("ben", 4.0, 6000.0)
    kept = first.changed()
    assert first.changed() == [] and {share.owner for share in kept} == {"anna", "ben"}
    second.recall(kept)
    # What ran then and is found again counts from where it was written down.
    second.start("anna", 8.0, 1000.0)
    second.start("ben", 4.0, 6000.0)
    for owner in ("anna", "ben", "nobody"):
        before, after = first.penalty_s(owner, 9000.0), second.penalty_s(owner, 9000.0)
        assert after == pytest.approx(before, rel=1e-6)
