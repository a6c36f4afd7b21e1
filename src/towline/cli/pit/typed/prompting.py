"""Questions to whoever types, answered on a terminal or by what is piped in."""

from __future__ import annotations

import os
import sys

from towline.cli.pit.failures import Failed
from towline.cli.terminal import write

#: What erases one character, all of them, and ends the input, as terminals send it.
_BACKSPACE = "\x7f\b"
_ERASE_ALL = "\x15"
_END = "\x04"


def tell(text: str) -> None:
    """A line of a dialogue."""
    write(_where(), (text + "\n").encode("utf-8", "replace"))


def ask(question: str) -> str:
    """What is typed; the blanks around it do not count."""
    write(_where(), question.encode())
    return _line().strip()


def ask_until(question: str) -> str:
    """What is typed, asked again for as long as that is nothing."""
    while not (answer := ask(question)):
        pass
    return answer


def ask_hidden(question: str) -> str:
    """What is typed, shown as stars."""
    write(_where(), question.encode())
    return _typed_hidden() if os.isatty(0) else _line()


def _where() -> int:
    """What a command prints may go into a file; its questions are for whoever is there."""
    return 1 if os.isatty(1) else 2


def _line() -> str:
    """One line, and no byte more: the rest may be for somebody else."""
    found = bytearray()
    while not found.endswith(b"\n"):
        piece = os.read(0, 1)
        if not piece:
            if not found:
                raise _nobody()
            break
        found += piece
    if not os.isatty(0):
        write(_where(), b"\n")
    return found.decode("utf-8", "replace").rstrip("\r\n")


def _nobody() -> Failed:
    write(_where(), b"\n")
    return Failed("nobody answers", "type it on a terminal")


def _typed_hidden() -> str:
    import termios
    import tty

    before = termios.tcgetattr(0)
    typed: list[str] = []
    try:
        tty.setcbreak(0, termios.TCSADRAIN)
        while (key := _key()) not in ("\r", "\n"):
            if key == _END:
                if not typed:
                    raise _nobody()
            elif key in _BACKSPACE:
                if typed:
                    typed.pop()
                    write(_where(), b"\b \b")
            elif key == _ERASE_ALL:
                write(_where(), b"\b \b" * len(typed))
                typed.clear()
            elif key.isprintable():
                typed.append(key)
                write(_where(), b"*")
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        write(_where(), b"\n")
    return "".join(typed)


def _key() -> str:
    """One character, of however many bytes."""
    found = os.read(0, 1)
    if not found:
        return _END
    lead = found[0]
    more = 3 if lead >= 0xF0 else 2 if lead >= 0xE0 else 1 if lead >= 0xC0 else 0
    while more:
        found += os.read(0, 1)
        more -= 1
    return found.decode(sys.getdefaultencoding(), "replace")
