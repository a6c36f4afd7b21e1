"""Short jobs on machines far away follow one another without a round trip between two."""

from collections.abc import Iterable
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import a_job, a_machine, a_request
from core.far_world import Far, World, random_lengths
from towline.core.machines.demand import demand_of
from towline.core.scheduling.scheduler import Scheduler
from towline.core.scheduling.series import MOST_IDLE, AllSeries, Series, name_of
from towline.engine.obstacle_words import waiting_text
from towline.model.events import MachineAway, MachineSeen, StopAsked
from towline.model.job import State, standing
from towline.model.journal import Kind
from towline.model.request import GpuNeed, Need

CPU = demand_of(Need())


def all_done(world: World, jobs: Iterable[int]) -> bool:
    return all(world.ended[job].state is State.DONE and world.runs[job] == 1 for job in jobs)


def test_two_hundred_short_jobs_far_away_take_hardly_longer_than_next_door() -> None:
    took = {}
    for away_s in (0.0, 0.05, 0.15):
        world = World(lambda job: 0.008, Far("h1", away_s, cpus=2))
        began = world.now
        jobs = world.submit(200)
        world.run()
        assert all_done(world, jobs)
        took[away_s] = max(end for _, end in world.ends.values()) - began
    assert took[0.05] < 2 * took[0.0]
    assert took[0.15] < 3 * took[0.0]


def test_long_jobs_and_near_machines_get_nothing_ahead() -> None:
    for length_s, away_s in ((5.0, 0.05), (0.002, 0.0), (0.002, 0.001)):
        world = World(lambda job, length_s=length_s: length_s, Far("h1", away_s, cpus=2))
        world.submit(30)
        while world.core.jobs:
            world.run(until=0.01)
            assert not any(job.attempt and job.attempt.places for job in world.core.jobs.values())


def test_jobs_sent_ahead_begin_in_their_order() -> None:
    world = World(lambda job: 0.01, Far("h1", 0.1, cpus=2))
    jobs = world.submit(100)
    world.run()
    assert world.order == jobs
    assert world.most_running["h1"] == 3


def test_gpus_whole_machines_and_other_snapshots_are_never_of_a_series() -> None:
    assert not name_of(demand_of(Need(gpus=(GpuNeed(1, ""),))), "tree")
    assert not name_of(demand_of(Need(exclusive=True)), "tree")
    assert name_of(CPU, "a") != name_of(CPU, "b") != name_of(demand_of(Need(cpus=2)), "b")


def test_a_gang_that_is_next_is_not_sent_ahead_nor_is_anybody_behind_it() -> None:
    scheduler = Scheduler()
    scheduler.series.reached("h1", 0.1)
    scheduler.see(a_machine("h1", cpus=2))
    for job in range(1, 10):
        scheduler.submit(a_job(job))
    [first, *_] = scheduler.decide(0.0)
    assert scheduler.series.named(first.id) and not first.places
    gang = a_job(100, request=a_request(2), submitted=-1.0)
    scheduler.submit(gang)
    scheduler.release(first.id, 0.2)
    assert not any(placed.places for placed in scheduler.decide(0.2))
    assert scheduler.withdraw(gang.id)
    assert {placed.places for placed in scheduler.decide(0.2)} == {3}
    scheduler.check_invariants()


def test_of_a_batch_with_a_limit_one_begins_far_away_when_another_ends() -> None:
    took = {}
    for away_s in (0.0, 0.05, 0.15):
        world = World(lambda job: 0.008, Far("h1", away_s, cpus=8))
        began = world.now
        jobs = world.submit(200, batch="b", at_most=2)
        world.run()
        assert all_done(world, jobs) and world.order == jobs
        assert world.most_running["b"] == 2
        took[away_s] = max(end for _, end in world.ends.values()) - began
    assert took[0.05] < 2 * took[0.0]
    assert took[0.15] < 3 * took[0.0]


def test_places_of_a_batch_with_a_limit_are_for_nobody_else_and_others_use_what_is_left() -> None:
    world = World(lambda job: 0.02, Far("h1", 0.1, cpus=4), Far("h2", 0.0, cpus=4))
    few = world.submit(60, batch="few", at_most=3)
    many = world.submit(200)
    world.run()
    assert all_done(world, [*few, *many])
    assert world.most_running["few"] == 3


def test_a_job_of_a_batch_with_a_limit_says_that_others_of_it_run() -> None:
    world = World(lambda job: 10.0, Far("h1", 0.0, cpus=8))
    jobs = world.submit(5, batch="b", at_most=2)
    told = world.core.scheduler.explain(jobs[-1], world.now)
    assert waiting_text(told) == "2 of its batch run at a time"
    assert world.core.scheduler.waiting_count == 0
    world.tell(StopAsked((jobs[-1],)))
    world.run()
    assert world.ended[jobs[-1]].state is State.STOPPED and all_done(world, jobs[:-1])


def test_a_failed_job_of_a_batch_with_a_limit_of_one_is_tried_again_before_the_next() -> None:
    scheduler = Scheduler()
    scheduler.see(a_machine("h1", cpus=8))
    for job in range(1, 4):
        scheduler.submit(a_job(job, batch="b", at_most=1))
    assert [placed.id for placed in scheduler.decide(0.0)] == [1]
    scheduler.release(1, 1.0)
    scheduler.submit(a_job(1, batch="b", at_most=1))
    assert [placed.id for placed in scheduler.decide(1.0)] == [1]
    scheduler.check_invariants()


def waiting_there(world: World) -> list[int]:
    ahead = world.core.scheduler.series.is_ahead
    return [job for job in world.core.jobs if ahead(job)]


def a_series_at_work(world: World, count: int = 400) -> list[int]:
    """Jobs of which some are sent ahead by now."""
    jobs = world.submit(count)
    while not len(waiting_there(world)) > 3:
        world.run(until=0.01)
    return jobs


def test_a_higher_priority_comes_before_what_was_sent_ahead() -> None:
    world = World(lambda job: 0.02, Far("h1", 0.1, cpus=2))
    a_series_at_work(world)
    world.run(until=0.5)
    ahead = waiting_there(world)
    [urgent] = world.submit(1, priority=5)
    begun = len(world.order)
    world.run()
    assert world.recalled >= set(ahead[-3:])
    # What runs or begins while word of it travels: three places, two ways, and their lengths.
    assert world.order.index(urgent) - begun < len(ahead)
    assert all_done(world, [*world.ended])


def test_what_happens_to_a_job_sent_ahead_has_words_of_its_own() -> None:
    world = World(lambda job: 0.02, Far("h1", 0.1, cpus=2))
    a_series_at_work(world)
    world.submit(1, priority=5)
    world.run()
    [back, *_] = world.recalled
    assert [kind for job, kind in world.told if job == back][:4] == [
        Kind.SUBMITTED, Kind.SENT_AHEAD, Kind.CAME_BACK, Kind.SENT_AHEAD,
    ]  # fmt: skip


def test_what_was_sent_ahead_can_be_stopped_and_never_begins() -> None:
    world = World(lambda job: 0.05, Far("h1", 0.2, cpus=2))
    a_series_at_work(world)
    world.run(until=1.0)
    last = waiting_there(world)[-1]
    world.tell(StopAsked((last,)))
    world.run()
    assert world.ended[last].state is State.STOPPED
    assert world.runs[last] == 0
    assert all_done(world, world.ended.keys() - {last})


def test_a_free_place_elsewhere_gets_what_waits_behind_a_long_job() -> None:
    long = set(range(200, 203))
    world = World(lambda job: 60.0 if job in long else 0.02, Far("h1", 0.1, cpus=2))
    began = world.now
    jobs = a_series_at_work(world, 210)
    world.run(until=0.2)
    world.machines["h2"] = Far("h2", 0.0, cpus=8)
    world.tell(MachineSeen(a_machine("h2", cpus=8)))
    world.run()
    assert all_done(world, jobs)
    short = [end for job, (_, end) in world.ends.items() if job not in long]
    assert max(short) - began < 30.0


def test_behind_jobs_that_last_longer_than_expected_nobody_waits_for_long() -> None:
    world = World(lambda job: 0.02 if job < 100 else 600.0, Far("h1", 0.1, cpus=2))
    a_series_at_work(world, 150)
    world.run(until=30.0)
    assert not waiting_there(world)
    assert world.recalled


def test_a_machine_that_is_closed_gives_back_what_has_not_begun() -> None:
    world = World(lambda job: 0.05, Far("h1", 0.1, cpus=2))
    a_series_at_work(world)
    ahead = waiting_there(world)
    closed = a_machine("h1", cpus=2, closed="has quiet hours until 18:00")
    world.tell(MachineSeen(closed))
    assert world.recalled == set(ahead)
    world.run(until=5.0)
    assert not world.machines["h1"].running and not waiting_there(world)


def test_a_bigger_job_that_is_next_gets_the_machine() -> None:
    world = World(lambda job: 0.02 if job < 300 else 1.0, Far("h1", 0.1, cpus=2))
    a_series_at_work(world, 299)
    big = world.submit(1, cpus=3.0, priority=1)
    begun = len(world.order)
    world.run()
    assert world.order.index(big[0]) - begun < 60
    assert all_done(world, [*world.ended])


def test_a_job_that_was_sent_ahead_is_shown_as_queued_and_says_what_it_waits_for() -> None:
    world = World(lambda job: 0.02, Far("h1", 0.1, cpus=2))
    a_series_at_work(world)
    job = waiting_there(world)[0]
    assert standing(world.core.jobs[job]) == "queued"
    told = world.core.scheduler.explain(job, world.now)
    running = world.core.scheduler.series.behind(job)
    assert waiting_text(told) == (
        f"it is next on h1, and starts as soon as job {running[0]}, {running[1]} or {running[2]}"
        " has ended"
    )


def test_how_many_are_sent_ahead_follows_the_round_trip_and_their_length() -> None:
    def most(away_s: float, length_s: float, places: int = 2) -> int:
        series = Series("h1", "x", CPU)
        series.places = dict.fromkeys(range(places), 0.0)
        series.recent.extend([length_s] * 3)
        return series.most_ahead(away_s)

    assert most(0.05, 0.01) < most(0.15, 0.01) < most(0.15, 0.005)
    assert most(0.05, 0.01, places=8) > 3 * most(0.05, 0.01)
    assert most(0.05, 1.0) == most(0.001, 0.001) == 0
    assert 1 <= most(0.15, 1.0) <= 2


@settings(max_examples=settings().max_examples // 6, deadline=None)
@given(st.integers(0, 10**6))
def test_whatever_breaks_each_job_runs_once_and_no_machine_runs_too_many(seed: int) -> None:
    random = Random(seed)
    machines = [
        Far(f"h{n}", random.choice((0.0, 0.02, 0.05, 0.15)), random.choice((1, 2, 4)))
        for n in range(random.randint(1, 3))
    ]
    lengths = random.choice(((0.002,), (0.01, 0.02), (0.005, 0.005, 1.0), (0.1, 0.5)))
    world = World(random_lengths(seed, *lengths), *machines)
    stopped: set[int] = set()
    for _ in range(random.randint(2, 12)):
        happens = random.random()
        if happens < 0.5:
            cpus, priority = random.choice((0.5, 1.0, 1.5)), random.choice((0, 0, 1))
            most = random.choice((0, 0, 1, 2, 5))
            batch = f"b{most}" if most else ""
            more = {"snapshot": random.choice("ab"), "batch": batch, "at_most": most}
            world.submit(random.randint(1, 80), cpus, priority, **more)
        elif happens < 0.55:
            world.restart()
        elif happens < 0.75:
            world.cut(random.choice(machines).name, random.uniform(0.05, 2.0))
        elif happens < 0.9 and world.core.jobs:
            some = random.sample(sorted(world.core.jobs), min(5, len(world.core.jobs)))
            stopped.update(some)
            world.tell(StopAsked(tuple(some)))
        else:
            name = random.choice(machines).name
            world.tell(MachineAway(name, random.choice((0.0, 0.05, 0.3))))
        world.run(until=random.choice((0.01, 0.1, 0.6)))
    world.run()
    assert not world.core.jobs
    for job, ended in world.ended.items():
        if job in stopped:
            assert world.runs[job] <= 1
        else:
            assert ended.state is State.DONE and world.runs[job] == 1, ended


def test_of_a_lab_of_thousands_a_decision_looks_only_at_what_may_be_sent_ahead() -> None:
    every = AllSeries()
    for number in range(2 * MOST_IDLE):
        every.join(f"h{number}", "x", CPU, number, 0.0)
    assert len(list(every)) == 2 * MOST_IDLE
    assert not every.short and not every.with_ahead
    for number in range(2 * MOST_IDLE):
        every.leave(number, 0.01)
    assert not list(every) and len(every.remembered) == MOST_IDLE
    last = f"h{2 * MOST_IDLE - 1}"
    every.reached(last, 0.1)
    every.join(last, "x", CPU, 1, 1.0)
    assert [series.machine for series in every.short] == [last]
