"""Sweeps: one command with `{names}` in it, and the values they take.

    lr=0.1,0.01 model=a,b        every combination of the values
    seed=1..4                    the numbers from 1 to 4
    a CSV file                   its header has the names, each further row one set of values
    a file of JSON lines         each line is one object, name to value

No shell is involved: a placeholder is replaced inside its argument, whatever the value contains.
A command that is a line for a shell gets each value as one word of that line.
"""

from __future__ import annotations

import csv
import io
import json
import re
from itertools import product
from math import prod
from shlex import quote

from towline.errors import UsageError
from towline.model.lines import (
    MOST_COMMANDS,
    SHELL,
    TypedCommand,
    checked_count,
    is_shell_line,
    text_of,
    too_many,
)
from towline.model.units import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    #: Name -> value, of one job.
    Values = dict[str, str]

_RANGE = re.compile(r"(-?\d{1,9})\.\.(-?\d{1,9})(?:\.\.(\d{1,9}))?")
#: As Python and Hydra write it; the last number is not part of it.
_PYTHON_RANGE = re.compile(r"range\((-?\d{1,9})(?:, *(-?\d{1,9}))?(?:, *(-?\d{1,9}))?\)")
_PIECES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_MATRIX_HINT = "write it like lr=0.1,0.01 model=a,b -- python train.py --lr {lr}"
_CSV_ENDINGS = (".csv", ".tsv")
_JSON_ENDINGS = (".jsonl", ".ndjson", ".json")


def matrix_commands(axes: Sequence[str], command: Sequence[str]) -> list[TypedCommand]:
    """One command for every combination; the last name changes fastest."""
    values = dict(map(_axis, axes))
    if len(values) < len(axes):
        names = [text.partition("=")[0] for text in axes]
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"`{twice}` is named twice", "give all its values at once")
    used = _placeholders(command, values)
    if unused := [name for name in values if name not in used]:
        raise UsageError(
            f"the command does not use `{unused[0]}`",
            f"write {{{unused[0]}}} where its value belongs, or leave it out",
        )
    if (count := prod(map(len, values.values()))) > MOST_COMMANDS:
        raise too_many(count, "combining all values")
    rows = (dict(zip(values, chosen, strict=True)) for chosen in product(*values.values()))
    return _filled(rows, command)


def row_commands(data: bytes, source: str, command: Sequence[str]) -> list[TypedCommand]:
    """One command for every row of a CSV file, or line of a JSON lines file."""
    text = text_of(data, source)
    rows = list(_json_rows(text, source) if _is_json(text, source) else _csv_rows(text, source))
    if not rows:
        raise UsageError(f"{source} has no values in it", "each row makes one job")
    used: set[str] = set()
    for number, values in rows:
        try:
            used = _placeholders(command, values)
        except UsageError as error:
            raise UsageError(f"{source}, line {number}: {error.text}", error.hint) from None
    if not used:
        raise UsageError(
            f"the command uses nothing of {source}",
            f"write {{{next(iter(rows[0][1]), 'name')}}} where a value belongs",
        )
    wanted = ({name: v for name, v in values.items() if name in used} for _, values in rows)
    return checked_count(_filled(wanted, command), source)


def _axis(text: str) -> tuple[str, list[str]]:
    name, equals, given = text.partition("=")
    if not equals or not name or set(name) & set("{}"):
        raise UsageError(f"{shown(text)} is not NAME=VALUES", _MATRIX_HINT)
    if not given:
        raise UsageError(f"`{name}` has no values", _MATRIX_HINT)
    try:
        [values] = csv.reader([given], strict=True)
    except (csv.Error, ValueError):
        raise UsageError(
            f"the quotes in {shown(text)} do not match",
            f"a value with a comma is written like '{name}=\"a,b\",c'",
        ) from None
    return name, [value for one in values for value in _spread(one)]


def with_ranges(axis: str) -> str:
    """The same with `range(10)` as `0..9`: where it is a value, not a part of one."""
    name, equals, given = axis.partition("=")
    return name + equals + _PYTHON_RANGE.sub(_as_span, given)


def _as_span(found: re.Match[str]) -> str:
    first, last = (0, int(found[1])) if found[2] is None else (int(found[1]), int(found[2]))
    step = int(found[3] or 1)
    there = range(first, last, step) if step else range(0)
    if not there:
        raise UsageError(f"{found[0]} has no numbers in it", "write it like range(10), or 0..9")
    return f"{there[0]}..{there[-1]}..{abs(step)}"


def _spread(value: str) -> list[str]:
    """`1..4` is every number from 1 to 4, `0..100..25` every 25th; anything else is itself."""
    found = _RANGE.fullmatch(value)
    if found is None:
        return [value]
    first, last, step = int(found[1]), int(found[2]), int(found[3] or 1)
    if not step or abs(last - first) // step >= MOST_COMMANDS:
        raise UsageError(f"{value} is not a range", "write it like 1..4, or 0..100..25")
    there = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    return list(map(str, there))


def _filled(rows: Iterable[Values], command: Sequence[str]) -> list[TypedCommand]:
    in_shell = is_shell_line(command)
    return [
        TypedCommand(
            number,
            _line(command[0], values) if in_shell else [fill(word, values) for word in command],
            " ".join(f"{name}={value}" for name, value in values.items()),
        )
        for number, values in enumerate(rows, start=1)
    ]


def _line(text: str, values: Values) -> list[str]:
    return [*SHELL, fill(text, {name: quote(value) for name, value in values.items()})]


def fill(word: str, values: Values) -> str:
    """The word with each `{name}` replaced; `{{` and `}}` are the braces themselves."""

    def piece(found: re.Match[str]) -> str:
        return found[0][0] if found[1] is None else values[found[1]]

    return _PIECES.sub(piece, word)


def _placeholders(command: Sequence[str], values: Collection[str]) -> set[str]:
    """The names that the command uses; each must have a value."""
    used = set()
    for word in command:
        for found in _PIECES.finditer(word):
            if found[0] in ("{", "}"):
                raise UsageError(
                    f"a lone `{found[0]}` in {shown(word)}", f"write {found[0] * 2} for the sign"
                )
            if found[1] is None:
                continue
            if found[1] not in values:
                there = ", ".join(values) or "none"
                raise UsageError(
                    f"there is no value for {{{found[1]}}} in {shown(word)}",
                    f"there are: {there}; braces that stay are written {{{{ and }}}}",
                )
            used.add(found[1])
    return used


def _is_json(text: str, source: str) -> bool:
    if source.endswith(_JSON_ENDINGS):
        return True
    return not source.endswith(_CSV_ENDINGS) and text.lstrip().startswith("{")


def _csv_rows(text: str, source: str) -> Iterator[tuple[int, Values]]:
    """Each row and the line it ends on."""
    rows = csv.reader(
        io.StringIO(text, newline=""),
        strict=True,
        delimiter="\t" if source.endswith(".tsv") else ",",
    )
    names: list[str] = []
    try:
        for row in rows:
            if not row:
                continue
            if not names:
                names = _header(row, source)
            elif len(row) != len(names):
                raise UsageError(
                    f"{source}, line {rows.line_num} has {len(row)} values, "
                    f"but the header has {len(names)} names",
                    "a value with a comma is written in double quotes",
                )
            else:
                yield rows.line_num, dict(zip(names, row, strict=True))
    except csv.Error as error:
        raise UsageError(f"{source}, line {rows.line_num}: {error}") from None


def _header(row: list[str], source: str) -> list[str]:
    names = [name.strip() for name in row]
    for place, name in enumerate(names):
        if not name or set(name) & set("{}"):
            raise UsageError(
                f"{source}: {shown(name)} cannot be the name of column {place + 1}",
                "the first row has the names of the columns",
            )
        if name in names[:place]:
            raise UsageError(f"{source} has two columns `{name}`", "give one another name")
    return names


def _json_rows(text: str, source: str) -> Iterator[tuple[int, Values]]:
    """Each object and the line it is on."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            # Numbers stay as they are written: 0.10 is not turned into 0.1.
            written = json.loads(line, parse_int=str, parse_float=str)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise UsageError(
                f"{source}, line {number} is not a JSON object",
                'one object per line, like {"lr": 0.1, "model": "a"}',
            )
        values = {name: _as_text(value, written[name]) for name, value in row.items()}
        for name, value in values.items():
            if not _is_argument(value):
                raise UsageError(f"{source}, line {number}: no argument can be `{name}`'s value")
        yield number, values


def _as_text(value: object, written: object) -> str:
    if isinstance(written, str):
        return written
    return json.dumps(value, ensure_ascii=False)


def _is_argument(text: str) -> bool:
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False
