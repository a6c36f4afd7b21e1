"""In a cluster of many machines, machines are kept for several of the jobs that are next."""

from builders import a_job, a_machine, at
from towline.core.scheduling.reservations import MACHINES_PER_HEAD, MOST_KEPT
from towline.core.scheduling.scheduler import Scheduler


def a_full_cluster(machines: int) -> Scheduler:
    """Each machine has two jobs and no room for a third."""
    scheduler = Scheduler()
    for number in range(machines):
        scheduler.see(a_machine(f"m{number}", cpus=2.0))
        scheduler.submit(a_job(1 + number, cpus=1.5, submitted=0.0))
        scheduler.submit(a_job(1001 + number, cpus=1.5, submitted=0.5))
    assert len(scheduler.decide(1)) == 2 * machines
    return scheduler


def test_few_machines_are_kept_for_one_job_only() -> None:
    scheduler = a_full_cluster(MACHINES_PER_HEAD - 1)
    for job in (5001, 5002):
        scheduler.submit(a_job(job, cpus=3.0))
    scheduler.decide(2)
    assert [scheduler.explain(job, 2).reserved for job in (5001, 5002)] == [True, False]


def test_many_machines_are_kept_for_several_jobs_each_its_own() -> None:
    scheduler = a_full_cluster(2 * MACHINES_PER_HEAD)
    for job in range(5001, 5006):
        scheduler.submit(a_job(job, cpus=3.0))
    for job in range(1, 5):  # whenever something ends, one more may be asked for
        scheduler.decide(2)
        scheduler.check_invariants()
        scheduler.release(job, 2)
        scheduler.submit(a_job(job, cpus=1.5, submitted=0.0, priority=1))
    told = [scheduler.explain(job, 2) for job in range(5001, 5006)]
    assert [found.reserved for found in told] == [True] * 3 + [False] * 2
    assert len({found.kept for found in told[:3]}) == 3


def test_each_job_that_is_next_starts_on_what_is_kept_for_it() -> None:
    scheduler = a_full_cluster(2 * MACHINES_PER_HEAD)
    scheduler.submit(a_job(5001, cpus=3.0, owner="anna"))
    scheduler.submit(a_job(5002, cpus=2.8, owner="ben"))
    scheduler.decide(2)
    kept = {head.first_job(): head.hosts()[0].name for head in scheduler.reservations.heads["lab"]}
    assert kept.keys() == {5001, 5002} and len(set(kept.values())) == 2
    for number in range(9000, 9050):
        scheduler.submit(a_job(number, cpus=1.5))
    for job, name in kept.items():
        for ending in list(scheduler.machines.hosts[name].jobs):
            scheduler.release(ending, 3)
            placed = {start.id: start.placement for start in scheduler.decide(3)}
            scheduler.check_invariants()
        assert placed == {job: at(name)}


def test_there_is_a_most_however_many_machines() -> None:
    scheduler = Scheduler()
    for number in range(MACHINES_PER_HEAD * MOST_KEPT * 2):
        scheduler.see(a_machine(f"m{number}"))
    assert scheduler.reservations.most("lab") == MOST_KEPT
