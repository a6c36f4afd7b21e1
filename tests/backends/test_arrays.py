"""Which attempts go into Slurm's queue together, and how many at a time."""

from typing import Any

from towline.backends.queue.entries import Limits, grouped, in_turn, is_inside
from towline.backends.queue.handover import Handover, by_name
from towline.backends.slurm.dialect import listed_entry
from towline.probes.slurm import Listed


def handed(number: int, **more: Any) -> Handover:
    return Handover(
        key=f"e-{number}-1",
        job=number,
        attempt=1,
        count=1,
        message=lambda root: {},
        words=lambda name, root, tasks, at_once: [],
        **more,
    )


def test_attempts_of_an_earlier_array_stay_together() -> None:
    some = [handed(1, group="g"), handed(2, group="g", array="a"), handed(3, group="g")]
    assert [[one.job for one in part] for part in grouped(some).values()] == [[1, 3], [2]]


def test_next_array_comes_when_half_of_those_that_may_run_have_ended() -> None:
    one = handed(1, at_once=8)
    assert [in_turn(one, there) for there in (0, 3, 4, 5, 900)] == [8, 5, 4, 0, 0]
    assert [in_turn(handed(1, at_once=1), there) for there in (0, 1)] == [1, 0]


def test_what_may_have_been_submitted_counts_as_being_there() -> None:
    assert not is_inside(handed(1))
    assert is_inside(handed(1, sent=True, array="a"))
    assert is_inside(handed(1, id="7_0"))
    assert not is_inside(handed(1, id="7_0", ended={0}))


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
    task = listed_entry(Listed("12_7", "RUNNING", comment="towline:e-a1"))
    assert by_name([task]) == {"e-a1_7": [task]}
    one = handed(1, array="e-a1", index=7)
    assert one.entry == "e-a1_7"
    assert one.number_in("12") == "12_7"
    assert one.number_in("") == ""


def test_files_over_there_tell_which_entry_an_attempt_is() -> None:
    one = handed(1)
    one.recorded(["e-a1", 3], "12", [])
    assert (one.array, one.index, one.id, one.claimed) == ("e-a1", 3, "12_3", False)
    one.recorded(["e-a2", 5], "14", ["12_3", "0", "e-a1"])
    assert (one.entry, one.id, one.claimed) == ("e-a1_3", "12_3", True)


def test_number_that_slurm_has_lost_is_not_taken_up_again() -> None:
    one = handed(1, vanished=True)
    one.recorded(["e-a1", 3], "12", [])
    assert (one.array, one.id) == ("", "")
