"""What `tow` writes, and where: results to stdout, everything about them to stderr."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.errors import TowlineError

#: SGR codes of the few colours in use.
COLOURS = {"dim": "2", "bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def write(fd: int, data: bytes) -> None:
    """All of `data`, unbuffered, also to a descriptor that somebody made non-blocking."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            import select

            select.select([], [fd], [])


def say(text: str) -> None:
    """Lines of a result."""
    write(1, (text + "\n").encode("utf-8", "surrogateescape"))


def say_json(document: Any) -> None:
    """One JSON document on one line."""
    import json

    say(json.dumps(document))


def note(text: str) -> None:
    """A remark beside the result; losing it never fails a command."""
    tell(paint(text, "dim", 2))


def tell(text: str) -> None:
    """A line on stderr."""
    try:
        write(2, (text + "\n").encode("utf-8", "surrogateescape"))
    except OSError:
        pass


def complain(program: str, error: TowlineError) -> int:
    """Say what was wrong and what to do next; the exit code that goes with it."""
    tell(f"{paint(f'{program}:', 'red', 2)} {error.text}")
    if error.hint:
        tell("  " + error.hint)
    return error.exit_code


def colourful(fd: int) -> bool:
    return os.isatty(fd) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str, fd: int) -> str:
    return f"\033[{COLOURS[colour]}m{text}\033[0m" if colourful(fd) else text


def interactive() -> bool:
    """True when a person can be asked something."""
    return os.isatty(0) and os.isatty(2)


def printable(text: str) -> str:
    """Foreign text made safe for one line of a terminal: no control characters."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "�" for c in text)
