"""Why a job waits, as data and in words."""

from typing import Any

from builders import a_gpu, a_job, a_machine, a_need, a_request, at
from towline.core.scheduling.obstacles import (
    CpusInUse,
    GpusInUse,
    GpuUse,
    MachineObstacles,
    MemoryInUse,
    NeverFits,
    TooFewGpus,
)
from towline.core.scheduling.queue import Waiting
from towline.core.scheduling.scheduler import Scheduler
from towline.engine.obstacle_words import (
    by_machines,
    never_fits,
    obstacle_words,
    planned,
    waiting_text,
)
from towline.engine.views import explanation_data, obstacles_data
from towline.model.machine import Machine, Placement
from towline.model.request import GpuNeed, Group, Request


def why(scheduler: Scheduler, job_id: int, now: float = 100) -> dict[str, str]:
    """machine -> reason."""
    reasons = scheduler.explain(job_id, now).reasons
    return {
        name: obstacle_words(reason.obstacles) for reason in reasons for name in reason.machines
    }


def plan(scheduler: Scheduler, job: Waiting, now: float) -> tuple[Placement | None, str]:
    return planned(scheduler.plan(job, now))


def impossible(scheduler: Scheduler, request: Request, owner: str) -> str | None:
    found = scheduler.impossible("lab", request, owner)
    return None if found is None else never_fits(found)


def waiting_on(machine: Machine, *running: object, **need: Any) -> str:
    """The reason why a job waits for one machine that runs jobs already."""
    scheduler = Scheduler()
    scheduler.see(machine)
    for job in running:
        scheduler.submit(job)  # type: ignore[arg-type]
        assert scheduler.decide(now=1)
    scheduler.submit(a_job(99, **need))  # type: ignore[arg-type]
    assert scheduler.decide(now=1) == []
    return why(scheduler, 99)[machine.name]


def test_a_job_that_does_not_wait_is_told_so() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine())
    assert waiting_text(scheduler.explain(1, now=1)) == "it does not wait"
    scheduler.submit(a_job(1))
    scheduler.decide(now=1)
    assert waiting_text(scheduler.explain(1, now=1)) == "it has its machines"


def test_without_machines_nothing_is_known_yet() -> None:
    scheduler = Scheduler()
    scheduler.submit(a_job(1))
    text = waiting_text(scheduler.explain(1, now=1))
    assert text == "number 1 of 1 that wait in lab; no machine of lab is known yet"
    assert plan(scheduler, a_job(2), now=1) == (
        None,
        "it would wait: no machine of lab is known yet",
    )


def test_positions_follow_priority_share_and_age() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine(gpus=1))
    scheduler.submit(a_job(1, gpus=1, owner="greedy"))
    scheduler.decide(now=1)
    scheduler.submit(a_job(2, gpus=1, owner="greedy"))
    scheduler.submit(a_job(3, gpus=1, owner="anna"))
    scheduler.submit(a_job(4, gpus=1, owner="anna", cpus=2.0))
    scheduler.submit(a_job(5, gpus=1, owner="anna", priority=1))
    scheduler.submit(a_job(6, gpus=1, owner="anna", priority=-1))
    scheduler.submit(a_job(7, gpus=1, owner="anna"))
    scheduler.withdraw(7)
    scheduler.submit(a_job(8, gpus=1, owner="anna"))
    found = [scheduler.explain(job_id, now=10).position for job_id in (5, 3, 4, 8, 2, 6)]
    assert found == [1, 2, 3, 4, 5, 6]
    assert scheduler.explain(2, now=10).waiting == scheduler.waiting_in("lab") == 6


def test_a_machine_that_does_not_answer() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine("gpu3"))
    scheduler.gone("gpu3")
    scheduler.submit(a_job(1))
    assert why(scheduler, 1) == {"gpu3": "does not answer"}


def test_a_machine_of_somebody_else() -> None:
    assert waiting_on(a_machine(owners=("ben", "cem"))) == "is only for ben, cem"


def test_a_machine_to_avoid() -> None:
    scheduler = Scheduler()
    for name in ("gpu1", "gpu2"):
        scheduler.see(a_machine(name, gpus=1))
    scheduler.adopt(a_job(1, gpus=1), at("gpu2", 0), started=0)
    scheduler.submit(a_job(2, gpus=1, avoid=("gpu1",)))
    assert why(scheduler, 2) == {
        "gpu1": "is avoided, because an earlier attempt failed there",
        "gpu2": "1 GPU, 1 is used by job 1",
    }


def test_gpus_in_use_by_jobs_and_by_other_programs() -> None:
    machine = a_machine(gpus=(a_gpu(0), a_gpu(1, foreign_mem_mb=3_200)))
    text = waiting_on(machine, a_job(7, gpus=1), gpus=(GpuNeed(2, "gtx1070"),))
    assert text == "2 GPUs match gtx1070, 1 is used by job 7, 1 by other programs (3.1 GB)"


def test_gpus_kept_busy_without_memory() -> None:
    text = waiting_on(a_machine(gpus=(a_gpu(0, foreign_util=0.5),)), gpus="gtx1070")
    assert text == "1 GPU matches gtx1070, 1 is used by other programs (50%)"


def test_several_gpus_in_use_by_one_job() -> None:
    text = waiting_on(a_machine(gpus=2), a_job(7, gpus=2), gpus=1)
    assert text == "2 GPUs, 2 are used by job 7"


def test_a_gpu_shared_by_too_many() -> None:
    job = a_job(7, gpus=1, gpu_mem_mb=6_000, gpu_util=0.8, gpu_reserved=False)
    text = waiting_on(
        a_machine(gpus=1), job, gpus=1, gpu_mem_mb=4_096, gpu_util=0.5, gpu_reserved=False
    )
    assert text == (
        "1 GPU, 1 is used by job 7, and 4.0 GB and 50% of the time of a GPU are asked for"
    )


def test_a_gpu_reserved_by_another_job() -> None:
    text = waiting_on(a_machine(gpus=1), a_job(7, gpus=1), gpus=1, gpu_reserved=False)
    assert text == "1 GPU, 1 is used by job 7, and a share of a GPU is asked for"


def test_a_machine_without_such_gpus() -> None:
    gpus = (a_gpu(0, "NVIDIA RTX 3090"), a_gpu(1, "NVIDIA RTX 3090"))
    assert waiting_on(a_machine(gpus=gpus), gpus="gtx1070") == "has no gtx1070 (it has 2 RTX 3090)"
    assert waiting_on(a_machine(), gpus=1) == "has no GPU"
    assert waiting_on(a_machine(), gpus="x") == "has no GPU, and x is asked for"
    assert waiting_on(a_machine(gpus=1), gpus=2) == "has 1 GPU, 2 are asked for"
    need = (GpuNeed(2, "gtx1070"),)
    assert waiting_on(a_machine(gpus=1), gpus=need) == "has 1 gtx1070, 2 are asked for"


def test_gpus_that_are_too_small() -> None:
    text = waiting_on(a_machine(gpus=1), gpus=1, gpu_mem_mb=10_240)
    assert text == "its GPUs have up to 8.0 GB, 10.0 GB are asked for"


def test_gpus_that_are_too_few_for_overlapping_names() -> None:
    gpus = (a_gpu(0, "A 1"), a_gpu(1, "B 2"))
    text = waiting_on(a_machine(gpus=gpus), gpus=(GpuNeed(1, "a"), GpuNeed(1, "1")))
    assert text == "has 1 A 1, 1 B 2, not enough for all the GPUs asked for"


def test_cpus_and_memory_that_are_too_small_or_in_use() -> None:
    assert waiting_on(a_machine(cpus=8), cpus=64.0) == "has 8 CPUs, 64 are asked for"
    assert waiting_on(a_machine(mem_mb=512), mem_mb=2_048) == (
        "has 512 MB of memory, 2.0 GB are asked for"
    )
    assert waiting_on(a_machine(cpus=4), a_job(7, cpus=5.5), cpus=1.0) == (
        "0.5 CPUs are free, 1 is asked for"
    )
    assert waiting_on(a_machine(cpus=4, foreign_cpus=6.5), cpus=1.0) == (
        "0 CPUs are free, 1 is asked for (6.5 used by other programs)"
    )
    assert waiting_on(a_machine(mem_mb=4_096), a_job(7, mem_mb=4_000), mem_mb=2_048) == (
        "96 MB of memory are free, 2.0 GB are asked for"
    )
    assert waiting_on(a_machine(mem_mb=4_096, foreign_mem_mb=3_072), mem_mb=2_048) == (
        "1.0 GB of memory are free, 2.0 GB are asked for (3.0 GB used by other programs)"
    )


def test_amounts_are_never_rounded_to_what_is_asked_for() -> None:
    assert waiting_on(a_machine(cpus=2, foreign_cpus=2.03), cpus=1.0) == (
        "0.9 CPUs are free, 1 is asked for (2 used by other programs)"
    )
    assert waiting_on(a_machine(cpus=2), a_job(7, cpus=2.0), cpus=1.001) == (
        "1 CPU is free, 1.001 are asked for"
    )
    assert waiting_on(a_machine(mem_mb=4_096), a_job(7, mem_mb=2_050), mem_mb=2_047) == (
        "1.9 GB of memory are free, 2.0 GB are asked for"
    )
    assert waiting_on(a_machine(mem_mb=2_048), mem_mb=2_049) == (
        "has 2.0 GB of memory, 2.1 GB are asked for"
    )


def test_all_that_is_in_use_is_named() -> None:
    machine = a_machine(gpus=2, cpus=2, mem_mb=4_096, foreign_cpus=0.97)
    job = a_job(65, gpus=2, cpus=1.0, mem_mb=3_072)
    assert waiting_on(machine, job, gpus=1, cpus=1.5, mem_mb=2_048) == (
        "2 GPUs, 2 are used by job 65; 1.0 GB of memory are free, 2.0 GB are asked for; "
        "1 CPU is free, 1.5 are asked for (1 used by other programs)"
    )


def test_all_that_a_machine_lacks_is_named() -> None:
    assert waiting_on(a_machine(cpus=1, mem_mb=512), gpus=1, cpus=2.0, mem_mb=1_024) == (
        "has 1 CPU, 2 are asked for; has 512 MB of memory, 1.0 GB are asked for; has no GPU"
    )


def test_whole_machines() -> None:
    assert waiting_on(a_machine(), a_job(7, exclusive=True)) == "job 7 has the whole machine"
    crowd = [a_job(number) for number in range(1, 6)]
    assert waiting_on(a_machine(), *crowd, exclusive=True) == (
        "the whole machine is asked for, and it is used by job 1 and job 2 and job 3 and 2 more"
    )


def test_a_machine_kept_for_the_job_that_is_next() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine("gpu1", gpus=2))
    for job_id, gpus in ((1, 1), (2, 1), (9, 2), (10, 1)):
        scheduler.submit(a_job(job_id, gpus=gpus))
    scheduler.decide(now=10)
    scheduler.release(1, now=11)
    assert scheduler.decide(now=11) == []
    assert why(scheduler, 10) == {"gpu1": "kept free for job 9, which is next"}
    assert waiting_text(scheduler.explain(9, now=11)) == (
        "number 1 of 2 that wait in lab; it is next, and gpu1 is kept free for it"
    )
    assert plan(scheduler, a_job(11, gpus=1), now=11)[0] is None


def test_room_for_some_processes_only() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine("gpu1", gpus=2))
    scheduler.see(a_machine("gpu2", gpus=1))
    scheduler.adopt(a_job(1, gpus=1), at("gpu1", 0), started=0)
    scheduler.submit(a_job(2, processes=3, gpus=1))
    scheduler.decide(now=1)
    assert why(scheduler, 2) == {
        "gpu1": "has room, but not for all of its processes at once",
        "gpu2": "has room, but not for all of its processes at once",
    }


def test_a_job_that_was_not_looked_at_yet() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine("gpu1"))
    scheduler.submit(a_job(1))
    assert why(scheduler, 1) == {"gpu1": "has room; jobs before it come first"}


def test_machines_with_the_same_reason_are_named_together_and_not_without_end() -> None:
    scheduler = Scheduler()
    for number in range(60):
        scheduler.see(a_machine(f"m{number}"))
    scheduler.submit(a_job(1, gpus=1))
    explanation = scheduler.explain(1, now=1)
    assert len(explanation.reasons) == 1
    assert explanation.more == 10
    [line] = by_machines(explanation.reasons)
    assert line.startswith("m0, m1, ") and line.endswith(": has no GPU")


def test_a_plan_says_where_a_job_would_start_and_changes_nothing() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine("gpu1", gpus=1))
    assert plan(scheduler, a_job(1, gpus=1), now=1) == (at("gpu1", 0), "it would start now")
    assert plan(scheduler, a_job(1, gpus=1), now=1) == (at("gpu1", 0), "it would start now")
    assert (scheduler.waiting_count, scheduler.running_count) == (0, 0)
    scheduler.submit(a_job(1, gpus=1))
    scheduler.decide(now=1)
    placement, text = plan(scheduler, a_job(2, gpus=1), now=1)
    assert placement is None
    assert text == "it would wait: gpu1: 1 GPU, 1 is used by job 1"


def test_what_is_impossible_names_the_closest_machine() -> None:
    scheduler = Scheduler()
    assert impossible(scheduler, a_request(gpus=9), "anna") is None
    scheduler.see(a_machine("cpu1"))
    scheduler.see(a_machine("gpu1", gpus=2, mem_mb=8_192))
    scheduler.see(a_machine("gpu2", gpus=4, cpus=4))
    assert impossible(scheduler, a_request(gpus=4), "anna") is None
    assert impossible(scheduler, a_request(gpus=5, mem_mb=9_000), "anna") == (
        "no machine of lab can ever take it; the closest is gpu2: it has 4 GPUs, 5 are asked for"
    )
    assert impossible(scheduler, a_request(cpus=12.5), "anna") == (
        "no machine of lab can ever take it; the closest is cpu1: it has 8 CPUs, 12.5 are asked for"
    )
    assert impossible(scheduler, a_request(cpus=0.0, mem_mb=40_960), "anna") == (
        "no machine of lab can ever take it; the closest is cpu1:"
        " it has 32.0 GB of memory, 40.0 GB are asked for"
    )
    assert plan(scheduler, a_job(1, gpus=5), now=1)[1].startswith("no machine of lab can ever")


def test_what_is_possible_does_not_depend_on_what_is_in_use() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine(gpus=(a_gpu(0, foreign_mem_mb=8_000),), foreign_mem_mb=32_000))
    scheduler.adopt(a_job(1, exclusive=True), at("gpu1"), started=0)
    assert impossible(scheduler, a_request(gpus=1, mem_mb=30_000), "anna") is None
    scheduler.gone("gpu1")
    assert impossible(scheduler, a_request(gpus=1), "anna") is None


def test_too_many_processes_are_impossible() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine(gpus=2))
    text = impossible(scheduler, a_request(processes=3, gpus=1), "anna")
    assert text == (
        "the machines of lab can never take all of its processes at once:"
        " even when nobody uses them, 1 process finds no place"
    )
    text = impossible(scheduler, a_request(processes=4, gpus=1), "anna")
    assert text is not None and text.endswith("2 processes find no place")
    two = Request((Group(1, a_need(gpus=1)), Group(1, a_need(cpus=99.0))))
    text = impossible(scheduler, two, "anna")
    assert text is not None and text.endswith("it has 8 CPUs, 99 are asked for")


def test_machines_of_others_are_impossible() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine(owners=("ben",)))
    assert impossible(scheduler, a_request(), "ben") is None
    assert impossible(scheduler, a_request(), "anna") == ("no machine of lab may be used by anna")
    assert impossible(scheduler, a_request(), "") == "no machine of lab may be used by you"


def test_what_keeps_a_job_from_a_machine_is_data() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine(gpus=2, cpus=2, mem_mb=4_096, foreign_cpus=0.97))
    scheduler.submit(a_job(65, gpus=2, cpus=1.0, mem_mb=3_072))
    scheduler.decide(now=1)
    scheduler.submit(a_job(99, gpus=1, cpus=1.5, mem_mb=2_048))
    scheduler.decide(now=1)
    why = scheduler.explain(99, now=1)
    gpus = GpusInUse(2, (), ((GpuUse((65,)), 2),))
    assert why.reasons == (
        MachineObstacles(
            ("gpu1",), (gpus, MemoryInUse(1_024, 2_048, 0), CpusInUse(1.03, 1.5, 0.97))
        ),
    )
    assert explanation_data(why) == {
        "kind": "queued",
        "cluster": "lab",
        "position": 1,
        "waiting": 1,
        "kept": ("gpu1",),
        "more": 0,
    }
    _, memory, _ = obstacles_data(why.reasons[0].obstacles)
    expected = {"kind": "memory_in_use", "free_mb": 1_024, "asked_mb": 2_048, "others_mb": 0}
    assert memory == expected
    never = scheduler.impossible("lab", a_request(gpus=3), "anna")
    assert never == NeverFits("lab", "anna", "gpu1", (TooFewGpus("", 2, 3),))


def test_machines_of_which_the_same_is_said_are_named_together() -> None:
    reasons = tuple(
        MachineObstacles((name,), (MemoryInUse(free_mb, 2_048, 0),))
        for name, free_mb in (("gpu1", 1_025), ("gpu2", 1_030), ("gpu3", 512))
    )
    assert by_machines(reasons) == [
        "gpu1, gpu2: 1.0 GB of memory are free, 2.0 GB are asked for",
        "gpu3: 512 MB of memory are free, 2.0 GB are asked for",
    ]
