"""What users and groups may use at once, and for how long."""

from builders import a_job, a_machine, a_request
from towline.core.scheduling.obstacles import NeverFits, OverLimit
from towline.core.scheduling.scheduler import Placed, Scheduler
from towline.engine.obstacle_words import never_fits, waiting_text
from towline.model.request import GpuNeed
from towline.model.team.rules import Rulebook, UseLimits

BOTH = {"anna": frozenset({"students"}), "ben": frozenset({"students"}), "cem": frozenset[str]()}


def a_limited_scheduler(team: Rulebook) -> Scheduler:
    scheduler = Scheduler()
    scheduler.rules.change(team)
    scheduler.see(a_machine("n0", gpus=4, cpus=64))
    scheduler.see(a_machine("n1", gpus=4, cpus=64))
    return scheduler


def ids(placed: list[Placed]) -> list[int]:
    return [one.id for one in placed]


def test_a_user_has_so_many_gpus_at_once_and_the_others_are_free_for_all() -> None:
    scheduler = a_limited_scheduler(Rulebook(BOTH, {"anna": UseLimits(gpus=2)}))
    for number in range(1, 6):
        scheduler.submit(a_job(number, gpus=1, owner="anna"))
    scheduler.submit(a_job(6, owner="anna"))
    scheduler.submit(a_job(7, gpus=4, owner="cem"))
    assert sorted(ids(scheduler.decide(now=10))) == [1, 2, 6, 7]
    why = scheduler.explain(3, now=10)
    assert why == OverLimit(cluster="lab", whose="anna", what="gpus", most=2, used=2)
    assert waiting_text(why) == "anna may use 2 GPUs at once, and 2 are in use"
    scheduler.release(6, now=20)
    assert scheduler.decide(now=20) == []
    scheduler.release(1, now=30)
    assert ids(scheduler.decide(now=30)) == [3]
    scheduler.check_invariants()


def test_the_members_of_a_group_share_its_limit() -> None:
    scheduler = a_limited_scheduler(Rulebook(BOTH, {}, {"students": UseLimits(jobs=3)}))
    for number in range(1, 9):
        scheduler.submit(a_job(number, owner=("anna", "ben")[number % 2]))
    scheduler.submit(a_job(20, owner="cem"))
    placed = ids(scheduler.decide(now=10))
    assert len(placed) == 4 and 20 in placed
    waiting = next(number for number in range(1, 9) if number not in placed)
    assert waiting_text(scheduler.explain(waiting, now=10)) == (
        "the members of students together may run 3 jobs at once, and 3 are in use"
    )
    scheduler.release(20, now=11)
    assert scheduler.decide(now=11) == []
    scheduler.release(next(one for one in placed if one != 20), now=12)
    assert len(scheduler.decide(now=12)) == 1


def test_what_ended_elsewhere_makes_room_for_what_waits_for_another_machine() -> None:
    scheduler = a_limited_scheduler(Rulebook(BOTH, {"anna": UseLimits(jobs=1)}))
    scheduler.see(a_machine("cpu", cpus=128))
    scheduler.submit(a_job(1, cpus=100, owner="anna"))
    scheduler.decide(now=1)
    scheduler.submit(a_job(2, gpus=1, owner="anna"))
    assert scheduler.decide(now=2) == []
    scheduler.release(1, now=3)
    assert ids(scheduler.decide(now=3)) == [2]


def test_no_machine_is_kept_for_who_has_all_they_may_have() -> None:
    scheduler = a_limited_scheduler(Rulebook(BOTH, {"anna": UseLimits(gpus=4)}))
    for number, owner in ((1, "anna"), (2, "cem"), (3, "cem"), (4, "cem")):
        scheduler.submit(a_job(number, gpus=2, owner=owner))
    assert len(scheduler.decide(now=1)) == 4
    scheduler.submit(a_job(5, gpus=4, owner="anna"))
    scheduler.decide(now=2)
    assert isinstance(scheduler.explain(5, now=2), OverLimit)
    assert not scheduler.reservations.by_host
    scheduler.release(1, now=3)
    scheduler.decide(now=3)
    assert scheduler.explain(5, now=3).reserved
    scheduler.rules.change(Rulebook(BOTH, {"anna": UseLimits(gpus=4, jobs=1)}))
    scheduler.submit(a_job(6, owner="anna"))
    # Only one of hers at a time: whoever comes first has it, and nothing is kept for the other.
    scheduler.decide(now=4)
    scheduler.see(a_machine("n2", cpus=8))
    scheduler.decide(now=5)
    assert not scheduler.reservations.by_host
    scheduler.check_invariants()


def test_more_than_one_may_ever_have_is_refused_and_a_lifted_limit_counts_at_once() -> None:
    scheduler = a_limited_scheduler(Rulebook(BOTH, {"anna": UseLimits(gpus=2)}))
    four = a_request(gpus=(GpuNeed(4, ""),))
    never = scheduler.impossible("lab", four, "anna")
    assert isinstance(never, NeverFits) and "anna may use 2 GPUs at once" in never_fits(never)
    scheduler.submit(a_job(1, request=four, owner="anna"))
    assert scheduler.decide(now=1) == []
    scheduler.rules.change(Rulebook(BOTH))
    assert ids(scheduler.decide(now=2)) == [1]


def test_the_shortest_of_all_running_times_holds() -> None:
    limits = {"anna": UseLimits(time_s=7200)}
    rules = a_limited_scheduler(Rulebook(BOTH, limits, {"students": UseLimits(time_s=3600)})).rules
    assert (rules.longest_s("anna"), rules.longest_s("ben"), rules.longest_s("cem")) == (
        3600,
        3600,
        0,
    )
