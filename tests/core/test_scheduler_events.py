"""Submit, withdraw, release, adopt, see, gone, remove: what each does, and what it leaves alone."""

import pytest

from builders import a_gpu, a_job, a_machine, a_request, at
from towline.core.machines.demand import level, plain
from towline.core.scheduling.scheduler import Placed, Scheduler
from towline.model.machine import Slot
from towline.model.request import Request


def ids(placed: list[Placed]) -> list[int]:
    return [job.id for job in placed]


def test_submitting_twice_is_submitting_once() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine())
    for _ in range(2):
        scheduler.submit(a_job(1))
    assert scheduler.waiting_count == 1
    assert ids(scheduler.decide(now=1)) == [1]
    scheduler.submit(a_job(1))
    assert scheduler.waiting_count == 0


def test_a_withdrawn_job_never_starts() -> None:
    scheduler = Scheduler()
    for job_id in (1, 2, 3):
        scheduler.submit(a_job(job_id))
    assert scheduler.withdraw(2)
    assert not scheduler.withdraw(2)
    assert not scheduler.withdraw(99)
    scheduler.see(a_machine())
    assert ids(scheduler.decide(now=1)) == [1, 3]
    assert not scheduler.withdraw(1)


def test_a_job_submitted_again_after_it_was_withdrawn_starts_once() -> None:
    scheduler = Scheduler()
    for job_id in (1, 2, 3):
        scheduler.submit(a_job(job_id))
    scheduler.withdraw(2)
    scheduler.submit(a_job(2, submitted=9))
    scheduler.check_invariants()
    scheduler.see(a_machine())
    assert ids(scheduler.decide(now=1)) == [1, 3, 2]
    scheduler.check_invariants()


def test_a_retried_job_takes_its_old_place() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine(gpus=1))
    for job_id in (1, 2, 3):
        scheduler.submit(a_job(job_id, gpus=1, submitted=5))
    assert ids(scheduler.decide(now=5)) == [1]
    scheduler.release(1, now=6)
    scheduler.submit(a_job(1, gpus=1, submitted=5))
    assert ids(scheduler.decide(now=6)) == [1]


def test_a_long_queue_shrinks_from_the_front_and_keeps_its_order() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine(cpus=1000))
    for job_id in range(1, 401):
        scheduler.submit(a_job(job_id))
    assert ids(scheduler.decide(now=1, most=150)) == list(range(1, 151))
    assert ids(scheduler.decide(now=1)) == list(range(151, 401))
    assert scheduler.waiting_in("lab") == 0


def test_at_most_as_many_as_asked_for_start_at_once() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine())
    for job_id in range(1, 6):
        scheduler.submit(a_job(job_id))
    assert [ids(scheduler.decide(now=1, most=2)) for _ in range(4)] == [[1, 2], [3, 4], [5], []]


def test_releasing_an_unknown_job_is_fine() -> None:
    scheduler = Scheduler()
    scheduler.release(5, now=1)
    scheduler.submit(a_job(5))
    scheduler.release(5, now=1)
    assert scheduler.waiting_count == 1


def test_an_adopted_job_counts_on_its_machine() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine(gpus=2))
    scheduler.submit(a_job(1, gpus=1))
    scheduler.adopt(a_job(1, gpus=1), at("gpu1", 1), started=0)
    scheduler.adopt(a_job(1, gpus=1), at("gpu1", 1), started=0)
    scheduler.check_invariants()
    assert (scheduler.waiting_count, scheduler.running_count) == (0, 1)
    scheduler.submit(a_job(2, gpus=1))
    assert scheduler.decide(now=1) == [Placed(2, at("gpu1", 0))]


def test_a_job_adopted_on_a_machine_not_seen_yet_counts_once_it_is_seen() -> None:
    scheduler = Scheduler()
    scheduler.adopt(a_job(1, gpus=1), at("gpu1", 0), started=0)
    scheduler.gone("gpu1")
    scheduler.remove("gpu1")
    scheduler.see(a_machine("gpu1", gpus=2))
    scheduler.submit(a_job(2, gpus=2))
    scheduler.submit(a_job(3, gpus=1, priority=1))
    assert scheduler.decide(now=1) == [Placed(3, at("gpu1", 1))]
    scheduler.check_invariants()


def test_a_job_adopted_on_a_machine_never_seen_goes_without_a_trace() -> None:
    scheduler = Scheduler()
    scheduler.adopt(a_job(1), at("gpu1"), started=0)
    scheduler.release(1, now=1)
    scheduler.check_invariants()
    assert scheduler.running_count == 0
    scheduler.submit(a_job(2))
    assert scheduler.decide(now=1) == []


def test_a_machine_found_over_full_takes_nothing_until_there_is_room() -> None:
    scheduler = Scheduler()
    for job_id in (1, 2, 3):
        scheduler.adopt(a_job(job_id, gpus=1, mem_mb=3_000), at("gpu1", 0), started=0)
    scheduler.adopt(a_job(4, gpus=1), at("gpu1", 7), started=0)
    scheduler.see(a_machine("gpu1", gpus=1, mem_mb=4_096))
    scheduler.check_invariants()
    scheduler.submit(a_job(5, gpus=1, gpu_reserved=False))
    for job_id in (4, 1, 2):
        scheduler.release(job_id, now=1)
        assert scheduler.decide(now=1) == []
    scheduler.release(3, now=2)
    assert ids(scheduler.decide(now=2)) == [5]
    scheduler.check_invariants()


def test_adopting_a_gang_counts_every_process() -> None:
    scheduler = Scheduler()
    for name in ("gpu1", "gpu2"):
        scheduler.see(a_machine(name, gpus=1))
    placement = (Slot("gpu1", (0,)), Slot("gpu2", (0,)))
    scheduler.adopt(a_job(1, processes=2, gpus=1), placement, started=0)
    scheduler.submit(a_job(2, gpus=1))
    assert scheduler.decide(now=1) == []
    scheduler.release(1, now=2)
    assert ids(scheduler.decide(now=2)) == [2]


def test_a_machine_that_does_not_answer_gets_nothing_new_and_keeps_what_it_has() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine("gpu1", gpus=2))
    scheduler.submit(a_job(1, gpus=1))
    scheduler.decide(now=1)
    scheduler.gone("gpu1")
    scheduler.gone("gpu1")
    scheduler.gone("unheard-of")
    scheduler.submit(a_job(2, gpus=1))
    assert scheduler.decide(now=2) == []
    scheduler.release(1, now=3)
    assert scheduler.decide(now=3) == []
    scheduler.see(a_machine("gpu1", gpus=2))
    assert scheduler.decide(now=4) == [Placed(2, at("gpu1", 0))]
    scheduler.check_invariants()


def test_a_removed_machine_is_forgotten_when_its_last_job_ends() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine("gpu1"))
    scheduler.see(a_machine("gpu2"))
    scheduler.remove("gpu2")
    scheduler.remove("gpu2")
    scheduler.submit(a_job(1))
    assert scheduler.decide(now=1) == [Placed(1, at("gpu1"))]
    scheduler.remove("gpu1")
    scheduler.check_invariants()
    scheduler.submit(a_job(2))
    assert scheduler.decide(now=2) == []
    scheduler.release(1, now=3)
    scheduler.check_invariants()
    assert scheduler.decide(now=3) == []
    assert scheduler.impossible("lab", a_request(gpus=1), "anna") is None


def test_what_others_stop_using_is_given_to_the_waiting_job() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine(gpus=(a_gpu(0, foreign_mem_mb=5_000),)))
    scheduler.submit(a_job(1, gpus=1))
    assert scheduler.decide(now=1) == []
    scheduler.see(a_machine(gpus=(a_gpu(0, foreign_mem_mb=10),)))
    assert ids(scheduler.decide(now=2)) == [1]


def test_what_others_start_to_use_is_not_given_away() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine(mem_mb=8_192))
    scheduler.see(a_machine(mem_mb=8_192, foreign_mem_mb=10))
    scheduler.submit(a_job(1, mem_mb=8_192))
    assert scheduler.decide(now=1) == []
    scheduler.see(a_machine(mem_mb=8_192, foreign_mem_mb=0))
    assert ids(scheduler.decide(now=2)) == [1]


def test_small_falls_in_what_others_use_are_no_news() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine(gpus=(a_gpu(0, foreign_util=0.5),), foreign_cpus=2.0))
    scheduler.submit(a_job(1, gpus=2))
    scheduler.decide(now=1)
    scheduler.see(a_machine(gpus=(a_gpu(0, foreign_util=0.48),), foreign_cpus=1.9))
    assert not scheduler.machines.freed
    scheduler.see(a_machine(gpus=(a_gpu(0, foreign_util=0.4),), foreign_cpus=1.9))
    assert scheduler.machines.freed


def test_a_machine_may_grow_shrink_and_change_its_owners() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine(gpus=1))
    scheduler.submit(a_job(1, gpus=1, cpus=8))
    scheduler.submit(a_job(2, gpus=2))
    assert ids(scheduler.decide(now=1)) == [1]
    scheduler.see(a_machine(gpus=0, cpus=1))
    scheduler.check_invariants()
    scheduler.see(a_machine(gpus=3, cpus=16, owners=("ben",)))
    assert scheduler.decide(now=2) == []
    scheduler.see(a_machine(gpus=3, cpus=16))
    assert scheduler.decide(now=3) == [Placed(2, at("gpu1", 1, 2))]
    scheduler.check_invariants()


def test_more_machines_than_are_looked_at_one_by_one() -> None:
    scheduler = Scheduler()
    for number in range(100):
        scheduler.see(a_machine(f"m{number}", gpus=1))
    for job_id in range(1, 102):
        scheduler.submit(a_job(job_id, gpus=1))
    assert len(scheduler.decide(now=1)) == 100
    for job_id in range(1, 101):
        scheduler.release(job_id, now=2)
    assert ids(scheduler.decide(now=2)) == [101]
    scheduler.check_invariants()


def test_odd_shapes_without_end_do_not_hide_a_job_that_fits() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine(mem_mb=8_192))
    for job_id in range(1, 1001):
        scheduler.submit(a_job(job_id, mem_mb=8_192 + job_id))
    scheduler.submit(a_job(1001, mem_mb=8_192, submitted=5_000))
    started: list[int] = []
    for now in range(10):
        started += ids(scheduler.decide(now))
    assert started == [1001]
    scheduler.check_invariants()


def test_a_kind_of_job_whose_last_one_just_started_is_not_asked_again() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine("gpu1", gpus=4, cpus=4))
    scheduler.see(a_machine("gpu2", gpus=4, cpus=1))
    for job_id in (1, 2, 3):
        scheduler.submit(a_job(job_id, processes=3, gpus=1, gpu_reserved=False))
    scheduler.submit(a_job(4, processes=4, gpus=1, owner="ben"))
    started: list[int] = []
    for now in range(5):
        placed = ids(scheduler.decide(now))
        started += placed
        for job_id in placed:
            scheduler.release(job_id, now)
    assert sorted(started) == [1, 2, 3, 4]


def test_a_request_without_processes_starts_at_once() -> None:
    scheduler = Scheduler()
    scheduler.submit(a_job(1, request=Request(())))
    assert scheduler.decide(now=1) == [Placed(1, ())]


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_levels_rise_with_the_amount(step: int) -> None:
    found = [level(amount) for amount in range(-2 * step, 5000 * step, step)]
    assert found == sorted(found)
    assert level(-5) == -1


def test_names_are_compared_without_case_spaces_dashes_and_underscores() -> None:
    assert plain("GeForce GTX-1070_Ti") == "geforcegtx1070ti"


@pytest.mark.parametrize("broken", ["cpu_free", "mem_free", "processes", "held"])
def test_invariants_notice_sums_that_are_wrong(broken: str) -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine())
    host = scheduler.machines.hosts["gpu1"]
    setattr(host, broken, getattr(host, broken) + 1)
    with pytest.raises(AssertionError):
        scheduler.check_invariants()
