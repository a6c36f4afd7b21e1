"""A batch on a terminal: a table that fits, failures above it, and what Ctrl-C asks."""

import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from cli.stub import Answer, Stub, answer, batch, event, frame, stream
from testbed.terminal import Terminal
from testbed.tow import Tow
from towline.cli.batch.live import BREAKS_ANEW, ERASE_AND_UP, LiveTable, drawn
from towline.client.batch_follow import EVENT

NOW = 1062.0
BUSY = batch(
    count=1200,
    running=3,
    queued=600,
    done=590,
    failed=7,
    rate=5.9,
    eta_s=102.0,
    why="gpu1: 2 GPUs, 2 are used by job 4; " * 3,
    machines={
        "gpu1": {"running": 4, "gpus": {"0": 1, "1": 3}},
        "gpu2": {"running": 1, "gpus": {"0": 1}},
    },
)


def text_of(view: dict[str, Any], width: int, room: int = 12) -> list[str]:
    """The table as lines of a terminal without colours."""
    console = Console(width=width, force_terminal=True, no_color=True, color_system=None)
    with console.capture() as captured:
        console.print(drawn(view, NOW, width, room))
    return [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in captured.get().splitlines()]


def test_the_table_says_what_runs_what_waits_and_how_long_it_will_take() -> None:
    lines = text_of(BUSY, 120)
    assert lines[0] == "batch sweep · lab · 1 min 2 s · 5.9/s · 1 min 42 s left"
    assert lines[1] == "█" * 29 + "░" * 31 + " 597 of 1200 · 49 %"
    assert lines[2] == "3 running · 600 waiting · 590 done · 7 failed"
    assert lines[3].startswith("waiting: gpu1: 2 GPUs")
    assert lines[-3:] == [
        "MACHINE  RUNNING  GPUS",
        "gpu1     4        0  1 ×3",
        "gpu2     1        0",
    ]


def test_the_table_says_how_far_what_the_jobs_need_is_on_its_way() -> None:
    view = {**BUSY, "sending": [50 << 20, 200 << 20]}
    console = Console(width=100, no_color=True)
    with console.capture() as captured:
        console.print(drawn(view, NOW, 100, 12, rate=10.0 * (1 << 20)))
    [line] = [line for line in captured.get().splitlines() if line.startswith("sending")]
    assert line.endswith("50.0 MB of 200.0 MB · 10.0 MB/s · 15 s left")


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_table_fits_the_terminal(width: int) -> None:
    assert max(map(len, text_of(BUSY, width))) <= width


def test_of_many_machines_those_with_most_jobs_are_shown() -> None:
    machines = {f"h{n}": {"running": n, "gpus": {}} for n in range(1, 201)}
    lines = text_of(batch(count=999, running=200, queued=799, machines=machines), 80, room=5)
    assert lines[-6:] == [
        "MACHINE       RUNNING",
        "h200          200",
        "h199          199",
        "h198          198",
        "h197          197",
        f"and 196 more  {sum(range(1, 197))}",
    ]


def test_results_on_their_way_are_told() -> None:
    assert "bringing their results home" in text_of(batch(done=4, home=False), 80)[-1]
    away = [{"machine": "h2", "reason": "h2: the connection broke"}]
    last = text_of(batch(done=4, home=False, pending=2, away=away), 80)[-1]
    assert last == "all have ended; results of 2 jobs are not home: h2: the connection broke"


@pytest.fixture
def screen(tow: Tow, stub: Stub) -> Iterator[Terminal]:
    """A batch that is followed on a terminal and does not end by itself."""
    failed = event(3, 7, "failed", "failed: exit code 3", code=3)
    again = event(4, 8, "requeued", "asked for", kind="retried")
    busy = frame(event(2, 6, "started"), failed, again, view=BUSY)
    stub.on("POST /v1/batches", answer({"batch": BUSY}))
    ended = stream(frame(view=batch(done=3, stopped=1), over=True))
    stub.on("GET /v1/batches/sweep/follow", stream(busy, hold=threading.Event()), ended)
    stub.on("POST /v1/batches/sweep/stop", answer({"batch": BUSY}))
    (tow.folder / "sweep.txt").write_text("true\n")
    able = {"TERM": "xterm", "COLUMNS": "80"}
    with Terminal(tow, "batch", "sweep.txt", env=able, lines_and_columns=(24, 80)) as screen:
        screen.sees("597 of 1200")
        yield screen


def test_a_folder_that_takes_long_to_read_is_told(tow: Tow, stub: Stub) -> None:
    accepted = threading.Event()
    body = json.dumps({"batch": BUSY}).encode()
    stub.on("POST /v1/batches", Answer(pieces=[body], hold=accepted))
    stub.on("GET /v1/batches/sweep/follow", stream(frame(view=batch(done=3, stopped=1), over=True)))
    (tow.folder / "sweep.txt").write_text("true\n")
    with Terminal(tow, "batch", "sweep.txt") as screen:
        screen.sees("reading this folder; .towignore and --exclude leave things out")
        accepted.set()
        screen.sees("batch sweep: 3 done, 1 stopped")
        screen.leaves()
        assert screen.seen.count("reading this folder") == 1


def test_failures_stand_above_the_table(screen: Terminal) -> None:
    told = "failed 7 line 7 on h1 (exit code 3): cmd 7 · tow log 7"
    screen.sees(told)
    assert screen.seen.count(told) == 1
    assert "started 6" not in screen.seen and "requeued" not in screen.seen


def test_ctrl_c_asks_and_can_stop_the_batch(screen: Terminal, stub: Stub) -> None:
    screen.types("\x03")
    screen.sees("batch sweep has not ended. [s]top it, [k]eep following, [d]etach?")
    screen.types("s")
    screen.sees("■ batch sweep: 3 done, 1 stopped")
    assert screen.leaves() == 130
    assert len(stub.asked_of("POST /v1/batches/sweep/stop")) == 1
    assert stub.asked_of("GET /v1/batches/sweep/follow")[1].query == {"since": "4"}


@pytest.mark.parametrize(("kind", "erased"), [("TMUX", True), ("NO_SUCH_TERMINAL", False)])
def test_a_table_that_gets_narrower_leaves_nothing_of_its_broken_lines_behind(
    tow: Tow, stub: Stub, kind: str, erased: bool
) -> None:
    """A terminal that cuts lines off has none to erase: there, what stands above would go."""
    stub.on("POST /v1/batches", answer({"batch": BUSY}))
    busy = frame(event(2, 6, "started"), view=BUSY)
    stub.on("GET /v1/batches/sweep/follow", stream(busy, hold=threading.Event()))
    (tow.folder / "sweep.txt").write_text("true\n")
    clean = dict.fromkeys(BREAKS_ANEW, "") | {"COLUMNS": "", "LINES": ""}
    able = {**clean, "TERM": "xterm", kind: "yes"}
    with Terminal(tow, "batch", "sweep.txt", env=able, lines_and_columns=(24, 100)) as screen:
        screen.sees("597 of 1200")
        before = len(screen.seen)
        screen.becomes(24, 40)
        screen.sees("\n" + "█" * 9 + "░" * 11 + " 597")
        # Of these lines at least three were longer than 40 columns.
        assert (ERASE_AND_UP * 3 in screen.seen[before:]) == erased


def test_a_second_ctrl_c_detaches(screen: Terminal, stub: Stub) -> None:
    screen.types("\x03")
    screen.sees("[d]etach?")
    screen.types("\x03")
    screen.sees("batch sweep goes on: tow batch show -f sweep")
    assert screen.leaves() == 130
    assert stub.asked_of("POST /v1/batches/sweep/stop") == []


def test_whoever_detaches_leaves_in_peace(screen: Terminal) -> None:
    screen.types("\x03")
    screen.sees("[d]etach?")
    screen.types("what\rd")
    assert screen.leaves() == 0


def test_the_table_and_what_is_told_above_it_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    table = LiveTable()
    turns = []
    monkeypatch.setattr(
        table._console, "print", lambda *_, **__: turns.append(table._turn.locked())
    )

    class Drawing:
        def refresh(self) -> None:
            turns.append(table._turn.locked())
            table._over.set()

    table.show([dict(zip(EVENT, event(3, 7, "failed", "x"), strict=True))], BUSY)
    table._redraw(Drawing())  # type: ignore[arg-type]
    assert turns == [True, True]
