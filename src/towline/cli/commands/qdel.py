"""`tow qdel`: stop jobs as on a Grid Engine."""

from __future__ import annotations

from towline.cli.compat.gridengine.qdel import PLAIN, VALUED
from towline.cli.compat.gridengine.qdel import main as delete
from towline.cli.compat.gridengine.typed import parser_of, wants_help
from towline.cli.options import Parser

ABOUT = """\
Stop jobs as Grid Engine's `qdel` does: by number, NUMBER.TASKS, name or pattern of names, with its
answers and exit codes. `tow stop` does the same in Towline's words."""
EXAMPLES = """
tow qdel 12
tow qdel 14.2-4
tow qdel 'train*'
"""


def parser() -> Parser:
    jobs = ("JOBS", "numbers, NUMBER.TASKS, names, patterns")
    return parser_of("qdel", ("[options] JOBS...", ABOUT, EXAMPLES), VALUED, PLAIN, jobs)


def main(args: list[str]) -> int:
    if wants_help(args):
        parser().read(["--help"])
    return delete(args)
