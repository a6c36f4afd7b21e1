"""How much is asked for ahead grows with the way, and not beyond what it carries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.backends.transfer.window import LEAST, MOST, START, Path

PIECE = 256 << 10


def travelled(rate: float, delay_s: float, seconds: float, path: Path | None = None) -> Path:
    """A transfer over a way that carries `rate` bytes per second and takes `delay_s` both ways."""
    path = path or Path()
    path.transfers = 1
    now, free_at, on_its_way = max(1000.0, path._now), 0.0, []
    end = now + seconds
    while now < end:
        while sum(size for _, _, size in on_its_way) < path.window or not on_its_way:
            free_at = max(free_at, now) + PIECE / rate
            on_its_way.append((free_at + delay_s, path.asked(now), PIECE))
        now, asked, size = on_its_way.pop(0)
        path.arrived(asked, size, now)
    return path


@pytest.mark.parametrize("delay_s", [0.02, 0.05, 0.15])
@pytest.mark.parametrize("rate", [40e6, 100e6])
def test_a_way_is_filled_whatever_its_length(rate: float, delay_s: float) -> None:
    carried = rate * delay_s
    assert min(carried, MOST / 2) <= travelled(rate, delay_s, 5).window <= max(4 * carried, START)


def test_next_door_a_small_window_is_enough() -> None:
    assert travelled(300e6, 0.0003, 2).window == START


def test_a_way_that_carries_little_is_not_filled_with_much() -> None:
    """Whatever is on it stands in front of a line of a log."""
    assert Path().window == START
    for seconds in range(5, 100, 5):
        assert travelled(2e6, 0.05, seconds).window <= 2 << 20


def test_that_a_way_carries_less_than_it_did_is_known_soon() -> None:
    path = travelled(100e6, 0.05, 5)
    assert path.window >= 100e6 * 0.05
    later = travelled(5e6, 0.05, 8, path)
    assert later.window <= 4 * 5e6 * 0.05 + LEAST


def test_several_transfers_share_what_the_way_carries() -> None:
    path = travelled(100e6, 0.1, 3)
    alone = path.window
    path.transfers = 4
    assert path.window == alone // 4


def test_a_way_that_became_longer_is_learnt_anew() -> None:
    path = travelled(100e6, 0.01, 5)
    later = travelled(100e6, 0.2, 60, path)
    assert later.window >= 100e6 * 0.2


def test_only_a_way_that_is_both_long_and_narrow_is_worth_compressing_for() -> None:
    assert travelled(5e6, 0.05, 3).is_slow
    assert not travelled(5e6, 0.001, 3).is_slow or travelled(5e6, 0.001, 3).delay_s > 0.01
    assert not travelled(100e6, 0.05, 3).is_slow
    assert not Path().is_slow


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(0, 1 << 30)), max_size=50))
def test_memory_is_bounded_whatever_the_other_side_does(answers: list[tuple[float, int]]) -> None:
    path, now = Path(), 0.0
    path.transfers = 1
    for took, size in answers:
        asked = path.asked(now)
        now += took
        path.arrived(asked, size, now)
        assert LEAST <= path.window <= MOST
