"""Questions to a person at the terminal."""

from __future__ import annotations

import os

from towline.cli.terminal import printable, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container

#: How often it is looked whether a question still stands.
LOOK_EVERY_S = 2.0
#: What a terminal without input counts as: the person is gone.
GONE = "\x04"


def key_pressed(question: str, keys: Container[str]) -> str:
    """The first of these keys that is pressed, without Enter; others are passed over."""
    import termios
    import tty

    write(2, question.encode())
    before = termios.tcgetattr(0)
    try:
        tty.setcbreak(0, termios.TCSANOW)
        while True:
            key = os.read(0, 1).decode("latin-1").lower() or GONE
            if key in keys:
                write(2, f"{printable(key) if key != GONE else ''}\n".encode())
                return key
    finally:
        termios.tcsetattr(0, termios.TCSANOW, before)


def line_typed(question: str, settled: Callable[[], bool] | None = None) -> str | None:
    """What a person answers; None when meanwhile the question has settled itself."""
    import select

    write(2, question.encode())
    while settled is not None and not select.select([0], [], [], LOOK_EVERY_S)[0]:
        if settled():
            write(2, b"\n")
            return None
    try:
        return input()
    except EOFError:
        return GONE
