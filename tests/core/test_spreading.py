"""Jobs that share GPUs and machines are spread; big jobs still find room."""

from typing import Any

import pytest

from builders import a_gpu, a_job, a_machine
from towline.core.scheduling.scheduler import Scheduler, Waiting
from towline.model.machine import Machine

#: machine and GPU of each job, in the order of the jobs.
Places = list[tuple[str, int]]


def a_scheduler(*machines: Machine) -> Scheduler:
    scheduler = Scheduler()
    for machine in machines:
        scheduler.see(machine)
    return scheduler


def a_share(job_id: int, util: float = 0.3, **need: Any) -> Waiting:
    return a_job(job_id, gpus=1, gpu_util=util, gpu_reserved=False, **need)  # type: ignore[arg-type]


def places(scheduler: Scheduler, *jobs: Waiting) -> Places:
    """Where jobs go that are submitted together."""
    for job in jobs:
        scheduler.submit(job)
    placed = {job.id: job.placement[0] for job in scheduler.decide(now=1)}
    found = [placed[job.id] for job in jobs if job.id in placed]
    return [(slot.machine, *slot.gpus[:1]) for slot in found]  # type: ignore[misc]


def gpus_of(found: Places) -> list[int]:
    return [gpu for _, gpu in found]


def machines_of(found: Places) -> list[str]:
    return [place[0] for place in found]


def some(count: int, first: int = 1, **need: Any) -> list[Waiting]:
    return [a_share(first + place, **need) for place in range(count)]  # type: ignore[arg-type]


@pytest.mark.parametrize(("util", "count"), [(0.3, 6), (0.4, 4), (0.6, 2)])
def test_the_gpus_of_a_machine_are_filled_in_turn_and_stay_below_the_limit(
    util: float, count: int
) -> None:
    scheduler = a_scheduler(a_machine(gpus=2, cpus=24.0))
    assert gpus_of(places(scheduler, *some(9, util=util))) == [0, 1, 0, 1, 0, 1][:count]


def test_jobs_that_name_only_their_memory_are_spread_as_well() -> None:
    scheduler = a_scheduler(a_machine(gpus=2))
    assert gpus_of(places(scheduler, *some(4, util=0.0, gpu_mem_mb=2_000))) == [0, 1, 0, 1]


def test_a_gpu_that_came_free_is_filled_before_the_others() -> None:
    scheduler = a_scheduler(a_machine(gpus=2))
    places(scheduler, *some(4))
    scheduler.release(1, now=2)
    scheduler.release(3, now=2)
    assert gpus_of(places(scheduler, *some(2, first=11))) == [0, 0]


def test_a_gpu_that_others_use_comes_last_and_a_desktop_on_it_does_not_count() -> None:
    gpus = (a_gpu(0, foreign_util=0.5), a_gpu(1, foreign_mem_mb=10), a_gpu(2))
    scheduler = a_scheduler(a_machine(gpus=gpus))
    assert gpus_of(places(scheduler, *some(4))) == [1, 2, 1, 2]


def test_every_idle_gpu_of_a_lab_is_used_before_any_is_shared() -> None:
    scheduler = a_scheduler(a_machine("pair", gpus=2), a_machine("one", gpus=1), a_machine("cpu"))
    found = places(scheduler, *some(6))
    assert sorted(found[:3]) == sorted(found[3:]) == [("one", 0), ("pair", 0), ("pair", 1)]


def test_two_gpus_for_one_job_are_still_found_as_long_as_there_are_others() -> None:
    scheduler = a_scheduler(a_machine("gpu1", gpus=2), a_machine("gpu2", gpus=2))
    assert len(set(places(scheduler, *some(2)))) == 2
    assert len(places(scheduler, a_job(3, gpus=2))) == 1


def test_a_big_machine_stays_whole_until_others_would_be_overloaded() -> None:
    scheduler = a_scheduler(a_machine("small", gpus=1), a_machine("big", gpus=4))
    found = places(scheduler, *some(8, util=0.5))
    assert found[:2] == [("small", 0)] * 2
    assert sorted(found[2:6]) == [("big", gpu) for gpu in range(4)]


def test_one_big_machine_is_filled_evenly_before_the_next() -> None:
    scheduler = a_scheduler(a_machine("big1", gpus=4), a_machine("big2", gpus=4))
    found = places(scheduler, *some(8, util=0.25))
    assert len(set(machines_of(found))) == 1 and gpus_of(found) == [0, 1, 2, 3, 0, 1, 2, 3]
    assert len(places(scheduler, a_job(20, gpus=4))) == 1


def test_a_lonely_big_machine_is_filled_evenly() -> None:
    scheduler = a_scheduler(a_machine(gpus=8))
    assert gpus_of(places(scheduler, *some(10, util=0.1))) == [*range(8), 0, 1]


def test_shares_are_packed_while_somebody_waits_for_a_whole_gpu() -> None:
    scheduler = a_scheduler(a_machine(gpus=2))
    assert gpus_of(places(scheduler, *some(2), a_job(3, gpus=1, priority=-1))) == [0, 0, 1]


def test_shares_that_waited_are_spread_over_what_came_free() -> None:
    scheduler = a_scheduler(a_machine("gpu1", gpus=1), a_machine("gpu2", gpus=1))
    assert len(places(scheduler, *some(10))) == 6
    for job_id in range(1, 7):
        scheduler.release(job_id, now=2)
    found = [job.placement[0].machine for job in scheduler.decide(now=2)]
    assert sorted(found[:2]) == sorted(found[2:]) == ["gpu1", "gpu2"]


def test_work_without_gpus_is_spread_over_equal_machines() -> None:
    scheduler = a_scheduler(*(a_machine(f"m{n}") for n in range(3)), a_machine("gpu", gpus=1))
    found = machines_of(places(scheduler, *(a_job(n) for n in range(1, 10))))
    assert [sorted(found[n : n + 3]) for n in (0, 3, 6)] == [["m0", "m1", "m2"]] * 3


def test_work_without_gpus_goes_where_others_use_least() -> None:
    scheduler = a_scheduler(a_machine("m1", foreign_cpus=4.0), a_machine("m2"))
    found = machines_of(places(scheduler, *(a_job(n) for n in range(1, 7))))
    assert found[:4] == ["m2"] * 4 and sorted(found[4:]) == ["m1", "m2"]


def test_machines_of_different_sizes_get_their_share() -> None:
    scheduler = a_scheduler(a_machine("m1", cpus=4), a_machine("m2", cpus=16))
    found = machines_of(places(scheduler, *(a_job(n) for n in range(1, 11))))
    assert (found.count("m1"), found.count("m2")) == (2, 8)


def test_small_work_is_packed_while_somebody_waits_for_much() -> None:
    scheduler = a_scheduler(a_machine("m1"), a_machine("m2"))
    small = [a_job(n) for n in range(1, 5)]
    found = places(scheduler, *small, a_job(5, exclusive=True, priority=-1))
    assert len(set(machines_of(found[:4]))) == 1 and len(found) == 5
