"""Files of commands: one per line, the way bash reads them.

    # a comment
    python train.py --lr 0.1
    python train.py --lr 0.01 \\
        --seed 7

Only what a line is, is decided here: blank lines and comments are left out, and a backslash at the
end of a line takes the next one in. Quotes, `$` and pipes are bash's own.
"""

from __future__ import annotations

import re

from towline.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: What runs a line.
BASH = ["bash", "-c"]
#: What runs a line that stands for a single command, as `ssh` would.
SHELL = ["sh", "-c"]
_SHELL_LINE = re.compile(r"[\s|&;<>]")
MOST_COMMANDS = 1_000_000
#: Linux takes one argument up to this size, its final NUL included.
LONGEST_ARGUMENT = 128 * 1024
LONGEST_NAME = 60
_ODD_IN_NAMES = re.compile(r"[^\w.+=@,~-]+")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class TypedCommand:
    """One command of a batch: where it stood, what is run, and what it is called."""

    __slots__ = ("argv", "number", "title")

    def __init__(self, number: int, argv: Sequence[str], title: str) -> None:
        #: The line it began on, from 1.
        self.number = number
        self.argv = list(argv)
        self.title = title

    def __repr__(self) -> str:
        return f"Command({self.number}, {self.argv!r})"


def is_shell_line(command: Sequence[str]) -> bool:
    """One word that can be no program's name: somebody typed a line for a shell in quotes."""
    return len(command) == 1 and _SHELL_LINE.search(command[0]) is not None


def commands_from(data: bytes, source: str) -> list[TypedCommand]:
    """The commands of a file; `source` is what errors call it."""
    commands = [
        TypedCommand(number, [*BASH, text], title_of(text))
        for number, text in _joined(_lines(data, source), source)
    ]
    if not commands:
        raise UsageError(
            f"{source} has no command in it", "write one command per line; `#` begins a comment"
        )
    return checked_count(commands, source)


def checked_count(commands: list[TypedCommand], source: str) -> list[TypedCommand]:
    """The same commands, unless they are too many."""
    if len(commands) > MOST_COMMANDS:
        raise too_many(len(commands), source)
    return commands


def too_many(count: int, source: str) -> UsageError:
    return UsageError(
        f"{source} makes {count} jobs, and a batch has at most {MOST_COMMANDS}",
        "submit it in several parts",
    )


def text_of(data: bytes, source: str) -> str:
    """A whole file as text, with the line of what is none."""
    data = data.removeprefix(_BYTE_ORDER_MARK)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise _not_text(source, number, data[error.start]) from None
    if "\0" in text:
        number = text.count("\n", 0, text.index("\0")) + 1
        raise UsageError(f"{source}, line {number} contains a NUL character", _NOT_A_TEXT_FILE)
    return text


def title_of(text: str) -> str:
    """A command on one line, for people."""
    return " ".join(part.strip() for part in text.split("\\\n"))


def name_from(path: str) -> str:
    """What the batch of a file is called: `sweeps/lr.txt` -> `lr`."""
    stem = path.rstrip("/").rpartition("/")[2]
    name = as_name(stem.rpartition(".")[0] or stem)
    # These mean other jobs.
    taken = name in ("last", "all") or name.replace("-", "", 1).isdecimal()
    return f"{name}_" if taken else name


def as_name(text: str) -> str:
    """The text as the name of a batch, which is also part of file names."""
    return _ODD_IN_NAMES.sub("_", text).lstrip(".-_")[:LONGEST_NAME]


def first_difference(before: Sequence[Sequence[str]], now: Sequence[TypedCommand]) -> int | None:
    """The place of the first command that is not the one that was submitted there."""
    for place, (old, new) in enumerate(zip(before, now, strict=False)):
        if list(old) != new.argv:
            return place
    return None if len(before) == len(now) else min(len(before), len(now))


_NOT_A_TEXT_FILE = "is it a text file with one command per line?"


def _not_text(source: str, number: int, byte: int) -> UsageError:
    return UsageError(
        f"{source}, line {number} is not UTF-8 text: byte 0x{byte:02x}", _NOT_A_TEXT_FILE
    )


def _lines(data: bytes, source: str) -> list[str]:
    # Not splitlines(): it also splits at characters that may stand inside a command.
    return [line.removesuffix("\r") for line in text_of(data, source).split("\n")]


def _joined(lines: list[str], source: str) -> Iterator[tuple[int, str]]:
    """Whole commands and the numbers of their first lines."""
    number = 0
    while number < len(lines):
        first, number = number, number + 1
        text = lines[first].strip()
        if not text or text.startswith("#"):
            continue
        # The backslash and the line's end stay: inside single quotes bash keeps them.
        parts = [lines[first].lstrip()]
        while _goes_on(parts[-1]):
            if number >= len(lines) or not any(map(str.strip, lines[number:])):
                raise UsageError(
                    f"{source}, line {number} ends with `\\`, and nothing follows",
                    "take the `\\` away, or add the rest of the command",
                )
            parts.append(lines[number])
            number += 1
        whole = "\n".join(parts).rstrip()
        if len(whole.encode()) >= LONGEST_ARGUMENT:
            raise UsageError(
                f"{source}, line {first + 1} has {len(whole.encode())} bytes, "
                f"more than a command can have ({LONGEST_ARGUMENT - 1})",
                "put it into a script, and call that",
            )
        yield first + 1, whole


def _goes_on(line: str) -> bool:
    """An odd number of backslashes at its end: the last one is not itself escaped."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1
