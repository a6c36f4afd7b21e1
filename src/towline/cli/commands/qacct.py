"""`tow qacct`: how jobs ended, as a Grid Engine tells it."""

from __future__ import annotations

from towline.cli.compat.gridengine.qacct import PLAIN, VALUED
from towline.cli.compat.gridengine.qacct import main as tell
from towline.cli.compat.gridengine.typed import parser_of, wants_help
from towline.cli.options import Parser

ABOUT = """\
Tell how jobs ended, as Grid Engine's `qacct -j` does: queue, host, times, `failed` and
`exit_status`. A task of an array has a record of its own."""
EXAMPLES = """
tow qacct -j 12
tow qacct -j 14 -t 2-4
"""


def parser() -> Parser:
    nothing = ("OPTIONS", "further options")
    return parser_of("qacct", ("-j JOB [-t TASKS]", ABOUT, EXAMPLES), VALUED, PLAIN, nothing)


def main(args: list[str]) -> int:
    if wants_help(args):
        parser().read(["--help"])
    return tell(args)
