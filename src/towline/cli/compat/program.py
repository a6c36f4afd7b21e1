"""What the compatible commands share: how they read options, complain and end."""

from __future__ import annotations

import argparse
import os
import sys

from towline.cli.main import BROKEN_PIPE_CODE, INTERRUPTED_CODE
from towline.cli.terminal import paint, tell
from towline.errors import TowlineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn


class Options(argparse.ArgumentParser):
    """The options of one command; `hint` says what is most often meant when they are wrong."""

    def __init__(self, program: str, about: str, hint: str = "") -> None:
        super().__init__(
            prog=program,
            description=about,
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        )
        self.hint = hint

    def error(self, message: str) -> NoReturn:
        tell(f"{self.prog}: {message}")
        if self.hint:
            tell(f"  {self.hint}")
        tell(f"  more: {self.prog} --help")
        sys.exit(2)


def leave(program: str, command: Callable[[list[str]], int]) -> NoReturn:
    """Run a command with what was typed, and end with its exit code."""
    code = run(program, command, sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError:
        pass
    os._exit(code)


def run(program: str, command: Callable[[list[str]], int], args: list[str]) -> int:
    """One command; its exit code. Errors are told to people, never as a traceback."""
    try:
        return command(args)
    except TowlineError as error:
        return complain(program, error)
    except BrokenPipeError:
        return BROKEN_PIPE_CODE
    except KeyboardInterrupt:
        tell("")
        return INTERRUPTED_CODE
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 1
    except Exception as error:
        if os.environ.get("TOWLINE_DEBUG"):
            raise
        text = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        hint = "to see where, set TOWLINE_DEBUG=1 and do it again"
        return complain(program, TowlineError(text, hint))


def complain(program: str, error: TowlineError) -> int:
    """Say what was wrong and what to do next; the exit code that goes with it."""
    tell(f"{paint(f'{program}:', 'red', 2)} {error.text}")
    if error.hint:
        tell("  " + error.hint)
    return error.exit_code
