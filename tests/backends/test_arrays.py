"""Which attempts go into Slurm's queue together, and how many at a time."""

from typing import Any

from towline.backends.queue.attempt import step
from towline.backends.queue.entries import Limits, grouped, in_turn, is_inside
from towline.backends.queue.facts import Recorded
from towline.backends.queue.handover import Handover, by_name
from towline.backends.queue.state import Attempt, Place
from towline.backends.slurm.dialect import listed_entry
from towline.probes.slurm import SlurmEntry


def attempt(number: int, **more: Any) -> Attempt:
    return Attempt(f"e-{number}-1", number, 1, 1, "Slurm", **more)


def handover(number: int, group: str = "", array: str = "") -> Handover:
    return Handover(
        attempt(number, array=array),
        message=lambda root: {},
        words=lambda name, root, tasks, at_once: [],
        group=group,
    )


def test_attempts_of_an_earlier_array_stay_together() -> None:
    some = [handover(1, "g"), handover(2, "g", "a"), handover(3, "g")]
    assert [[one.attempt.job for one in part] for part in grouped(some).values()] == [[1, 3], [2]]


def test_next_array_comes_when_half_of_those_that_may_run_have_ended() -> None:
    assert [in_turn(8, inside) for inside in (0, 3, 4, 5, 900)] == [8, 5, 4, 0, 0]
    assert [in_turn(1, inside) for inside in (0, 1)] == [1, 0]


def test_what_may_have_been_submitted_counts_as_being_there() -> None:
    assert not is_inside(attempt(1))
    assert not is_inside(attempt(1, place=Place.UNANSWERED))
    assert is_inside(attempt(1, place=Place.UNANSWERED, array="a"))
    for place in (Place.ASKING, Place.IN_QUEUE, Place.CLAIMED):
        assert is_inside(attempt(1, place=place))
    assert not is_inside(attempt(1, place=Place.OVER, id="7_0"))


def test_site_says_how_long_arrays_may_be() -> None:
    limits = Limits()
    for said, most in ((None, 1000), (1001, 1000), (20, 20), (0, 0), (1, 0)):
        limits.learn(said)
        assert limits.most(now=0.0) == most


def test_full_queue_is_offered_less_and_refilled_as_it_drains() -> None:
    limits = Limits()
    assert limits.refused(1000, inside=0, now=10.0, pause_s=60.0) == 10.0
    assert limits.most(now=10.0) == 500
    limits.accepted()
    # 500 are in it: a quarter of that many must end before more are offered.
    assert limits.refused(500, inside=500, now=20.0, pause_s=60.0) == 80.0
    assert limits.most(now=21.0) == 0
    for _ in range(125):
        limits.ended()
    assert limits.most(now=21.0) == 125
    assert limits.is_narrow
    limits.all_sent()
    assert limits.most(now=100.0) == 1000


def test_full_queue_is_tried_again_after_a_while_though_nothing_of_ours_ended() -> None:
    limits = Limits()
    limits.refused(1, inside=0, now=10.0, pause_s=60.0)
    assert limits.most(now=69.0) == 0
    assert limits.most(now=70.0) == 1


def test_tasks_are_known_by_their_array_and_number() -> None:
    task = listed_entry(SlurmEntry("12_7", "RUNNING", comment="towline:e-a1"))
    assert by_name([task]) == {"e-a1_7": [task]}
    one = attempt(1, array="e-a1", index=7)
    assert one.name == "e-a1_7"
    assert one.number_in("12") == "12_7"
    assert one.number_in("") == ""


def test_files_over_there_tell_which_entry_an_attempt_is() -> None:
    one = attempt(1, place=Place.UNANSWERED)
    one, _ = step(one, Recorded("12", ("e-a1", 3)), 0.0)
    assert (one.name, one.id, one.place) == ("e-a1_3", "12_3", Place.IN_QUEUE)
    one, _ = step(one, Recorded("14", ("e-a2", 5), ("12_3", "0", "e-a1")), 0.0)
    assert (one.name, one.id, one.place) == ("e-a1_3", "12_3", Place.CLAIMED)


def test_number_that_slurm_has_lost_is_not_taken_up_again() -> None:
    one = attempt(1, place=Place.UNANSWERED, vanished=True)
    one, _ = step(one, Recorded("12", ("e-a1", 3)), 0.0)
    assert (one.array, one.id, one.place) == ("", "", Place.UNANSWERED)
