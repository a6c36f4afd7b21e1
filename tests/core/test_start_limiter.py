"""Starts are paced: many long jobs are spread, short ones are not slowed down."""

import pytest

from builders import a_job, a_machine
from towline.core.scheduling.scheduler import Scheduler
from towline.core.scheduling.start_tokens import AT_ONCE, StartTokens
from towline.engine.obstacle_words import by_machines

MANY = 100


def a_scheduler(jobs: int, stagger_s: float = 1.0, cpus: float = 256.0) -> Scheduler:
    scheduler = Scheduler()
    scheduler.see(a_machine("m1", cpus=cpus, stagger_s=stagger_s))
    for number in range(1, jobs + 1):
        scheduler.submit(a_job(number))
    return scheduler


def starts_at(scheduler: Scheduler, now: float) -> int:
    found = len(scheduler.decide(now))
    scheduler.check_invariants()
    return found


def test_without_a_stagger_all_start_at_once() -> None:
    scheduler = a_scheduler(MANY, stagger_s=0.0)
    assert starts_at(scheduler, 0) == MANY
    assert scheduler.wake_at(100) is None


def test_long_jobs_start_a_few_at_once_and_then_one_by_one() -> None:
    scheduler = a_scheduler(MANY)
    assert starts_at(scheduler, 100) == AT_ONCE
    assert scheduler.wake_at(100) == 101
    assert [starts_at(scheduler, 100 + step / 2) for step in range(1, 7)] == [0, 1, 0, 1, 0, 1]


def test_asking_when_told_to_is_enough() -> None:
    """Whoever comes back at `wake_at` starts all of them, at the pace."""
    scheduler, now, started = a_scheduler(MANY, stagger_s=0.3), 5.0, 0
    for _ in range(2 * MANY):
        started += starts_at(scheduler, now)
        if (wake_at := scheduler.wake_at(now)) is None:
            break
        assert wake_at > now
        now = wake_at
    assert started == MANY
    assert abs(now - 5.0 - 0.3 * (MANY - AT_ONCE)) < 1


def test_the_job_that_comes_in_place_of_one_that_ended_does_not_wait() -> None:
    scheduler = a_scheduler(MANY, stagger_s=1000.0)
    assert starts_at(scheduler, 0) == AT_ONCE
    for job in range(1, 30):
        scheduler.release(job, 100.0 + 10 * job, ran_s=5000.0)
        assert starts_at(scheduler, 100.0 + 10 * job) == 1


def test_many_that_end_together_are_not_followed_by_as_many_at_once() -> None:
    scheduler = a_scheduler(2 * MANY)
    for second in range(MANY):
        starts_at(scheduler, second)
    running = list(scheduler.running)
    assert len(running) > MANY / 2
    for job in running:
        scheduler.release(job, 5000.0)
    assert starts_at(scheduler, 5000.0) == AT_ONCE


def test_short_jobs_soon_fill_the_machine() -> None:
    """The starts in hand double as fast as short jobs end."""
    scheduler = a_scheduler(2000, stagger_s=1.0, cpus=64.0)
    now, rounds, running = 0.0, 0, 0
    while running < 96:
        running = starts_at(scheduler, now)
        rounds += 1
        assert rounds < 8
        now += 0.01
        for job in list(scheduler.running):
            scheduler.release(job, now)


@pytest.mark.slow
def test_ten_thousand_short_jobs_take_no_longer_than_without_a_pace() -> None:
    def rounds(stagger_s: float) -> int:
        scheduler, now, found = a_scheduler(10_000, stagger_s, cpus=8.0), 0.0, 0
        while scheduler.waiting_count:
            scheduler.decide(now)
            now, found = now + 0.005, found + 1
            for job in list(scheduler.running):
                scheduler.release(job, now)
        return found

    assert rounds(1.0) <= rounds(0.0) + 5


def test_failures_are_not_followed_by_ever_more_starts() -> None:
    scheduler, now = a_scheduler(MANY), 0.0
    for _ in range(5):
        assert starts_at(scheduler, now) == AT_ONCE
        now += 0.01
        for job in list(scheduler.running):
            scheduler.release(job, now, 0.01, well=False)


def test_what_short_jobs_earned_is_forgotten_after_a_pause() -> None:
    pace = StartTokens(1.0)
    for _ in range(200):
        while pace.ready(1.0) and pace.starts > -50:
            pace.start(1.0)
        pace.end(1.0, 0.01, True)
    for _ in range(100):
        pace.end(1.0, 0.01, True)
    assert pace.starts > AT_ONCE and pace.ready(5.0)
    assert pace.starts > AT_ONCE
    assert pace.ready(7.0) and pace.starts == AT_ONCE


def test_a_clock_that_goes_back_does_not_stop_starts() -> None:
    scheduler = a_scheduler(MANY)
    assert starts_at(scheduler, 10_000.0) == AT_ONCE
    assert starts_at(scheduler, 0.0) == 0
    assert starts_at(scheduler, 10_001.0) == 1


def test_the_processes_of_one_job_start_together() -> None:
    scheduler = a_scheduler(0)
    scheduler.submit(a_job(1, processes=20))
    scheduler.submit(a_job(2, processes=20))
    assert starts_at(scheduler, 0) == 2


def test_other_machines_are_not_slowed_down() -> None:
    scheduler = a_scheduler(30)
    scheduler.see(a_machine("m2", cpus=64.0))
    assert starts_at(scheduler, 0) == 30


def test_a_paced_job_is_told_so() -> None:
    scheduler = a_scheduler(6)
    scheduler.decide(0)
    explanation = scheduler.explain(6, 0)
    assert by_machines(explanation.reasons) == [
        "m1: starts are paced, one every 1 s (the setting `stagger`)"
    ]


def test_a_changed_stagger_counts_from_then_on() -> None:
    scheduler = a_scheduler(MANY, stagger_s=1000.0)
    assert starts_at(scheduler, 0) == AT_ONCE
    scheduler.see(a_machine("m1", cpus=256.0, stagger_s=0.5))
    scheduler.release(1, 1.0, ran_s=100.0)
    assert starts_at(scheduler, 1.0) == 1 + 2


def test_a_machine_kept_for_a_big_job_is_kept_while_its_starts_are_paced() -> None:
    scheduler = a_scheduler(0, stagger_s=10.0, cpus=8.0)
    for number in range(1, 5):
        scheduler.submit(a_job(number, cpus=3.0))
    scheduler.submit(a_job(5, cpus=12.0, submitted=4.5))
    assert starts_at(scheduler, 5) == 4
    for number in range(6, 40):
        scheduler.submit(a_job(number, cpus=1.0))
    for number in range(1, 5):
        assert starts_at(scheduler, 6) == 0
        scheduler.release(number, 6.0)
    assert [placed.id for placed in scheduler.decide(6.5)] == [5]
