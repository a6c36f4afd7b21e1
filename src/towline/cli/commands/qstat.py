"""`tow qstat`: list jobs as a Grid Engine does."""

from __future__ import annotations

from towline.cli.compat.gridengine.qstat import PLAIN, VALUED
from towline.cli.compat.gridengine.qstat import main as list_jobs
from towline.cli.compat.gridengine.typed import parser_of, wants_help
from towline.cli.options import Parser

ABOUT = """\
List what has not ended, in the columns and states of Grid Engine's `qstat`: qw waits, hqw is held
or waits for other jobs, t starts, r runs, dr is being stopped; of jobs in a Grid Engine, Eqw is in
error, Rq is to run again, s is suspended. Nothing is printed when there is nothing."""
EXAMPLES = """
tow qstat
tow qstat -j 12
tow qstat -s r -xml
"""


def parser() -> Parser:
    nothing = ("OPTIONS", "further options")
    return parser_of("qstat", ("[options]", ABOUT, EXAMPLES), VALUED, PLAIN, nothing)


def main(args: list[str]) -> int:
    if wants_help(args):
        parser().read(["--help"])
    return list_jobs(args)
