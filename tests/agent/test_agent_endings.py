"""How an ending is put into words."""

import pytest

from towline.agent.remote import endings, machine


@pytest.mark.parametrize(("kills_now", "cause"), [(5, "oom"), (4, "")])
def test_a_kill_is_for_memory_only_if_the_kernel_counted_one(
    monkeypatch: pytest.MonkeyPatch, kills_now: int, cause: str
) -> None:
    monkeypatch.setattr(machine, "oom_kills", lambda: kills_now)
    end = endings.ending(signal=9)
    endings.explain_kill(end, 4)
    assert end["cause"] == cause


def test_the_kernels_count_of_memory_kills_can_be_read() -> None:
    assert machine.oom_kills() >= 0


def test_a_long_text_is_cut() -> None:
    assert len(endings.ending("setup", "x" * 5000)["text"]) == endings.MOST_TEXT
