"""Which machines are kept for a big job, on which GPUs, and who may use them until then."""

from builders import a_job, a_machine, at
from towline.core.scheduling.scheduler import Scheduler


def a_cluster(machines: int, *jobs: int, time_s: float = 0.0) -> Scheduler:
    """Machines of four GPUs, with jobs that have so many GPUs; the first job is number 1."""
    scheduler = Scheduler()
    for number in range(machines):
        scheduler.see(a_machine(f"m{number}", gpus=4, cpus=64.0))
    for number, gpus in enumerate(jobs, 1):
        scheduler.submit(a_job(number, gpus=gpus, time_s=time_s))
        assert scheduler.decide(number)
    return scheduler


def kept(scheduler: Scheduler) -> list[str]:
    return [host.name for head in scheduler.reservations.heads["lab"] for host in head.hosts()]


def where(scheduler: Scheduler, job: int) -> str:
    return scheduler.running[job].placement[0].machine


def test_a_machine_with_one_big_job_is_kept_rather_than_one_with_many_small_ones() -> None:
    scheduler = a_cluster(2, 4, 1, 1, 1)
    assert where(scheduler, 1) != where(scheduler, 2)
    scheduler.submit(a_job(10, gpus=4))
    scheduler.decide(10)
    assert kept(scheduler) == [where(scheduler, 1)]
    scheduler.submit(a_job(11, gpus=1))
    placed = scheduler.decide(11)
    assert [job.placement[0].machine for job in placed] == [where(scheduler, 2)]


def test_the_next_big_job_follows_the_one_before_it_at_once() -> None:
    scheduler = a_cluster(2, 4, 1, 1, 1, 1)
    scheduler.submit(a_job(10, gpus=4))
    scheduler.submit(a_job(11, gpus=1))
    scheduler.decide(11)
    here = where(scheduler, 1)
    scheduler.release(1, 12)
    assert [(job.id, job.placement[0].machine) for job in scheduler.decide(12)] == [(10, here)]


def test_the_gpus_that_come_free_first_are_the_ones_kept() -> None:
    scheduler = a_cluster(1, 1, 1, 1, 1)
    scheduler.submit(a_job(10, gpus=2))
    scheduler.submit(a_job(11, gpus=1))
    scheduler.decide(11)
    gpus = {job: scheduler.running[job].placement[0].gpus for job in (3, 4)}
    scheduler.release(4, 12)
    assert not scheduler.decide(12), "the first that comes free is kept, whichever it is"
    scheduler.release(3, 13)
    placed = scheduler.decide(13)
    assert [(job.id, job.placement) for job in placed] == [(10, at("m0", *gpus[3], *gpus[4]))]
    scheduler.check_invariants()


def test_once_only_jobs_with_time_limits_are_left_short_jobs_may_fill_the_gap() -> None:
    scheduler = a_cluster(1, 1, 1)
    scheduler.submit(a_job(3, gpus=1, time_s=1000.0))
    scheduler.submit(a_job(4, gpus=1, time_s=1000.0))
    scheduler.decide(4)
    scheduler.submit(a_job(10, gpus=4))
    scheduler.submit(a_job(11, gpus=1, time_s=100.0))
    scheduler.decide(11)
    scheduler.release(1, 12)
    assert not scheduler.decide(12), "job 2 may run for ever"
    scheduler.release(2, 13)
    assert [job.id for job in scheduler.decide(13)] == [11]
    scheduler.check_invariants()


def test_a_job_that_any_machine_can_take_goes_to_the_one_that_can_do_least() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine("rack", gpus=8, cpus=64.0))
    scheduler.see(a_machine("desk", gpus=1))
    scheduler.submit(a_job(1, gpus=7))
    scheduler.submit(a_job(2, gpus=1))
    assert {job.id: job.placement[0].machine for job in scheduler.decide(2)} == {
        1: "rack",
        2: "desk",
    }
