"""The entry point of `pit`: finds the command that was typed, and says what went wrong."""

from __future__ import annotations

import os
import sys

from towline.cli.pit.failures import Failed, Leave, failure
from towline.cli.terminal import printable, say, write
from towline.errors import TowlineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from towline.cli.pit.typed.grammar import PitCommand, Typed

BROKEN_PIPE_CODE = 141


def main() -> NoReturn:
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError:
        pass
    # At once: taking the interpreter apart costs time and gives nothing.
    os._exit(code)


def run(args: list[str]) -> int:
    """One command; its exit code, which is never that of a job."""
    try:
        dispatch(args)
        return 0
    except Leave:
        return 0
    except TowlineError as error:
        complain(failure(error))
        return 1
    except KeyboardInterrupt:
        write(2, b"\n")
        return 0
    except BrokenPipeError:
        return BROKEN_PIPE_CODE
    except Exception as error:
        if os.environ.get("TOWLINE_DEBUG"):
            raise
        text = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        complain(Failed(text, "to see where, set TOWLINE_DEBUG=1 and do it again"))
        return 1


def complain(error: Failed) -> None:
    lines = "\n".join(map(printable, error.said().expandtabs().split("\n")))
    try:
        write(2, (lines + "\n").encode("utf-8", "replace"))
    except OSError:
        pass


def dispatch(args: list[str]) -> None:
    """What is typed behind `pit`, done by the command it names."""
    from towline.cli.pit.typed.table import named

    if args[:1] == ["help"]:
        args = [*args[1:2], "--help"]
    if not args or args[0] in ("-h", "--help"):
        return _overview()
    if args[0] in ("-V", "--version"):
        from towline.version import __version__

        return say(__version__)
    command = named(args[0])
    if command is None:
        raise _unknown(args[0])
    from towline.cli.pit.typed.grammar import HelpWanted, read

    try:
        typed = read(command, args[1:])
    except HelpWanted:
        return say(command.help())
    _function(command)(typed)
    return None


def _overview() -> None:
    """The seed's page, and beside it, on stderr, what is not on it."""
    from towline.cli.pit.typed.grammar import overview
    from towline.cli.pit.typed.table import ANYTHING_ELSE, COMMANDS, LATER, VERSION
    from towline.cli.terminal import note

    say(overview([VERSION], COMMANDS, ANYTHING_ELSE))
    note(f"\nAlso here: {', '.join(command.name for command in LATER)}.")
    note("pit COMMAND --help says more.")


def _unknown(word: str) -> Failed:
    import difflib

    from towline.cli.pit.failures import PitUsage
    from towline.cli.pit.typed.table import COMMANDS, LATER

    if word.startswith("-"):
        return PitUsage(f"error: unknown option `{word}'")
    names = [name for one in [*COMMANDS, *LATER] for name in (one.name, one.alias) if name]
    close = difflib.get_close_matches(word, names, n=1)
    return Failed("unknown command", f"did you mean: pit {close[0]}" if close else "")


def _function(command: PitCommand) -> Callable[[Typed], None]:
    from importlib import import_module

    module, _, function = command.does.rpartition(".")
    found: Callable[[Typed], None] = getattr(import_module(f"towline.cli.pit.{module}"), function)
    return found


if __name__ == "__main__":
    main()
