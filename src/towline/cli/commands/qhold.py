"""`tow qhold`: hold jobs that have not begun, as on a Grid Engine."""

from __future__ import annotations

from towline.cli.compat.gridengine.holds import VALUED
from towline.cli.compat.gridengine.typed import parser_of, wants_help
from towline.cli.options import Parser

ABOUT = """\
Hold jobs that have not begun, until `qrls` lets them go. It is too late for one that its cluster
has in a queue of its own, or that is an array."""
EXAMPLES = """
tow qhold 12
tow qhold "train*"
"""


def parser() -> Parser:
    jobs = ("JOBS", "numbers, names or patterns of names")
    return parser_of("qhold", ("[-h u] JOBS...", ABOUT, EXAMPLES), VALUED, {}, jobs)


def main(args: list[str]) -> int:
    if wants_help(args):
        parser().read(["--help"])
    from towline.cli.compat.gridengine.holds import hold

    return hold(args)
