"""Tables: through rich on a terminal, plainly aligned in a pipe."""

from __future__ import annotations

import os

from towline.cli.terminal import printable, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table as RichTable

    #: A cell, or a cell and its colour.
    Cell = str | tuple[str, str]
    Rows = Sequence[Sequence[Cell]]


def show_table(columns: list[str], rows: Rows) -> None:
    """Print a table where and how it can be read best."""
    if os.isatty(1):
        from rich.console import Console

        Console(highlight=False).print(rich_table(columns, rows))
    else:
        say(plain_table(columns, rows))


def plain_table(columns: list[str], rows: Rows) -> str:
    """Columns aligned by spaces, one line per row."""
    lines = [columns, *([_text(cell) for cell in row] for row in rows)]
    widths = [max(_width(line[place]) for line in lines) for place in range(len(columns))]
    return "\n".join(
        "  ".join(
            text + " " * (width - _width(text)) for text, width in zip(line, widths, strict=True)
        ).rstrip()
        for line in lines
    )


def rich_table(columns: list[str], rows: Rows) -> RichTable:
    """The same for a terminal: colours, and columns that fit its width."""
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
