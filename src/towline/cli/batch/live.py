"""A followed batch on a terminal: a table that stays up to date, failures above it."""

from __future__ import annotations

import os
import time
from threading import Event, Lock, Thread

from towline.cli.terminal import printable
from towline.cli.terminal.batch_wording import (
    bar,
    counted,
    ended_count,
    event_line,
    homecoming,
    pace,
    state_of,
    summary,
    took,
)
from towline.cli.terminal.travel import TransferRate, travel_line
from towline.cli.terminal.wording import STATE_COLOURS
from towline.model.names import shown_cluster

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rich.console import Group
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

#: What is told above the table, unless someone wanted it so.
TOLD = ("failed", "lost", "requeued")
ASKED_FOR = "retried"
REFRESHES_PER_S = 5
WIDEST_BAR = 60
#: Lines of a terminal that are left when each machine has one.
LINES_BESIDE_MACHINES = 8
FEWEST_MACHINES = 3
#: Terminals say by these that they break long lines anew when they get narrower; others cut them.
BREAKS_ANEW = (
    "TMUX",
    "VTE_VERSION",
    "KONSOLE_VERSION",
    "KITTY_WINDOW_ID",
    "ALACRITTY_WINDOW_ID",
    "TERM_PROGRAM",
    "WT_SESSION",
)
#: Erases the line that the cursor is in, and goes one up.
ERASE_AND_UP = "\r\x1b[2K\x1b[1A"


def can_move() -> bool:
    """True when stdout is a terminal on which lines can be drawn anew."""
    return os.isatty(1) and os.environ.get("TERM") != "dumb"


class LiveTable:
    """What runs where, what waits and why, how fast it goes and how long it will take."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(highlight=False)
        self._live: Live | None = None
        self._view: dict[str, Any] | None = None
        self._pace = TransferRate()
        #: Whoever writes to the terminal: the table is drawn over by a thread, and rich itself
        #: would leave a line of it behind where something is told at the same moment.
        self._turn = Lock()
        self._over = Event()
        #: How long the lines are that are drawn now.
        self._lengths: list[int] = []
        self._breaks_anew = any(os.environ.get(name) for name in BREAKS_ANEW)

    def start(self) -> None:
        from rich.live import Live

        self._live = Live(
            console=self._console,
            get_renderable=self._drawn,
            auto_refresh=False,
            transient=True,
        )
        self._live.start()
        self._over.clear()
        Thread(target=self._redraw, args=(self._live,), daemon=True).start()

    def _redraw(self, live: Live) -> None:
        """Draw it over again, so that the time goes on while nothing happens."""
        while not self._over.wait(1 / REFRESHES_PER_S):
            with self._turn:
                if not self._over.is_set():
                    self._erase_broken_lines()
                    live.refresh()

    def _erase_broken_lines(self) -> None:
        """Where the terminal is narrower than what is drawn, that takes more lines than rich knows
        of, and it would leave the first of them behind."""
        more = sum((length - 1) // self._console.width for length in self._lengths if length)
        if more and self._breaks_anew:
            self._console.file.write(ERASE_AND_UP * more)

    def show(self, events: list[dict[str, Any]], view: dict[str, Any]) -> None:
        self._view = view
        if sending := view.get("sending"):
            self._pace.at(time.monotonic(), sending[0])
        for event in events:
            if event["state"] in TOLD and event["kind"] != ASKED_FOR:
                self._tell(event)

    def pause(self) -> None:
        if self._live is not None:
            self._over.set()
            with self._turn:
                self._live.stop()
            self._live = None

    def finish(self, view: dict[str, Any]) -> None:
        self.pause()
        colour = STATE_COLOURS.get(state_of(view), "")
        self._console.print(_text(summary(view, time.time()), colour), soft_wrap=True)

    def _tell(self, event: dict[str, Any]) -> None:
        colour = "red" if event["state"] in ("failed", "lost") else "yellow"
        with self._turn:
            self._console.print(_text(event_line(event), colour), soft_wrap=True)

    def _drawn(self) -> Group:
        from rich.console import Group

        if self._view is None:
            return Group(_text("waiting for the Engine", "dim"))
        room = max(FEWEST_MACHINES, self._console.height - LINES_BESIDE_MACHINES)
        table = drawn(self._view, time.time(), self._console.width, room, self._pace.rate)
        lines = self._console.render_lines(table, pad=False)
        self._lengths = [sum(segment.cell_length for segment in line) for line in lines]
        return table


def drawn(view: dict[str, Any], now: float, width: int, room: int, rate: float = 0.0) -> Group:
    """The table of a batch for a terminal of this width, with room for so many machines.

    `rate`: what its jobs need travels so fast.
    """
    from rich.console import Group

    parts: list[Text | Table] = [_head(view, now), _progress(view, width), _counts(view)]
    if coming := homecoming(view):
        parts.append(_text(coming, "dim"))
    elif view.get("sending"):
        arrived, total = view["sending"]
        parts.append(_text(travel_line("sending", arrived, total, rate, width), "dim"))
    elif view.get("why"):
        parts.append(_text(f"waiting: {view['why']}", "dim"))
    if view.get("machines"):
        parts.append(_machines(view["machines"], room))
    return Group(*parts)


def _head(view: dict[str, Any], now: float) -> Text:
    words = [
        f"batch {view['name']}",
        shown_cluster(str(view["cluster"])),
        took(view, now),
        pace(view),
    ]
    line = _text(" · ".join(filter(None, words)))
    line.stylize("bold", 0, len(words[0]))
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def _progress(view: dict[str, Any], width: int) -> Text:
    ended = ended_count(view)
    behind = f" {ended} of {view['count']} · {100 * ended // max(1, view['count'])} %"
    space = max(10, min(WIDEST_BAR, width - len(behind) - 1))
    line = _text(bar(view, space), "green" if not _failures(view) else "yellow")
    return line.append(behind, style="")


def _counts(view: dict[str, Any]) -> Text:
    from rich.text import Text

    parts = [Text(text, style=STATE_COLOURS.get(word, "")) for text, word in counted(view)]
    return Text(" · ").join(parts)


def _machines(machines: dict[str, Any], room: int) -> Table:
    from towline.cli.terminal.table import rich_table

    names = sorted(machines, key=lambda name: (-machines[name]["running"], name))
    shown = names if len(names) <= room else names[: room - 1]
    rows = [[name, str(machines[name]["running"]), _gpus(machines[name])] for name in shown]
    if len(names) > len(shown):
        rest = sum(machines[name]["running"] for name in names[len(shown) :])
        rows.append([f"and {len(names) - len(shown)} more", str(rest), ""])
    with_gpus = any(row[2] for row in rows)
    columns = ["MACHINE", "RUNNING", "GPUS"] if with_gpus else ["MACHINE", "RUNNING"]
    return rich_table(columns, [row[: len(columns)] for row in rows])


def _gpus(machine: dict[str, Any]) -> str:
    """`0  1 ×2`: the GPUs in use, and how many jobs are on each if several."""
    gpus = machine.get("gpus") or {}
    ordered = sorted(gpus.items(), key=lambda item: (len(item[0]), item[0]))
    return "  ".join(name if jobs == 1 else f"{name} ×{jobs}" for name, jobs in ordered)


def _failures(view: dict[str, Any]) -> bool:
    return bool(view["counts"].get("failed") or view["counts"].get("lost"))


def _text(words: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(printable(words), style=style)
