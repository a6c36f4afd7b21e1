"""`tow qhost`: machines in a Grid Engine's columns."""

from __future__ import annotations

from towline.cli.compat.gridengine.qhost import PLAIN, VALUED
from towline.cli.compat.gridengine.qhost import main as list_hosts
from towline.cli.compat.gridengine.typed import parser_of, wants_help
from towline.cli.options import Parser

ABOUT = """\
List the machines of all clusters, and the nodes of those with a queue, in the columns of Grid
Engine's `qhost`; what is not known of one is a dash. `tow machines` tells more."""
EXAMPLES = """
tow qhost
tow qhost -q
tow qhost -h "gpu*" -xml
"""


def parser() -> Parser:
    nothing = ("OPTIONS", "further options")
    return parser_of("qhost", ("[options]", ABOUT, EXAMPLES), VALUED, PLAIN, nothing)


def main(args: list[str]) -> int:
    if wants_help(args):
        parser().read(["--help"])
    return list_hosts(args)
