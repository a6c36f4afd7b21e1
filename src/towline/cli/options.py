"""Reading the command line: one parser per command, made only for the command that was typed."""

from __future__ import annotations

import argparse
import os
import sys

from towline.cli.terminal import say, tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import NoReturn

# Towline's texts are English only; without this, argparse looks for translations on disk each time.
vars(argparse)["_"] = str

JOB_HELP = "a job's number or title, BATCH.LINE or `last`"
JOBS_HELP = "numbers, titles, BATCH.LINE, whole batches, `last`, or a range 14-20"


class _HelpText(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        # argparse would import shutil for the width, with every single option.
        super().__init__(prog, max_help_position=30, width=_width())


class Parser(argparse.ArgumentParser):
    """The options of one command, with examples below its help."""

    #: True where words may be left out, which argparse else decides at the first option.
    mixed = False

    def __init__(
        self, name: str, usage: str, about: str, examples: str, own_h: bool = False
    ) -> None:
        """`own_h`: its `-h` is an option of its own, and no question for help."""
        super().__init__(
            prog=f"tow {name}",
            usage=f"tow {name} {usage}".rstrip(),
            description=about,
            epilog="examples:\n" + "\n".join(f"  {line}" for line in examples.strip().splitlines()),
            formatter_class=_HelpText,
            allow_abbrev=False,
            add_help=False,
            conflict_handler="resolve" if own_h else "error",
        )
        self.add_argument("-h", "--help", action="store_true", help="show this help and exit")

    def read(self, args: list[str], behind: Sequence[str] = ()) -> argparse.Namespace:
        """The options as given; shows the help instead when it was asked for anywhere.

        `behind` is what follows them, of which an unknown option may have wanted a word.
        """
        if "-h" in args or "--help" in args:
            say(self.format_help().rstrip())
            sys.exit(0)
        # Options may stand anywhere, also between the words.
        known = self.parse_known_intermixed_args if self.mixed else self.parse_known_args
        options, unknown = known(args)
        if unknown:
            self.refuse(unknown, [*args[args.index(unknown[0]) + 1 :], *behind])
        return options

    def refuse(self, words: list[str], behind: list[str]) -> NoReturn:
        """Say which words mean nothing, and what may have been meant."""
        flag = words[0].partition("=")[0]
        if not flag.startswith("-"):
            self.error(f"what is {' '.join(words)}? there is one word too many")
        from towline.cli.unknown_options import meant_instead

        hint = meant_instead(words[0], behind, self._option_string_actions)
        self.error(f"there is no option {flag}{hint and f'; {hint}'}")

    def add_job(self, or_batch: bool = False) -> None:
        or_one = ", or a batch" if or_batch else ""
        self.add_argument("job", metavar="JOB", help=JOB_HELP + or_one)

    def add_count(self, *flags: str, dest: str, help: str) -> None:
        """An option that takes a number of things, of which there is at least one."""
        self.add_argument(*flags, dest=dest, metavar="N", type=_count, help=help)

    def add_tail(self, text: str) -> None:
        """Read as what the Engine is asked for: so many lines, or bytes."""
        self.add_argument("--tail", metavar="N", type=_tail, help=text)

    def add_json(self) -> None:
        self.add_argument("--json", action="store_true", help="print JSON for programs")

    def add_sbatch_option(self, text: str) -> None:
        """Read back by `sbatch_options`."""
        self.add_argument("-o", "--option", action="append", default=[], metavar="K=V", help=text)

    def error(self, message: str) -> NoReturn:
        tell(f"tow: {message}")
        tell(f"  usage: {self.usage}")
        tell(f"  more: tow help {self.prog.removeprefix('tow ')}")
        sys.exit(2)


def sbatch_options(options: argparse.Namespace) -> dict[str, str]:
    """Options of sbatch by name; one without a value is on."""
    split = (text.partition("=") for text in options.option)
    return {name: value if equals else "true" for name, equals, value in split}


def split_command(args: list[str], valued: Iterable[str]) -> tuple[list[str], list[str]]:
    """Our options before the first word, and that word with everything after it.

    `valued` are the options that take a value. argparse would look for options behind the
    command's first word too, and everything there belongs to the command.
    """
    valued = frozenset(valued)
    index = 0
    while index < len(args):
        word = args[index]
        if word == "--":
            return args[:index], args[index + 1 :]
        if not word.startswith("-") or word == "-":
            break
        index += 2 if _takes_next(word, valued) else 1
    return args[:index], args[index:]


def _takes_next(word: str, valued: frozenset[str]) -> bool:
    if word.startswith("--"):
        return word in valued
    for place, letter in enumerate(word[1:], start=2):
        if f"-{letter}" in valued:
            return place == len(word)
    return False


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 31:
        raise argparse.ArgumentTypeError(f"takes a number from 1 on, not {text!r}")
    return int(text)


def _tail(text: str) -> dict[str, int]:
    """`20` lines; `64k` and `1M` are bytes."""
    unit = text[-1:].lower()
    factor = {"b": 1, "k": 1 << 10, "m": 1 << 20}.get(unit)
    number = text[:-1] if factor else text
    if not number.isdecimal() or len(number) > 12:
        raise argparse.ArgumentTypeError(
            f"takes a number of lines, or bytes like 64k, not {text!r}"
        )
    return {"tail": int(number) * factor} if factor else {"lines": int(number)}


def _width() -> int:
    try:
        return max(60, min(100, os.get_terminal_size(1).columns - 2))
    except OSError:
        return 90
