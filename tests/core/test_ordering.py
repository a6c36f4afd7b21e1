"""Who is next: priority, fair share, age; and no job delays the head of the queue."""

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import a_gpu, a_job, a_machine, at
from towline.core.scheduling.fairshare import FULL_SHARE_S, HALF_LIFE_S, FairShares
from towline.core.scheduling.scheduler import Placed, Scheduler


def a_full_scheduler(gpus: int = 1, machines: int = 1, time_s: float = 0.0) -> Scheduler:
    """Machines gpu1, gpu2... on whose every GPU a job runs: 1, 2, ..."""
    scheduler = Scheduler()
    for number in range(machines):
        scheduler.see(a_machine(f"gpu{number + 1}", gpus=gpus, cpus=64))
    for job_id in range(1, gpus * machines + 1):
        scheduler.submit(a_job(job_id, gpus=1, time_s=time_s, owner="somebody"))
    assert len(scheduler.decide(now=0)) == gpus * machines
    return scheduler


def ids(placed: list[Placed]) -> list[int]:
    return [job.id for job in placed]


def test_the_oldest_job_is_first() -> None:
    scheduler = a_full_scheduler()
    scheduler.submit(a_job(12, gpus=1))
    scheduler.submit(a_job(11, gpus=1))
    scheduler.release(1, now=20)
    assert ids(scheduler.decide(now=20)) == [11]


def test_a_higher_priority_goes_first_however_young() -> None:
    scheduler = a_full_scheduler()
    scheduler.submit(a_job(11, gpus=1))
    scheduler.submit(a_job(12, gpus=1, priority=5))
    scheduler.submit(a_job(13, gpus=1, priority=-5))
    for expected in (12, 11, 13):
        scheduler.release({12: 1, 11: 12, 13: 11}[expected], now=20)
        assert ids(scheduler.decide(now=20)) == [expected]


def test_a_higher_priority_takes_over_what_was_kept() -> None:
    scheduler = a_full_scheduler(gpus=2)
    scheduler.submit(a_job(11, gpus=2))
    scheduler.decide(now=11)
    scheduler.submit(a_job(12, gpus=2, priority=1))
    scheduler.decide(now=12)
    assert scheduler.explain(12, now=12).reserved
    assert not scheduler.explain(11, now=12).reserved
    scheduler.submit(a_job(13, gpus=1, priority=2))
    scheduler.release(1, now=13)
    assert ids(scheduler.decide(now=13)) == [13]


def test_owners_take_turns_however_many_jobs_one_submitted_first() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine("gpu1", gpus=8, cpus=64))
    for job_id in range(1, 51):
        scheduler.submit(a_job(job_id, gpus=1, owner="anna", submitted=0))
    for job_id in range(51, 55):
        scheduler.submit(a_job(job_id, gpus=1, owner="ben", submitted=100))
    placed = ids(scheduler.decide(now=100))
    assert sum(1 for job_id in placed if job_id > 50) == 4


def test_who_used_much_lately_comes_later() -> None:
    scheduler = a_full_scheduler()
    scheduler.release(1, now=0)
    scheduler.submit(a_job(2, gpus=1, owner="anna"))
    scheduler.decide(now=2)
    scheduler.submit(a_job(3, gpus=1, owner="anna"))
    scheduler.submit(a_job(4, gpus=1, owner="ben"))
    scheduler.release(2, now=3_600)
    assert ids(scheduler.decide(now=3_600)) == [4]


def test_nobody_waits_for_ever_because_others_used_less() -> None:
    scheduler = a_full_scheduler()
    scheduler.submit(a_job(2, gpus=1, owner="somebody", submitted=0))
    scheduler.submit(a_job(3, gpus=1, owner="new", submitted=FULL_SHARE_S + 1))
    scheduler.release(1, now=FULL_SHARE_S + 2)
    assert ids(scheduler.decide(now=FULL_SHARE_S + 2)) == [2]


def test_usage_is_forgotten_by_half_in_a_half_life() -> None:
    shares = FairShares()
    assert shares.penalty_s("anna", 0) == 0
    shares.start("anna", 10, now=0)
    shares.stop("anna", 10, now=1000)
    shares.start("ben", 10, now=HALF_LIFE_S + 1000)
    shares.stop("ben", 10, now=HALF_LIFE_S + 2000)
    now = HALF_LIFE_S + 2000
    assert 1.9 < shares.penalty_s("ben", now) / shares.penalty_s("anna", now) < 2.1
    assert shares.penalty_s("cem", now) == 0


def test_what_ran_before_a_restart_counts() -> None:
    shares = FairShares()
    shares.start("anna", 1, now=1000)
    shares.start("ben", 1, now=0)
    assert shares.penalty_s("ben", 1000) > shares.penalty_s("anna", 1000)


def test_small_jobs_pass_a_big_one_only_where_they_do_not_delay_it() -> None:
    scheduler = a_full_scheduler(gpus=2, machines=2)
    scheduler.submit(a_job(11, gpus=2))
    scheduler.submit(a_job(12, gpus=1))
    scheduler.submit(a_job(13, gpus=1))
    assert scheduler.decide(now=20) == []
    kept = scheduler.explain(11, now=20)
    assert kept.kept == ("gpu1",)
    scheduler.release(1, now=21)
    assert scheduler.decide(now=21) == []
    scheduler.release(3, now=22)
    assert scheduler.decide(now=22) == [Placed(12, at("gpu2", 0))]
    scheduler.release(2, now=23)
    assert scheduler.decide(now=23) == [Placed(11, at("gpu1", 0, 1))]


def test_a_job_may_use_a_kept_machine_beside_the_head() -> None:
    scheduler = a_full_scheduler(gpus=2)
    scheduler.submit(a_job(11, gpus=2, cpus=4))
    scheduler.submit(a_job(12, cpus=80))
    scheduler.submit(a_job(13, cpus=80))
    assert ids(scheduler.decide(now=20)) == [12]
    scheduler.release(1, now=21)
    scheduler.release(2, now=21)
    assert ids(scheduler.decide(now=21)) == [11]
    scheduler.release(12, now=22)
    assert ids(scheduler.decide(now=22)) == [13]


def test_a_short_job_may_use_a_kept_machine_until_the_head_can_start() -> None:
    scheduler = a_full_scheduler(gpus=2, time_s=100)
    scheduler.submit(a_job(11, gpus=2))
    scheduler.submit(a_job(12, gpus=1, time_s=85))
    scheduler.submit(a_job(13, gpus=1, time_s=70))
    scheduler.decide(now=20)
    scheduler.release(1, now=25)
    assert ids(scheduler.decide(now=25)) == [13]
    scheduler.release(13, now=90)
    scheduler.release(2, now=90)
    assert ids(scheduler.decide(now=90)) == [11]


def test_a_short_job_does_not_pass_when_nobody_knows_when_the_head_starts() -> None:
    scheduler = a_full_scheduler(gpus=2)
    scheduler.submit(a_job(11, gpus=2))
    scheduler.submit(a_job(12, gpus=1, time_s=1))
    scheduler.decide(now=20)
    scheduler.release(1, now=21)
    assert scheduler.decide(now=21) == []


def test_machines_are_kept_where_the_head_can_start_soonest() -> None:
    scheduler = Scheduler()
    for name in ("gpu1", "gpu2", "gpu3"):
        scheduler.see(a_machine(name, gpus=2))
    for job_id, name, time_s in ((1, "gpu1", 0), (2, "gpu2", 50), (3, "gpu3", 500)):
        scheduler.adopt(a_job(job_id, gpus=2, time_s=time_s), at(name, 0, 1), started=0)
    scheduler.submit(a_job(11, gpus=2))
    scheduler.decide(now=20)
    assert scheduler.explain(11, now=20).kept == ("gpu2",)


def test_machines_are_kept_where_there_is_least_to_drain() -> None:
    scheduler = a_full_scheduler(gpus=4, machines=2)
    scheduler.release(5, now=1)
    scheduler.submit(a_job(11, gpus=4))
    scheduler.decide(now=20)
    assert scheduler.explain(11, now=20).kept == ("gpu2",)


def test_a_withdrawn_head_frees_what_was_kept_for_it() -> None:
    scheduler = a_full_scheduler(gpus=2)
    scheduler.submit(a_job(11, gpus=2))
    scheduler.submit(a_job(12, gpus=1))
    scheduler.decide(now=20)
    scheduler.release(1, now=21)
    assert scheduler.decide(now=21) == []
    assert scheduler.withdraw(11)
    assert ids(scheduler.decide(now=22)) == [12]


def test_a_head_whose_machine_vanished_is_kept_another() -> None:
    scheduler = a_full_scheduler(gpus=2, machines=2)
    scheduler.submit(a_job(11, gpus=2))
    scheduler.decide(now=20)
    scheduler.gone("gpu1")
    scheduler.submit(a_job(12, gpus=1))
    scheduler.decide(now=21)
    assert scheduler.explain(11, now=21).kept == ("gpu2",)
    scheduler.release(3, now=22)
    assert scheduler.decide(now=22) == []


def test_a_kept_machine_may_change_while_the_head_waits() -> None:
    scheduler = a_full_scheduler(gpus=2)
    scheduler.submit(a_job(11, gpus=1, cpus=64))
    scheduler.submit(a_job(12, cpus=30))
    assert ids(scheduler.decide(now=20)) == [12]
    scheduler.see(a_machine("gpu1", gpus=2, cpus=64, foreign_cpus=1.0))
    scheduler.submit(a_job(13, cpus=2))
    assert scheduler.decide(now=21) == []
    gpus = (a_gpu(0, foreign_mem_mb=5_000), a_gpu(1, foreign_mem_mb=5_000))
    scheduler.see(a_machine("gpu1", gpus=gpus, cpus=64))
    assert ids(scheduler.decide(now=22)) == [13]
    assert not scheduler.explain(11, now=22).reserved


def test_several_machines_are_kept_for_one_gang_though_one_of_them_changes() -> None:
    scheduler = a_full_scheduler(gpus=2, machines=2)
    scheduler.submit(a_job(11, gpus=2, processes=2))
    scheduler.decide(now=20)
    scheduler.see(a_machine("gpu2", gpus=2, cpus=64, foreign_cpus=3.0))
    scheduler.submit(a_job(12, gpus=1))
    for job_id in (1, 2, 3):
        scheduler.release(job_id, now=21)
        assert scheduler.decide(now=21) == []
    scheduler.release(4, now=22)
    assert ids(scheduler.decide(now=22)) == [11]
    scheduler.check_invariants()


def test_a_machine_that_leaves_the_cluster_is_not_kept_for_its_head() -> None:
    scheduler = a_full_scheduler(gpus=2)
    scheduler.submit(a_job(11, gpus=2))
    scheduler.decide(now=20)
    scheduler.see(a_machine("gpu1", gpus=2, cpus=64, clusters=("desk",)))
    scheduler.release(1, now=21)
    scheduler.release(2, now=21)
    scheduler.submit(a_job(12, gpus=1, cluster="desk"))
    assert ids(scheduler.decide(now=22)) == [12]


def test_two_clusters_on_one_machine_do_not_starve_each_other() -> None:
    scheduler = Scheduler()
    both = ("lab", "desk")
    scheduler.see(a_machine("gpu1", gpus=2, clusters=both))
    scheduler.submit(a_job(1, gpus=1))
    scheduler.decide(now=1)
    scheduler.submit(a_job(2, gpus=2))
    scheduler.submit(a_job(3, gpus=2, cluster="desk"))
    scheduler.submit(a_job(4, gpus=1, cluster="desk"))
    assert scheduler.decide(now=4) == []
    scheduler.release(1, now=5)
    assert ids(scheduler.decide(now=5)) == [2]
    scheduler.release(2, now=6)
    assert ids(scheduler.decide(now=6)) == [3]
    scheduler.release(3, now=7)
    assert ids(scheduler.decide(now=7)) == [4]


def test_what_another_cluster_was_kept_from_starts_in_the_same_round() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine("gpu1", gpus=2, clusters=("lab", "desk")))
    scheduler.see(a_machine("gpu2", gpus=2, clusters=("lab",)))
    scheduler.adopt(a_job(1, gpus=1), at("gpu1", 0), started=0)
    scheduler.adopt(a_job(2, gpus=1), at("gpu2", 0), started=0)
    scheduler.adopt(a_job(6, gpus=1), at("gpu2", 1), started=0)
    scheduler.submit(a_job(3, gpus=2))
    scheduler.submit(a_job(4, gpus=1, cluster="desk", priority=1))
    scheduler.submit(a_job(5, gpus=1, cluster="desk", priority=-1))
    assert ids(scheduler.decide(now=4)) == [4]
    scheduler.release(4, now=5)
    assert scheduler.decide(now=5) == []
    scheduler.release(2, now=6)
    scheduler.release(6, now=6)
    assert sorted(ids(scheduler.decide(now=6))) == [3, 5]


@settings(deadline=None, max_examples=60)
@given(
    gpus=st.integers(2, 4),
    machines=st.integers(1, 3),
    sizes=st.lists(st.integers(1, 2), min_size=10, max_size=40),
    order=st.randoms(use_true_random=False),
    processes=st.integers(1, 2),
)
def test_a_big_job_starts_when_those_that_ran_before_it_have_ended(
    gpus: int, machines: int, sizes: list[int], order: object, processes: int
) -> None:
    scheduler = a_full_scheduler(gpus, machines)
    before = list(range(1, gpus * machines + 1))
    processes = min(processes, machines)
    scheduler.submit(a_job(1000, gpus=gpus, processes=processes, owner="big"))
    scheduler.decide(now=1)
    running: list[int] = []
    order.shuffle(before)  # type: ignore[attr-defined]
    small = iter(range(1001, 2000))
    started: list[int] = []
    for now, size in enumerate(sizes, start=2):
        scheduler.submit(a_job(next(small), gpus=size, owner=f"small{now % 3}"))
        if before:
            scheduler.release(before.pop(), now)
        elif running:
            scheduler.release(running.pop(0), now)
        started += (placed := ids(scheduler.decide(now)))
        running += placed
        scheduler.check_invariants()
        if not before:
            assert 1000 in started
            return
    assert before or 1000 in started
