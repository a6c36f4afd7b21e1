"""What `tow` writes, and where: results to stdout, everything about them to stderr.

Words from elsewhere (a machine, a file name) never steer the terminal: `say` and `tell` let no
control character through but the colours that Towline itself paints with.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.errors import TowlineError

    #: Words, or words and their colour.
    Words = str | tuple[str, str]

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
    """Lines of a result; what is foreign in them was made `printable` before it was painted."""
    write(1, (_without_controls(text) + "\n").encode("utf-8", "replace"))


def say_json(document: Any) -> None:
    """One JSON document on one line."""
    import json

    say(json.dumps(document))


def note(text: str) -> None:
    """A remark beside the result; losing it never fails a command."""
    tell((text, "dim"))


def tell(*words: Words) -> None:
    """A line, or lines, on stderr; losing them never fails a command."""
    shown = " ".join(_shown(part) if isinstance(part, str) else _painted(*part) for part in words)
    try:
        write(2, (shown + "\n").encode("utf-8", "replace"))
    except OSError:
        pass


def complain(program: str, error: TowlineError) -> int:
    """Say what was wrong and what to do next; the exit code that goes with it."""
    tell((f"{program}:", "red"), error.text)
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


def _without_controls(text: str) -> str:
    """`text` with nothing that steers a terminal but our own colours."""
    if text.isprintable():
        return text
    import re

    ours = "|".join(["0", *COLOURS.values()])
    return re.sub(
        rf"(\x1b\[(?:{ours})m)|[^ -~\n]", lambda found: found[1] or printable(found[0]), text
    )


def _painted(text: str, colour: str) -> str:
    return paint(_shown(text), colour, 2)


def _shown(text: str) -> str:
    """Lines of any origin, made safe for a terminal."""
    if text.isprintable():
        return text
    return "\n".join(map(printable, text.expandtabs().split("\n")))


def printable(text: str) -> str:
    """Foreign text made safe for one line of a terminal: no control characters."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "�" for c in text)


def mark(ok: bool | None) -> str:
    """How a step of a check went: ✓ well, ✗ wrong, · neither."""
    if ok is None:
        return paint("·", "dim", 1)
    return paint("✓", "green", 1) if ok else paint("✗", "red", 1)
