"""What travels shows how far it is, how fast it goes and how long it still takes."""

import os
import threading

import pytest

from cli.stub import Answer, Stub, answer
from testbed.terminal import Terminal
from testbed.tow import Tow
from towline.cli.terminal.travel import Travel, travel_line

MB = 1 << 20


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a terminal of 80 columns is sent."""
    sent: list[str] = []
    monkeypatch.setattr("towline.cli.terminal.travel.write", lambda fd, b: sent.append(b.decode()))
    monkeypatch.setattr(os, "isatty", lambda fd: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    return sent


def test_the_line_says_how_much_how_fast_and_for_how_long_still() -> None:
    line = travel_line("pulling big", 50 * MB, 200 * MB, 10.0 * MB, 79)
    bar = line.split()[2]
    assert (bar.count("█"), bar.count("░")) == (len(bar) // 4, len(bar) - len(bar) // 4)
    assert line == f"pulling big {bar} 50.0 MB of 200.0 MB · 10.0 MB/s · 15 s left"
    assert len(line) == 79


@pytest.mark.parametrize("width", range(20, 100, 7))
def test_the_line_fits_whatever_the_width(width: int) -> None:
    line = travel_line("job 12 · lab · sending", 50 * MB, 200 * MB, 10.0 * MB, width)
    assert len(line) <= width
    assert not line.endswith(("·", "· ")), "a part is there as a whole, or not at all"


def test_what_is_longer_than_it_was_said_to_be_does_not_run_over() -> None:
    assert travel_line("x", 300, 200, 0.0, 79) == "x " + "█" * 30 + " 300 B of 300 B"


def test_nothing_is_drawn_of_what_takes_a_moment_and_the_rest_ten_times_a_second(
    drawn: list[str],
) -> None:
    clock = Clock()
    travel = Travel("pulling big", clock)
    for _ in range(90):
        clock.now += 0.01
        travel.at(1 * MB, 100 * MB)
    assert drawn == []
    for done in range(100):
        clock.now += 0.02
        travel.at(done * MB, 100 * MB)
    assert 15 <= len(drawn) <= 22
    assert "MB/s" in drawn[-1] and "left" in drawn[-1]
    travel.end()
    assert drawn[-1] == "\r\x1b[K"


def test_nothing_is_drawn_into_a_pipe(drawn: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "isatty", lambda fd: False)
    clock = Clock()
    travel = Travel("pulling big", clock)
    clock.now += 10
    travel.at(1, 2)
    travel.end()
    assert drawn == []


def test_the_rate_is_that_of_late(drawn: list[str]) -> None:
    clock = Clock()
    travel = Travel("x", clock)
    done = 0
    for second in range(20):
        clock.now += 1.0
        done += (1 if second < 10 else 8) * MB
        travel.at(done, 1000 * MB)
    assert "8.0 MB/s" in drawn[-1]


FETCHED = {
    "folder": "/home/me/job_results/12",
    "files": 2,
    "bytes": 200 * MB,
    **{name: [] for name in ("conflicts", "missing", "refused", "made", "not_collected")},
    "uncollected": 0,
}


def test_results_say_on_a_terminal_how_far_they_are(tow: Tow, stub: Stub) -> None:
    is_home = threading.Event()
    whole = answer(FETCHED)
    stub.on("POST /v1/jobs/12/results", Answer(pieces=[whole.body], hold=is_home))
    stub.on("GET /v1/jobs/12/results", answer({"done": 50 * MB, "total": 200 * MB}))
    with Terminal(tow, "results", "12", env={"TERM": "xterm", "COLUMNS": "80"}) as terminal:
        terminal.sees("results of job 12", timeout=60)
        terminal.sees("50.0 MB of 200.0 MB")
        is_home.set()
        assert terminal.leaves(timeout=60) == 0
        # What was shown meanwhile is gone.
        assert "\r\x1b[K2 files, 200.0 MB in " in terminal.seen


def test_results_in_a_pipe_ask_for_nothing_else(tow: Tow, stub: Stub) -> None:
    stub.on("POST /v1/jobs/12/results", answer(FETCHED))
    done = tow("results", "12")
    assert done.stdout.startswith("2 files, 200.0 MB in ") and not done.stderr
    assert stub.asked_of("GET /v1/jobs/12/results") == []
