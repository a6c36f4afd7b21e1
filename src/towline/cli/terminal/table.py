"""Tables: on a terminal in colour and within its width, in a pipe plainly aligned."""

from __future__ import annotations

import os

from towline.cli.terminal import paint, printable, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.table import Table as RichTable

    #: A cell, or a cell and its colour.
    Cell = str | tuple[str, str]
    Rows = Sequence[Sequence[Cell]]

GAP = 2
WIDEST = 1 << 16
#: From here on a column is left out only when cutting others is not enough.
LATE = 10
#: A column that can be cut is comfortable at so many times its least width.
ROOMY = 2


class Column:
    """A column of a table, and what becomes of it where there is little room.

    First columns are left out in the order of `drop`, then cells get `shorter`, then those are cut
    that have a `least`, and only then columns that are to be dropped `LATE` go. The last column is
    not cut but goes on in further lines.
    """

    def __init__(
        self,
        name: str,
        *,
        least: int | None = None,
        drop: int = 0,
        shorter: Callable[[str], str] | None = None,
    ) -> None:
        self.name = name
        #: Narrower than this it is of no use; None: it is never cut.
        self.least = least
        #: The lowest goes first; 0: it stays.
        self.drop = drop
        self.shorter = shorter


def show_table(columns: Sequence[str | Column], rows: Rows) -> None:
    """Print a table where and how it can be read best."""
    if os.isatty(1):
        say("\n".join(fitted(columns, rows, terminal_width())))
    else:
        say(plain_table(columns, rows))


def terminal_width() -> int:
    """How wide the terminal is that stdout is."""
    try:
        width = int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size(1).columns
    except (OSError, ValueError):
        width = 0
    return width or 80


def plain_table(columns: Sequence[str | Column], rows: Rows) -> str:
    """Columns aligned by spaces, one line per row."""
    return "\n".join(_drawn(_columns(columns), rows, WIDEST, coloured=False))


def fitted(
    columns: Sequence[str | Column], rows: Rows, width: int, *, one_line: bool = False
) -> list[str]:
    """The lines of a table that is no wider than that, in colour."""
    return _drawn(_columns(columns), rows, width, coloured=True, one_line=one_line)


def _columns(columns: Sequence[str | Column]) -> list[Column]:
    last = len(columns) - 1
    return [
        Column(one, least=20 if place == last else None) if isinstance(one, str) else one
        for place, one in enumerate(columns)
    ]


def _drawn(
    columns: list[Column], rows: Rows, width: int, *, coloured: bool, one_line: bool = False
) -> list[str]:
    places = list(range(len(columns)))
    texts = [[_text(cell) for cell in row] for row in rows]
    places, texts = _chosen(columns, texts, places, width)
    widths = _widths(columns, texts, places, width)
    head = [columns[place].name for place in places]
    lines = [_line([(text, "bold") for text in head], widths, coloured)]
    for row, shown in zip(rows, texts, strict=True):
        colours = [_colour(row[place]) for place in places]
        cells = [shown[place] for place in places]
        folded = [cells[-1]] if one_line else wrapped(cells[-1], widths[-1])
        for number, part in enumerate(folded):
            now = [*cells[:-1], part] if number == 0 else [*([""] * len(cells[:-1])), part]
            lines.append(_line(list(zip(now, colours, strict=True)), widths, coloured))
    return lines


def _chosen(
    columns: list[Column], texts: list[list[str]], places: list[int], width: int
) -> tuple[list[int], list[list[str]]]:
    """The columns that there is room for, and their cells, shorter ones if need be."""
    order = sorted(places, key=lambda place: columns[place].drop)
    for place in order:
        if 0 < columns[place].drop < LATE and _wished(columns, texts, places) > width:
            places = [one for one in places if one != place]
    for place in places:
        shorter = columns[place].shorter
        if shorter is not None and _wished(columns, texts, places) > width:
            texts = [[*row[:place], shorter(row[place]), *row[place + 1 :]] for row in texts]
    for place in order:
        if columns[place].drop >= LATE and _wished(columns, texts, places, cut=True) > width:
            places = [one for one in places if one != place]
    return places, texts


def _wished(
    columns: list[Column], texts: list[list[str]], places: list[int], cut: bool = False
) -> int:
    """How wide a table should be to be read well, or with as much of it cut as can be."""
    total = GAP * (len(places) - 1)
    for place in places:
        natural, least = _natural(columns, texts, place), columns[place].least
        if least is not None and cut:
            natural = min(natural, least)
        elif least is not None and place == places[-1]:
            # What goes on in further lines need not have all in one.
            natural = min(natural, ROOMY * least)
        total += natural
    return total


def _widths(
    columns: list[Column], texts: list[list[str]], places: list[int], width: int
) -> list[int]:
    """The width of each column: those that can be cut give way, the first of them first."""
    widths = [_natural(columns, texts, place) for place in places]
    over = sum(widths) + GAP * (len(places) - 1) - width
    # The last one folds: up to a point that is better than cutting others.
    for most in (ROOMY, 1):
        for number in [len(places) - 1, *range(len(places) - 1)]:
            least = columns[places[number]].least
            if least is None or over <= 0:
                continue
            new = max(widths[number] - over, min(widths[number], least * most))
            over -= widths[number] - new
            widths[number] = new
    if over > 0:
        widths[-1] = max(1, widths[-1] - over)
    return widths


def _natural(columns: list[Column], texts: list[list[str]], place: int) -> int:
    return max([_width(columns[place].name), *(_width(row[place]) for row in texts)])


def _line(cells: list[tuple[str, str]], widths: list[int], coloured: bool) -> str:
    parts = []
    for place, ((text, colour), width) in enumerate(zip(cells, widths, strict=True)):
        text = cut(text, width)
        space = "" if place == len(cells) - 1 else " " * (width - _width(text) + GAP)
        parts.append((paint(text, colour, 1) if coloured and colour and text else text) + space)
    return "".join(parts).rstrip()


def cut(text: str, width: int) -> str:
    """As much of a text as there is room for."""
    if _width(text) <= width:
        return text
    while text and _width(text) > width - 1:
        text = text[: min(len(text) - 1, width)]
    return text + "…"


def wrapped(text: str, width: int) -> list[str]:
    """A text as lines of at most that width, broken between words where that can be."""
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if _width(joined) <= width:
            lines[-1] = joined
            continue
        lines += [""] if lines[-1] else []
        while _width(word) > width:
            part = word[:width]
            while _width(part) > width:
                part = part[:-1]
            lines[-1:] = [part, ""]
            word = word[len(part) :]
        lines[-1] = word
    return lines


def rich_table(columns: list[str], rows: Rows) -> RichTable:
    """The same for what is drawn again and again."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, column in enumerate(columns):
        last = place == len(columns) - 1
        table.add_column(column, no_wrap=not last, overflow="fold" if last else "ellipsis")
    for row in rows:
        table.add_row(*(Text(_text(cell), style=_colour(cell)) for cell in row))
    return table


def _text(cell: Cell) -> str:
    return printable(cell if isinstance(cell, str) else cell[0])


def _colour(cell: Cell) -> str:
    return "" if isinstance(cell, str) else cell[1]


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(2 if east_asian_width(c) in "WF" else 1 for c in text if not combining(c))
