"""Programs of others that come and go between decisions: what they use is not given away, and what
our jobs were given stays theirs."""

from typing import Any

from builders import a_gpu, a_job, a_machine, at
from towline.core.scheduling.obstacles import ClosedNow
from towline.core.scheduling.scheduler import Scheduler
from towline.model.machine import Machine


def gpu_machine(*uses: tuple[int, float], **more: Any) -> Machine:
    """A machine whose GPUs have 8 GB and are used by others as (memory, utilisation)."""
    gpus = tuple(
        a_gpu(index, foreign_mem_mb=mem, foreign_util=util)
        for index, (mem, util) in enumerate(uses)
    )
    return a_machine(gpus=gpus, **more)  # type: ignore[arg-type]


IDLE = (0, 0.0)


def placed(scheduler: Scheduler, now: float = 10) -> dict[int, Any]:
    found = {start.id: start.placement for start in scheduler.decide(now)}
    scheduler.check_invariants()
    return found


def test_a_program_that_appears_on_a_gpu_keeps_whole_requests_off_it_until_it_leaves() -> None:
    scheduler = Scheduler()
    scheduler.see(gpu_machine(IDLE))
    scheduler.see(gpu_machine((2000, 0.4)))
    scheduler.submit(a_job(1, gpus=1))
    assert placed(scheduler) == {}
    scheduler.see(gpu_machine(IDLE))
    assert placed(scheduler) == {1: at("gpu1", 0)}


def test_shared_requests_get_what_the_program_leaves_of_memory_and_computing() -> None:
    scheduler = Scheduler()
    scheduler.see(gpu_machine((5000, 0.4), (1000, 0.9)))
    share: dict[str, Any] = {"gpus": 1, "gpu_reserved": False}
    scheduler.submit(a_job(1, gpu_mem_mb=4000, gpu_util=0.5, **share))
    scheduler.submit(a_job(2, gpu_mem_mb=3000, gpu_util=0.5, **share))
    scheduler.submit(a_job(3, gpu_mem_mb=3000, gpu_util=0.2, **share))
    # The first would need the memory of one GPU and the computing of the other.
    assert placed(scheduler) == {2: at("gpu1", 0), 3: at("gpu1", 1)}


def test_a_reserved_gpu_is_for_one_of_ours_beside_others_that_leave_enough() -> None:
    scheduler = Scheduler()
    scheduler.see(gpu_machine((5000, 0.4)))
    reserve = {"gpus": 1, "gpu_reserved": True}
    scheduler.submit(a_job(1, gpu_mem_mb=4000, gpu_util=0.5, **reserve))
    assert placed(scheduler) == {}
    scheduler.submit(a_job(2, gpu_mem_mb=1000, gpu_util=0.75, **reserve))
    assert placed(scheduler) == {2: at("gpu1", 0)}
    scheduler.submit(a_job(3, gpu_mem_mb=1000, gpu_util=0.1, **reserve))
    scheduler.submit(a_job(4, gpus=1, gpu_reserved=False, gpu_mem_mb=100))
    assert placed(scheduler) == {}


def test_reserved_requests_prefer_a_gpu_without_others() -> None:
    scheduler = Scheduler()
    scheduler.see(gpu_machine((1000, 0.4), IDLE))
    scheduler.submit(a_job(1, gpus=1, gpu_mem_mb=1000, gpu_util=0.5))
    assert placed(scheduler) == {1: at("gpu1", 1)}


def test_a_job_that_has_not_allocated_its_memory_yet_keeps_it() -> None:
    scheduler = Scheduler()
    scheduler.see(gpu_machine(IDLE))
    scheduler.submit(a_job(1, gpus=1, gpu_reserved=False, gpu_mem_mb=6000))
    assert placed(scheduler) == {1: at("gpu1", 0)}
    for used in (0, 50, 0):  # nothing of it is to be seen on the machine
        scheduler.see(gpu_machine((used, 0.0)))
    scheduler.submit(a_job(2, gpus=1, gpu_reserved=False, gpu_mem_mb=3000))
    scheduler.submit(a_job(3, gpus=1, gpu_reserved=False, gpu_mem_mb=2000))
    assert placed(scheduler) == {3: at("gpu1", 0)}


def test_a_program_that_comes_to_a_shared_gpu_stops_further_starts_and_nothing_else() -> None:
    scheduler = Scheduler()
    scheduler.see(gpu_machine(IDLE))
    share: dict[str, Any] = {"gpus": 1, "gpu_reserved": False, "gpu_mem_mb": 2000}
    scheduler.submit(a_job(1, **share))
    assert 1 in placed(scheduler)
    scheduler.see(gpu_machine((5000, 0.0)))
    scheduler.submit(a_job(2, **share))
    assert placed(scheduler) == {} and scheduler.running_count == 1
    scheduler.release(1, 20)
    assert placed(scheduler) == {2: at("gpu1", 0)}


def test_a_program_that_takes_more_than_was_left_does_not_make_room_when_a_job_ends() -> None:
    scheduler = Scheduler()
    scheduler.see(gpu_machine(IDLE))
    share: dict[str, Any] = {"gpus": 1, "gpu_reserved": False, "gpu_mem_mb": 3000}
    for job in (1, 2):
        scheduler.submit(a_job(job, **share))
    assert len(placed(scheduler)) == 2
    scheduler.see(gpu_machine((5000, 0.0)))  # they had not allocated all of theirs
    scheduler.submit(a_job(3, **share))
    scheduler.release(1, 20)
    assert placed(scheduler) == {}
    scheduler.release(2, 20)
    assert placed(scheduler) == {3: at("gpu1", 0)}


def test_memory_and_cpus_that_a_program_eats_are_not_given_away() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine(cpus=8.0, mem_mb=32_768))
    scheduler.see(a_machine(cpus=8.0, mem_mb=32_768, foreign_mem_mb=30_000, foreign_cpus=8.0))
    scheduler.submit(a_job(1, mem_mb=4000))
    scheduler.submit(a_job(2, cpus=5.0))
    scheduler.submit(a_job(3, cpus=4.0, mem_mb=2000))
    assert placed(scheduler) == {3: at("gpu1")}
    scheduler.see(a_machine(cpus=8.0, mem_mb=32_768))
    assert placed(scheduler).keys() == {1, 2}


def test_a_desktop_on_a_gpu_is_no_program_at_work() -> None:
    scheduler = Scheduler()
    scheduler.see(gpu_machine((200, 0.05)))
    scheduler.submit(a_job(1, gpus=1))
    assert placed(scheduler) == {1: at("gpu1", 0)}


def test_a_machine_with_quiet_hours_starts_nothing_and_what_runs_goes_on() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine())
    scheduler.submit(a_job(1))
    assert 1 in placed(scheduler)
    scheduler.see(a_machine(closed="has quiet hours until 18:00"))
    scheduler.submit(a_job(2))
    assert placed(scheduler) == {} and scheduler.running_count == 1
    [reason] = scheduler.explain(2, 10).reasons
    assert reason.obstacles == (ClosedNow("has quiet hours until 18:00"),)
    assert scheduler.closed("gpu1") == "has quiet hours until 18:00"
    scheduler.release(1, 20)
    assert placed(scheduler) == {}
    scheduler.see(a_machine())
    assert placed(scheduler) == {2: at("gpu1")} and not scheduler.closed("gpu1")


def test_a_machine_kept_for_a_job_is_let_go_when_its_quiet_hours_begin() -> None:
    scheduler = Scheduler()
    for name in ("gpu1", "gpu2"):
        scheduler.see(a_machine(name, cpus=2.0))
        scheduler.submit(a_job(1 if name == "gpu1" else 2, cpus=2.0))
    assert len(placed(scheduler)) == 2
    scheduler.submit(a_job(3, cpus=3.0))
    assert placed(scheduler) == {} and scheduler.explain(3, 10).reserved
    kept = scheduler.reservations.heads["lab"][0].hosts()[0].name
    other = "gpu2" if kept == "gpu1" else "gpu1"
    scheduler.see(a_machine(kept, cpus=2.0, closed="has quiet hours until 18:00"))
    scheduler.submit(a_job(4, cpus=1.0))
    assert placed(scheduler).keys() <= {4}
    scheduler.release(1 if other == "gpu1" else 2, 20)
    scheduler.release(4, 20)
    assert placed(scheduler, 20) == {3: at(other)}


def test_a_job_goes_to_a_machine_it_avoids_when_all_others_are_closed() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine("gpu1"))
    scheduler.see(a_machine("gpu2", cpus=0.5))
    scheduler.submit(a_job(1, cpus=0.5, avoid=("gpu1",)))
    scheduler.see(a_machine("gpu2", cpus=0.5, closed="has quiet hours until 18:00"))
    assert placed(scheduler) == {1: at("gpu1")}
