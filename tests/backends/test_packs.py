"""Lines of a batch that go into a queue as one entry."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from towline.backends.queue import facts
from towline.backends.queue.attempt import step
from towline.backends.queue.dialect import ListedEntry, Phase, Verdict
from towline.backends.queue.entries import PackGathering, Submission, packs_beside
from towline.backends.queue.handover import Handover
from towline.backends.queue.state import Attempt, Place, is_pack, pack_name
from towline.backends.queue.times import Times
from towline.model.job import Ending
from towline.model.request import Packing

PACK = pack_name("e", "0a")
TIMES = Times()


def line(number: int, lines: int = 4, **more: Any) -> Handover:
    return Handover(
        Attempt(f"e-{number}-1", number, 1, 1, "Slurm", **more),
        message=lambda root: {},
        words=lambda name, root, tasks, at_once: [],
        group="g",
        pack=Packing(parallel=2, lines=lines),
    )


def numbers(packs: list[list[Handover]]) -> list[list[int]]:
    return [[one.attempt.job for one in pack] for pack in packs]


def test_name_says_whether_it_is_a_pack_or_an_array() -> None:
    assert is_pack(PACK) and not is_pack("e-a0a") and not is_pack("")
    assert not Submission([], PACK).is_array and Submission([], "e-a0a").is_array
    packed = line(1, array=PACK, index=3).attempt
    assert (packed.name, packed.number_in("17")) == (PACK, "17")
    task = line(1, array="e-a0a", index=3).attempt
    assert (task.name, task.number_in("17")) == ("e-a0a_3", "17_3")


def test_full_packs_go_at_once_and_the_rest_waits_a_moment_for_more() -> None:
    gathering = PackGathering(1.5)
    some = [line(number) for number in range(1, 10)]
    packs, look_at = gathering.packs(some, now=10.0)
    assert (numbers(packs), look_at) == ([[1, 2, 3, 4], [5, 6, 7, 8]], 11.5)
    # One more has come: it waits for others from then on.
    some = [some[-1], line(10)]
    assert gathering.packs(some, now=11.0) == ([], 12.5)
    assert gathering.packs(some, now=12.0) == ([], 12.5)
    packs, look_at = gathering.packs(some, now=12.5)
    assert (numbers(packs), look_at) == ([[9, 10]], 0.0)


@given(
    arrivals=st.lists(st.tuples(st.floats(0, 3), st.integers(0, 9)), max_size=30),
    size=st.integers(0, 5),
)
def test_whenever_lines_come_each_goes_once(arrivals: list[tuple[float, int]], size: int) -> None:
    gathering, now, waiting, gone, number = PackGathering(1.5), 0.0, [], [], 0
    for pause, count in [*arrivals, (10.0, 0), (10.0, 0)]:
        now += pause
        waiting += [line(number + place, size) for place in range(count)]
        number += count
        if waiting:
            packs, look_at = gathering.packs(waiting, now)
            assert look_at == 0.0 or now < look_at <= now + 1.5
            gone += [one.attempt.job for pack in packs for one in pack]
            assert not size or all(len(pack) <= size for pack in packs)
            waiting = [one for one in waiting if one.attempt.job not in gone]
    assert gone == list(range(number))


def test_no_more_allocations_than_lines_may_run_at_a_time() -> None:
    inside = [line(number, array=PACK).attempt for number in (1, 2, 3)]
    assert packs_beside(Packing(parallel=4), 0, inside) > 1000
    assert packs_beside(Packing(parallel=4), 8, inside) == 1
    assert packs_beside(Packing(parallel=4), 3, inside) == 0
    assert packs_beside(Packing(parallel=4), 3, []) == 1


def settled(verdict: Verdict, since_s: float, **more: Any) -> Attempt:
    """A line in the queue whose allocation is over, and that nobody claimed."""
    waiting = line(1, array=PACK, id="17", place=Place.IN_QUEUE, over_since=100.0, **more).attempt
    return step(waiting, facts.Settled(verdict), 100.0 + since_s, TIMES)[0]


def test_line_without_a_turn_goes_into_another_allocation() -> None:
    killed = Verdict(Ending(cause="failed", text="killed"))
    assert settled(killed, 1.0).place is Place.IN_QUEUE
    again = settled(killed, TIMES.settle_s)
    assert (again.place, again.array, again.given_up) == (Place.UNANSWERED, "", {"17"})
    # Not for ever: something is wrong there.
    tired = settled(killed, TIMES.settle_s, given_up=frozenset({"1", "2", "3"}))
    assert tired.is_over
    # An allocation that was killed for the memory of others is no reason either.
    memory = Verdict(Ending(cause="oom"), certain=True, cause="oom")
    assert settled(memory, TIMES.settle_s).place is Place.UNANSWERED


def test_line_ends_with_an_allocation_whose_time_was_over_or_that_was_cancelled() -> None:
    for cause in ("timeout", "cancelled"):
        verdict = Verdict(Ending(cause=cause), certain=True, cause=cause)
        assert settled(verdict, TIMES.settle_s).is_over


def test_line_that_waits_for_its_turn_says_in_which_allocation() -> None:
    waiting = line(1, array=PACK, id="17", place=Place.IN_QUEUE).attempt
    listed = ListedEntry("17", Phase.RUNNING, PACK, nodes="n4")
    told = step(waiting, facts.Judged(listed, 100.0), 100.0, TIMES)[0]
    assert told.reason == "in allocation 17 on n4, after lines before it"
