"""How far something is that the Engine brings, asked for while it does."""

from __future__ import annotations

import os
from contextlib import contextmanager

from towline.cli.terminal.travel import EVERY_S, MOMENT_S, Travel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from threading import Event

    from towline.client.session import Session


@contextmanager
def shown(session: Session, target: str, what: str) -> Iterator[None]:
    """Around what takes a while: on a terminal, what GET says at `target` is shown meanwhile."""
    if not os.isatty(2):
        yield
        return
    from threading import Event, Thread

    over = Event()
    showing = Thread(target=_show, args=(session, target, what, over), daemon=True)
    showing.start()
    try:
        yield
    finally:
        over.set()
        # What it shows is gone before anything else is.
        showing.join()


def _show(session: Session, target: str, what: str, over: Event) -> None:
    travel = Travel(what)
    if over.wait(MOMENT_S):
        return
    while not over.wait(EVERY_S):
        try:
            told = session.call("GET", target)
        except Exception:  # what is asked beside this says what is wrong
            break
        if told["total"]:
            travel.at(told["done"], told["total"])
    travel.end()
