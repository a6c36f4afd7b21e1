"""Machines and GPUs that are for some groups only, in placement, explanation and at submission."""

from typing import Any

from builders import a_gpu, a_job, a_machine, a_request, at
from towline.core.decide import Core
from towline.core.scheduling.obstacles import ForGroups, NeverFits
from towline.core.scheduling.scheduler import Placed, Scheduler
from towline.engine.obstacle_words import obstacle_words
from towline.engine.reasons import reason_words
from towline.model.events import MachineGone, MachineSeen, Submitted, TeamSeen
from towline.model.grammar import parse_request
from towline.model.job import JobSpec, State
from towline.model.machine import Machine
from towline.model.reason import FORBIDDEN
from towline.model.request import GpuNeed
from towline.model.team.rules import Rulebook

TEAM = Rulebook({"anna": frozenset({"students"}), "ben": frozenset(), "cem": frozenset({"staff"})})
ALIASES = (("gtx1070", "GeForce GTX 1070"),)


def a_node(
    name: str = "n0", groups: tuple[tuple[str, ...], ...] = ((), ()), **more: Any
) -> Machine:
    """A machine with a GPU for each of these sets of groups."""
    gpus = tuple(a_gpu(n, "GeForce GTX 1070", groups=allowed) for n, allowed in enumerate(groups))
    return a_machine(name, gpus=gpus, aliases=ALIASES, exact_names=True, **more)


def a_team_scheduler(*machines: Machine, team: Rulebook = TEAM) -> Scheduler:
    scheduler = Scheduler()
    scheduler.rules.change(team)
    for machine in machines:
        scheduler.see(machine)
    return scheduler


def where(placed: list[Placed]) -> dict[int, tuple[int, ...]]:
    return {one.id: one.placement[0].gpus for one in placed}


def test_a_gpu_for_a_group_goes_to_its_members_only() -> None:
    scheduler = a_team_scheduler(a_node(groups=(("students",), ())))
    scheduler.submit(a_job(1, gpus="gtx1070", owner="ben"))
    scheduler.submit(a_job(2, gpus="gtx1070", owner="ben"))
    scheduler.submit(a_job(3, gpus="gtx1070", owner="anna"))
    assert where(scheduler.decide(now=10)) == {1: (1,), 3: (0,)}
    scheduler.release(3, now=20)
    assert scheduler.decide(now=20) == []
    scheduler.release(1, now=30)
    assert where(scheduler.decide(now=30)) == {2: (1,)}
    scheduler.check_invariants()


def test_two_gpus_of_which_one_is_for_others_are_never_both_given() -> None:
    scheduler = a_team_scheduler(a_node(groups=(("students",), ())))
    two = a_request(gpus=(GpuNeed(2, "gtx1070"),))
    never = scheduler.impossible("lab", two, "ben")
    assert isinstance(never, NeverFits)
    assert never.lacks == (ForGroups(("students",), "gtx1070"),)
    assert obstacle_words(never.lacks) == "keeps GPUs gtx1070 for members of students"
    assert scheduler.impossible("lab", two, "anna") is None


def test_a_machine_for_a_group_takes_no_process_without_gpus_of_others() -> None:
    scheduler = a_team_scheduler(
        a_node("n0", groups=((),)), a_machine("n1", cpus=64, groups=("staff",))
    )
    scheduler.submit(a_job(1, cpus=32, owner="cem"))
    scheduler.submit(a_job(2, cpus=32, owner="ben"))
    assert [one.id for one in scheduler.decide(now=1)] == [1]
    why = scheduler.explain(2, now=1)
    assert (ForGroups(("staff",)),) in [reason.obstacles for reason in why.reasons]
    assert scheduler.impossible("lab", a_request(cpus=32), "ben") is not None
    scheduler.remove("n0")
    never = scheduler.impossible("lab", a_request(cpus=32), "ben")
    assert never == NeverFits("lab", "ben", "n1", (ForGroups(("staff",)),))


def test_no_right_is_inherited_by_whoever_is_in_no_group() -> None:
    scheduler = a_team_scheduler(a_node(groups=(("staff",), ("staff",))))
    assert scheduler.impossible("lab", a_request(gpus="gtx1070"), "admin") is not None
    assert scheduler.impossible("lab", a_request(gpus="gtx1070"), "cem") is None


def test_machines_that_are_away_count_for_what_is_possible() -> None:
    scheduler = a_team_scheduler(a_node(groups=(("staff",), ("staff",))))
    scheduler.gone("n0")
    assert scheduler.impossible("lab", a_request(gpus="gtx1070"), "cem") is None
    assert scheduler.impossible("lab", a_request(gpus="gtx1070"), "ben") is not None


def test_nothing_is_kept_where_the_owner_has_no_right() -> None:
    scheduler = a_team_scheduler(a_node("n0", groups=(("staff",), ("staff",))), a_node("n1"))
    scheduler.submit(a_job(1, gpus="gtx1070", owner="ben"))
    scheduler.decide(now=1)
    scheduler.submit(a_job(2, request=a_request(gpus=(GpuNeed(2, "gtx1070"),)), owner="ben"))
    scheduler.decide(now=2)
    assert scheduler.explain(2, now=2).kept == ("n1",)


def test_who_joins_a_group_gets_its_gpus_at_once_and_loses_them_when_leaving() -> None:
    scheduler = a_team_scheduler(a_node(groups=(("staff",), ("staff",))), a_node("n1", groups=()))
    scheduler.submit(a_job(1, gpus="gtx1070", owner="ben"))
    scheduler.submit(a_job(2, gpus="gtx1070", owner="ben"))
    assert scheduler.decide(now=1) == []
    scheduler.rules.change(Rulebook({"ben": frozenset({"staff"})}))
    assert len(scheduler.decide(now=2)) == 2
    scheduler.submit(a_job(3, gpus="gtx1070", owner="ben"))
    scheduler.release(1, now=3)
    scheduler.rules.change(Rulebook({"ben": frozenset()}))
    assert scheduler.decide(now=3) == []
    scheduler.check_invariants()


def test_a_machine_that_is_for_a_group_from_now_on_lets_its_jobs_run_and_takes_no_others() -> None:
    scheduler = a_team_scheduler(a_node())
    scheduler.submit(a_job(1, gpus="gtx1070", owner="ben"))
    scheduler.decide(now=1)
    scheduler.submit(a_job(2, gpus="gtx1070", owner="ben"))
    scheduler.submit(a_job(3, gpus="gtx1070", owner="anna"))
    scheduler.see(a_node(groups=(("students",), ("students",))))
    assert where(scheduler.decide(now=2)) == {3: (1,)}
    assert scheduler.running_count == 2
    scheduler.check_invariants()


def test_a_name_is_an_alias_or_a_whole_model_and_a_new_alias_counts_at_once() -> None:
    ti = a_machine("n1", gpus=(a_gpu(0, "GeForce GTX 1070 Ti"),), aliases=ALIASES, exact_names=True)
    scheduler = a_team_scheduler(a_node(), ti)
    assert scheduler.plan(a_job(1, gpus="gtx1070"), now=0) == at("n0", 0)
    assert scheduler.plan(a_job(1, gpus="GeForce GTX 1070 Ti"), now=0) == at("n1", 0)
    assert scheduler.impossible("lab", a_request(gpus="1070"), "anna") is not None
    assert scheduler.impossible("lab", a_request(gpus="ti"), "anna") is not None
    scheduler.submit(a_job(1, gpus="fast", owner="anna"))
    assert scheduler.decide(now=1) == []
    scheduler.see(
        a_machine(
            "n1",
            gpus=(a_gpu(0, "GeForce GTX 1070 Ti"),),
            aliases=(*ALIASES, ("fast", "GeForce GTX 1070 Ti")),
            exact_names=True,
        )
    )
    assert [one.placement for one in scheduler.decide(now=2)] == [at("n1", 0)]


def submitted(number: int, owner: str, request: str) -> Submitted:
    spec = JobSpec(("true",), cluster="lab", owner=owner, request=request)
    return Submitted(number, spec, parse_request(request))


def test_who_loses_a_right_ends_what_waits_for_it_and_nothing_else() -> None:
    core = Core()
    node = a_node(groups=(("students",), ("students",)))
    core.handle([TeamSeen(TEAM), MachineSeen(node), MachineSeen(a_machine("n1"))], 1.0)
    core.handle([MachineGone("n0")], 2.0)
    jobs = [
        submitted(1, "anna", "[gtx1070]"),
        submitted(2, "anna", "[]"),
    ]
    core.handle(jobs, 3.0)
    # Nobody has such a GPU: that is no matter of rights, and it may come.
    core.handle([submitted(3, "anna", "[a100]")], 3.0)
    step = core.handle([TeamSeen(Rulebook({"anna": frozenset()}), check=True)], 4.0)
    assert step.changed.keys() == {1}
    ended = step.changed[1]
    assert (ended.state, ended.reason) == (State.STOPPED, FORBIDDEN)
    assert "may use" in reason_words(ended.reason)
    assert core.jobs.keys() == {2, 3}
    core.scheduler.check_invariants()
