"""Where jobs go."""

import pytest

from builders import a_gpu, a_job, a_machine, a_need, at
from towline.core.scheduling.scheduler import Placed, Scheduler
from towline.model.machine import Machine, Slot
from towline.model.request import GpuNeed, Group, Request

GTX_1060 = "NVIDIA GeForce GTX 1060 6GB"
RTX_3090 = "NVIDIA GeForce RTX 3090"


def a_scheduler(*machines: Machine) -> Scheduler:
    scheduler = Scheduler()
    for machine in machines:
        scheduler.see(machine)
    return scheduler


def machines_of(placed: list[Placed]) -> dict[int, list[str]]:
    return {job.id: [slot.machine for slot in job.placement] for job in placed}


def test_a_job_starts_on_the_only_machine() -> None:
    scheduler = a_scheduler(a_machine("gpu1"))
    scheduler.submit(a_job(1))
    assert scheduler.decide(now=1) == [Placed(1, at("gpu1"))]
    assert scheduler.decide(now=1) == []
    assert (scheduler.waiting_count, scheduler.running_count) == (0, 1)


def test_a_job_without_any_machine_waits_until_one_is_seen() -> None:
    scheduler = Scheduler()
    scheduler.submit(a_job(1))
    assert scheduler.decide(now=1) == []
    scheduler.see(a_machine("gpu1"))
    assert scheduler.decide(now=2) == [Placed(1, at("gpu1"))]


def test_a_job_only_uses_machines_of_its_cluster() -> None:
    scheduler = a_scheduler(a_machine("gpu1", clusters=("lab",)))
    scheduler.submit(a_job(1, cluster="desk"))
    assert scheduler.decide(now=1) == []
    scheduler.see(a_machine("pc", clusters=("desk", "lab")))
    assert scheduler.decide(now=2) == [Placed(1, at("pc"))]


def test_only_its_owners_use_a_machine() -> None:
    scheduler = a_scheduler(a_machine("gpu1", owners=("ben",)))
    scheduler.submit(a_job(1, owner="anna"))
    scheduler.submit(a_job(2, owner="ben"))
    assert scheduler.decide(now=1) == [Placed(2, at("gpu1"))]


def test_cpus_may_be_overloaded_by_half_but_no_more() -> None:
    scheduler = a_scheduler(a_machine("gpu1", cpus=4))
    for job_id in range(1, 8):
        scheduler.submit(a_job(job_id, cpus=1.0))
    assert len(scheduler.decide(now=1)) == 6


def test_what_others_use_of_the_cpus_counts() -> None:
    scheduler = a_scheduler(a_machine("gpu1", cpus=4, foreign_cpus=3.0))
    scheduler.submit(a_job(1, cpus=3.0))
    scheduler.submit(a_job(2, cpus=0.1))
    assert scheduler.decide(now=1) == [Placed(1, at("gpu1"))]


def test_memory_is_never_overloaded() -> None:
    scheduler = a_scheduler(a_machine("gpu1", mem_mb=10_000, foreign_mem_mb=4_000))
    scheduler.submit(a_job(1, mem_mb=6_001))
    scheduler.submit(a_job(2, mem_mb=6_000, priority=-1))
    assert scheduler.decide(now=1) == [Placed(2, at("gpu1"))]


def test_a_reserved_gpu_has_one_job() -> None:
    scheduler = a_scheduler(a_machine("gpu1", gpus=2))
    for job_id in (1, 2, 3):
        scheduler.submit(a_job(job_id, gpus=1))
    assert scheduler.decide(now=1) == [Placed(1, at("gpu1", 0)), Placed(2, at("gpu1", 1))]


def test_freed_gpu_goes_to_the_waiting_job() -> None:
    scheduler = a_scheduler(a_machine("gpu1", gpus=1))
    scheduler.submit(a_job(1, gpus=1))
    scheduler.submit(a_job(2, gpus=1))
    scheduler.decide(now=1)
    scheduler.release(1, now=2)
    assert scheduler.decide(now=2) == [Placed(2, at("gpu1", 0))]


@pytest.mark.parametrize(
    ("used", "free"),
    [
        ({"foreign_mem_mb": 300}, True),
        ({"foreign_mem_mb": 301}, False),
        ({"foreign_util": 0.09}, True),
        ({"foreign_util": 0.1}, False),
    ],
)
def test_a_gpu_that_others_really_use_is_not_given_away(used: dict[str, float], free: bool) -> None:
    scheduler = a_scheduler(a_machine("gpu1", gpus=(a_gpu(0, **used),)))
    scheduler.submit(a_job(1, gpus=1))
    assert bool(scheduler.decide(now=1)) is free


def test_noise_grows_with_the_memory_of_a_gpu() -> None:
    scheduler = a_scheduler(a_machine(gpus=(a_gpu(0, mem_mb=80_000, foreign_mem_mb=1_600),)))
    scheduler.submit(a_job(1, gpus=1))
    assert len(scheduler.decide(now=1)) == 1


def test_a_reserved_gpu_with_a_size_may_have_foreign_company() -> None:
    gpus = (a_gpu(0, foreign_mem_mb=3_000, foreign_util=0.6),)
    scheduler = a_scheduler(a_machine("gpu1", gpus=gpus))
    scheduler.submit(a_job(1, gpus=1, gpu_mem_mb=5_193))
    scheduler.submit(a_job(2, gpus=1, gpu_mem_mb=5_000, gpu_util=0.7))
    scheduler.submit(a_job(3, gpus=1, gpu_mem_mb=5_192, gpu_util=0.5))
    scheduler.submit(a_job(4, gpus=1, gpu_mem_mb=10, gpu_reserved=False))
    assert [job.id for job in scheduler.decide(now=1)] == [3]


def test_a_reserved_gpu_with_a_size_is_an_idle_one_if_there_is_any() -> None:
    busy = a_gpu(0, foreign_mem_mb=3_000)
    scheduler = a_scheduler(
        a_machine("gpu1", gpus=(busy,)), a_machine("gpu2", gpus=(busy, a_gpu(1)))
    )
    scheduler.submit(a_job(1, gpus=1, gpu_mem_mb=1_000))
    scheduler.submit(a_job(2, gpus=2, gpu_mem_mb=1_000))
    scheduler.submit(a_job(3, gpus=1, gpu_mem_mb=1_000))
    assert scheduler.decide(now=1)[0] == Placed(1, at("gpu2", 1))


def test_memory_of_a_shared_gpu_is_never_overloaded_its_time_a_little() -> None:
    scheduler = a_scheduler(a_machine("gpu1", gpus=1))
    for job_id, util in ((1, 0.6), (2, 0.5), (3, 0.1)):
        scheduler.submit(a_job(job_id, gpus=1, gpu_util=util, gpu_reserved=False))
    assert [job.id for job in scheduler.decide(now=1)] == [1, 2]


def test_nobody_joins_a_reserved_gpu() -> None:
    scheduler = a_scheduler(a_machine("gpu1", gpus=1))
    scheduler.submit(a_job(1, gpus=1, gpu_mem_mb=100))
    scheduler.submit(a_job(2, gpus=1, gpu_mem_mb=100, gpu_reserved=False))
    assert [job.id for job in scheduler.decide(now=1)] == [1]


def test_an_exclusive_job_is_alone_on_its_machine() -> None:
    scheduler = a_scheduler(a_machine("gpu1"))
    scheduler.submit(a_job(1, exclusive=True))
    scheduler.submit(a_job(2))
    assert scheduler.decide(now=1) == [Placed(1, at("gpu1"))]
    scheduler.release(1, now=2)
    assert scheduler.decide(now=2) == [Placed(2, at("gpu1"))]
    scheduler.submit(a_job(3, exclusive=True))
    assert scheduler.decide(now=3) == []
    scheduler.release(2, now=4)
    assert scheduler.decide(now=4) == [Placed(3, at("gpu1"))]


def test_other_programs_do_not_forbid_an_exclusive_job() -> None:
    scheduler = a_scheduler(a_machine("gpu1", foreign_cpus=2.0, foreign_mem_mb=1_000))
    scheduler.submit(a_job(1, exclusive=True))
    assert len(scheduler.decide(now=1)) == 1


@pytest.mark.parametrize("name", ["gtx1070", "GTX 1070", "geforce-gtx_1070", "1070", "fast"])
def test_gpus_are_found_by_model_and_alias(name: str) -> None:
    aliases = (("fast", "GTX 1070"),)
    gpus = (a_gpu(0, GTX_1060), a_gpu(1))
    scheduler = a_scheduler(a_machine("gpu1", gpus=gpus, aliases=aliases))
    scheduler.submit(a_job(1, gpus=name))
    assert scheduler.decide(now=1) == [Placed(1, at("gpu1", 1))]


@pytest.mark.parametrize("name", ["", "gpu", "GPU"])
def test_any_gpu_will_do_when_none_is_named(name: str) -> None:
    scheduler = a_scheduler(a_machine("gpu1", gpus=1))
    scheduler.submit(a_job(1, gpus=name))
    assert scheduler.decide(now=1) == [Placed(1, at("gpu1", 0))]


def test_named_gpus_are_chosen_before_any() -> None:
    gpus = (a_gpu(0), a_gpu(1, GTX_1060), a_gpu(2, GTX_1060))
    scheduler = a_scheduler(a_machine("gpu1", gpus=gpus))
    needs = (GpuNeed(2, ""), GpuNeed(1, "gtx1070"))
    scheduler.submit(a_job(1, gpus=needs))
    assert scheduler.decide(now=1) == [Placed(1, at("gpu1", 1, 2, 0))]


def test_overlapping_names_get_distinct_gpus_whenever_there_are_enough() -> None:
    gpus = (a_gpu(0, "A 1"), a_gpu(1, "A 2"), a_gpu(2, "B 1"))
    scheduler = a_scheduler(a_machine("gpu1", gpus=gpus))
    scheduler.submit(a_job(1, gpus=(GpuNeed(1, "a"), GpuNeed(1, "1"), GpuNeed(1, "2"))))
    assert scheduler.decide(now=1) == [Placed(1, at("gpu1", 0, 2, 1))]


def test_overlapping_names_with_too_few_gpus_wait() -> None:
    gpus = (a_gpu(0, "A 1"), a_gpu(1, "A 2"), a_gpu(2, "B 3"))
    scheduler = a_scheduler(a_machine("gpu1", gpus=gpus))
    scheduler.submit(a_job(1, gpus=(GpuNeed(2, "a"), GpuNeed(1, "1"))))
    assert scheduler.decide(now=1) == []


def test_two_kinds_of_gpu_for_one_process() -> None:
    gpus = (a_gpu(0), a_gpu(1, GTX_1060), a_gpu(2), a_gpu(3, GTX_1060))
    scheduler = a_scheduler(a_machine("gpu1", gpus=gpus))
    scheduler.submit(a_job(1, gpus=(GpuNeed(1, "gtx1070"), GpuNeed(2, "gtx1060"))))
    assert scheduler.decide(now=1) == [Placed(1, at("gpu1", 0, 1, 3))]
    scheduler.submit(a_job(2, gpus="gtx1060"))
    assert scheduler.decide(now=2) == []


def test_the_machine_that_leaves_the_least_over_is_chosen() -> None:
    scheduler = a_scheduler(
        a_machine("big", gpus=4), a_machine("small", gpus=1), a_machine("middle", gpus=2)
    )
    for job_id in (1, 2, 3):
        scheduler.submit(a_job(job_id, gpus=1))
    scheduler.submit(a_job(4, gpus=4))
    assert machines_of(scheduler.decide(now=1)) == {
        1: ["small"],
        2: ["middle"],
        3: ["middle"],
        4: ["big"],
    }


def test_work_without_gpus_goes_to_machines_without_gpus() -> None:
    scheduler = a_scheduler(a_machine("gpu1", gpus=2, cpus=2), a_machine("cpu1", cpus=64))
    scheduler.submit(a_job(1))
    assert scheduler.decide(now=1) == [Placed(1, at("cpu1"))]


def test_within_a_machine_the_tightest_gpu_is_chosen() -> None:
    gpus = (a_gpu(0, RTX_3090, 24_576), a_gpu(1, mem_mb=8_192))
    scheduler = a_scheduler(a_machine("gpu1", gpus=gpus))
    scheduler.submit(a_job(1, gpus=1))
    assert scheduler.decide(now=1) == [Placed(1, at("gpu1", 1))]


def test_processes_of_one_job_may_span_machines() -> None:
    scheduler = a_scheduler(a_machine("gpu1", gpus=1), a_machine("gpu2", gpus=2))
    scheduler.submit(a_job(1, processes=3, gpus=1))
    placed = scheduler.decide(now=1)
    assert sorted(placed[0].placement, key=lambda slot: (slot.machine, slot.gpus)) == [
        Slot("gpu1", (0,)),
        Slot("gpu2", (0,)),
        Slot("gpu2", (1,)),
    ]


def test_all_processes_start_or_none() -> None:
    scheduler = a_scheduler(a_machine("gpu1", gpus=2))
    scheduler.submit(a_job(1, processes=3, gpus=1))
    assert scheduler.decide(now=1) == []
    scheduler.see(a_machine("gpu2", gpus=1))
    assert len(scheduler.decide(now=2)[0].placement) == 3


def test_a_placement_is_in_the_order_of_the_processes() -> None:
    scheduler = a_scheduler(a_machine("cpu1"), a_machine("gpu1", gpus=1))
    request = Request((Group(1, a_need()), Group(1, a_need(gpus=1)), Group(0, a_need(gpus=9))))
    scheduler.submit(a_job(1, request=request))
    assert scheduler.decide(now=1)[0].placement[1] == Slot("gpu1", (0,))


def test_a_gang_starts_once_all_it_lacked_is_free() -> None:
    scheduler = a_scheduler(a_machine("gpu1", gpus=4))
    for job_id in (1, 2, 3, 4):
        scheduler.submit(a_job(job_id, gpus=1))
    scheduler.decide(now=1)
    scheduler.submit(a_job(5, processes=3, gpus=1))
    assert scheduler.decide(now=2) == []
    for job_id in (1, 2):
        scheduler.release(job_id, now=3)
        assert scheduler.decide(now=3) == []
    scheduler.release(3, now=4)
    assert machines_of(scheduler.decide(now=4)) == {5: ["gpu1"] * 3}


def test_exclusive_processes_of_one_job_are_on_different_machines() -> None:
    scheduler = a_scheduler(a_machine("gpu1"), a_machine("gpu2"))
    scheduler.submit(a_job(1, processes=2, exclusive=True))
    placed = scheduler.decide(now=1)
    assert {slot.machine for slot in placed[0].placement} == {"gpu1", "gpu2"}


def test_avoided_machines_are_not_used_while_another_could_take_the_job() -> None:
    scheduler = a_scheduler(a_machine("gpu1", gpus=1), a_machine("gpu2", gpus=1))
    scheduler.submit(a_job(1, gpus=1))
    scheduler.decide(now=1)
    scheduler.release(1, now=2)
    scheduler.submit(a_job(2, gpus=1, avoid=("gpu1",)))
    assert scheduler.decide(now=2) == [Placed(2, at("gpu2", 0))]
    scheduler.submit(a_job(3, gpus=1, avoid=("gpu1",)))
    assert scheduler.decide(now=3) == []
    scheduler.gone("gpu2")
    assert scheduler.decide(now=4) == [Placed(3, at("gpu1", 0))]


def test_avoided_machines_are_used_if_no_other_could_ever_take_the_job() -> None:
    scheduler = a_scheduler(a_machine("gpu1", gpus=1), a_machine("cpu1"))
    scheduler.submit(a_job(1, gpus=1, avoid=("gpu1",)))
    assert scheduler.decide(now=1) == [Placed(1, at("gpu1", 0))]


def test_a_gang_keeps_away_from_avoided_machines() -> None:
    scheduler = a_scheduler(a_machine("gpu1", gpus=2), a_machine("gpu2", gpus=2))
    scheduler.submit(a_job(1, processes=2, gpus=1, avoid=("gpu1",)))
    assert machines_of(scheduler.decide(now=1)) == {1: ["gpu2", "gpu2"]}
