"""`tow qrls`: let jobs go that are held, as on a Grid Engine."""

from __future__ import annotations

from towline.cli.compat.gridengine.holds import VALUED
from towline.cli.compat.gridengine.typed import parser_of, wants_help
from towline.cli.options import Parser

ABOUT = """\
Let jobs go that are held, by `qsub -h` or `qhold`; an array as a whole. What else they wait for,
other jobs or a time, they go on waiting for."""
EXAMPLES = """
tow qrls 12
tow qrls sweep 14,15
"""


def parser() -> Parser:
    jobs = ("JOBS", "numbers, names or patterns of names")
    return parser_of("qrls", ("[-h u] JOBS...", ABOUT, EXAMPLES), VALUED, {}, jobs)


def main(args: list[str]) -> int:
    if wants_help(args):
        parser().read(["--help"])
    from towline.cli.compat.gridengine.holds import release

    return release(args)
