"""`pit status`: everybody's jobs, as a report."""

from __future__ import annotations

import os

from towline.cli.pit.session import PitSession
from towline.cli.pit.shapes import status_table
from towline.cli.terminal import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from towline.cli.pit.typed.grammar import Typed


def status(typed: Typed) -> None:
    import time

    found = PitSession().call("GET", "/v1/team/status")
    say("\n".join(status_table(found, found.get("now") or time.time(), columns())))


def columns() -> int | None:
    """The width of the terminal that is printed to; None where there is none."""
    try:
        return os.get_terminal_size(1).columns or None
    except OSError:
        return None
