"""A followed batch as lines: for people in a pipe, for programs as JSON."""

from __future__ import annotations

import time

from towline.cli.terminal import note, say, say_json
from towline.cli.terminal.batch_wording import event_line, homecoming, summary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.cli.batch.follow import Display


def display_for(json: bool) -> Display:
    """What suits where stdout leads."""
    from towline.cli.batch.live import LiveTable, can_move

    if json:
        return JsonEvents()
    return LiveTable() if can_move() else PlainEvents()


class PlainEvents:
    """One line per event, and one at the end; and what keeps it from ending, once for each."""

    def __init__(self) -> None:
        self._noted = ""

    def start(self) -> None:
        pass

    def show(self, events: list[dict[str, Any]], view: dict[str, Any]) -> None:
        if events:
            say("\n".join(map(event_line, events)))
        coming = homecoming(view) if view.get("away") else ""
        if coming and coming != self._noted:
            note(coming)
        self._noted = coming

    def pause(self) -> None:
        pass

    def finish(self, view: dict[str, Any]) -> None:
        say(summary(view, time.time()))


class JsonEvents:
    """Every event as one JSON document, and the batch at its end."""

    def start(self) -> None:
        pass

    def show(self, events: list[dict[str, Any]], view: dict[str, Any]) -> None:
        for event in events:
            say_json({"event": event})

    def pause(self) -> None:
        pass

    def finish(self, view: dict[str, Any]) -> None:
        say_json({"end": view})
