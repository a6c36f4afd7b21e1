"""How `pit` reads what is typed, and lays out its help: as commander 2.19 for Node does both."""

from __future__ import annotations

import re

from towline.cli.pit.failures import PitUsage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_HELP = ("-h, --help", "output usage information")
_HELP_FLAGS = ("-h", "--help")
#: `<title>`, `[path]`, `<assignments...>`.
_ARGUMENT = re.compile(r"[<\[](\w+)(\.\.\.)?[>\]]")


class Option:
    """`-c, --continue <jobNumber>`: its flags, and whether a value follows."""

    def __init__(self, flags: str, about: str) -> None:
        self.flags = flags
        self.about = about
        words = flags.replace(",", " ").split()
        #: What may be typed.
        self.typed = tuple(word for word in words if word.startswith("-"))
        self.name = self.typed[-1].lstrip("-")
        self.valued = any(word.startswith("<") for word in words)


class Argument:
    def __init__(self, name: str, required: bool, rest: bool) -> None:
        self.name = name
        self.required = required
        #: It takes all words that are left.
        self.rest = rest


class PitCommand:
    """One row of the table of commands; `does` names the function, as `module.function`."""

    def __init__(
        self,
        name: str,
        arguments: str,
        about: str,
        does: str,
        *,
        alias: str = "",
        options: Sequence[Option] = (),
        more: str = "",
        verbatim: bool = False,
    ) -> None:
        self.name = name
        self.alias = alias
        self.typed_arguments = arguments
        self.about = about
        self.does = does
        self.options = tuple(options)
        #: What its help page says below the options.
        self.more = more
        #: From the second word that is no option on, nothing is an option: it is another command's.
        self.verbatim = verbatim
        self.arguments = [
            Argument(found[1], found[0].startswith("<"), bool(found[2]))
            for found in _ARGUMENT.finditer(arguments)
        ]

    @property
    def called(self) -> str:
        return f"{self.name}|{self.alias}" if self.alias else self.name

    def help(self) -> str:
        usage = " ".join(filter(None, ("Usage:", self.called, "[options]", self.typed_arguments)))
        rows = [*((option.flags, option.about) for option in self.options), _HELP]
        page = [usage, "", self.about, "", "Options:", *_rows(rows, _width(rows))]
        return "\n".join([*page, *(["", self.more] if self.more else [])])


class Typed:
    """What was typed behind a command."""

    def __init__(self) -> None:
        self.options: dict[str, str] = {}
        self.words: list[str] = []
        #: Behind `--`, or behind the first word of a command that takes another one.
        self.rest: list[str] = []

    def word(self, place: int) -> str | None:
        return self.words[place] if place < len(self.words) else None


class HelpWanted(Exception):
    """Somebody typed `--help` behind a command."""


def overview(options: Sequence[Option], commands: Sequence[PitCommand], last: str) -> str:
    """The page of `pit --help`."""
    rows = [(option.flags, option.about) for option in options] + [_HELP]
    table = [(_summary(command), command.about) for command in commands]
    width = _width(rows + table)
    return "\n".join(
        [
            "Usage: pit [options] [command]",
            "",
            "Options:",
            *_rows(rows, width),
            "",
            "Commands:",
            *_rows(table, width),
            f"  {last}",
        ]
    )


def read(command: PitCommand, args: Sequence[str]) -> Typed:
    """Options and words of one command; the errors are commander's."""
    typed, left = _options(command, args)
    unknown = [word for word in typed.unknown if word not in _HELP_FLAGS]
    if len(unknown) < len(typed.unknown):
        raise HelpWanted
    if unknown:
        raise PitUsage(f"error: unknown option `{unknown[0]}'")
    if typed.missing is not None:
        raise PitUsage(f"error: option `{typed.missing.flags}' argument missing")
    for place, argument in enumerate(command.arguments):
        if argument.required and len(left) <= place:
            raise PitUsage(f"error: missing required argument `{argument.name}'")
    typed.words = left
    return typed


class _Reading(Typed):
    def __init__(self) -> None:
        super().__init__()
        self.unknown: list[str] = []
        self.missing: Option | None = None


def _options(command: PitCommand, args: Sequence[str]) -> tuple[_Reading, list[str]]:
    known = {flag: option for option in command.options for flag in option.typed}
    found, words = _Reading(), []
    left = _spread(args, known)
    while left:
        word = left.pop(0)
        if word == "--":
            found.rest = left
            words += [] if command.verbatim else left
            break
        if not word.startswith("-") or word == "-":
            if command.verbatim and words:
                found.rest = [word, *left]
                break
            words.append(word)
        elif word not in known:
            found.unknown.append(word)
        elif not known[word].valued:
            found.options[known[word].name] = ""
        elif left:
            found.options[known[word].name] = left.pop(0)
        else:
            found.missing = known[word]
    return found, words


def _spread(args: Sequence[str], known: dict[str, Option]) -> list[str]:
    """`-pl` as `-p -l` and `--continue=3` as `--continue 3`; not what is an option's value."""
    spread: list[str] = []
    for place, word in enumerate(args):
        if word == "--":
            return [*spread, *args[place:]]
        before = known.get(spread[-1]) if spread else None
        name, equals, value = word.partition("=")
        if before is not None and before.valued:
            spread.append(word)
        elif word.startswith("--") and equals:
            spread += [name, value]
        elif re.match(r"-[^-].", word) and f"-{word[1]}" in known:
            spread += [f"-{letter}" for letter in word[1:]]
        else:
            spread.append(word)
    return spread


def _summary(command: PitCommand) -> str:
    options = "[options]" if command.options else ""
    return " ".join(filter(None, (command.called, options, command.typed_arguments)))


def _width(rows: Sequence[tuple[str, str]]) -> int:
    return max(len(name) for name, _ in rows)


def _rows(rows: Sequence[tuple[str, str]], width: int) -> list[str]:
    return [f"  {name:<{width}}  {about}" for name, about in rows]
