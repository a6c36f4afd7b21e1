"""Starts go out together, in messages that are not too large."""

from typing import Any

from towline.backends.machines.outbox import MANY, MOST_CHARACTERS, messages


def order(size: int) -> dict[str, Any]:
    return {"argv": ["x" * (size // 2)], "env": {}, "environ": {"A": "x" * (size - size // 2 - 1)}}


def test_small_ones_share_a_message() -> None:
    assert [len(part) for part in messages([order(10)] * (MANY + 1))] == [MANY, 1]


def test_large_ones_do_not_share_more_than_fits() -> None:
    large = [order(MOST_CHARACTERS // 2)] * 5
    assert [len(part) for part in messages(large)] == [2, 2, 1]


def test_one_that_is_too_large_goes_alone() -> None:
    sizes = [10, 2 * MOST_CHARACTERS, 10]
    assert [len(part) for part in messages([order(size) for size in sizes])] == [1, 1, 1]
    assert list(messages([])) == []
