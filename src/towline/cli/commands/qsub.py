"""`tow qsub`: submit a job as on a Grid Engine."""

from __future__ import annotations

from towline.cli.compat.gridengine.submit.options import PLAIN, VALUED
from towline.cli.compat.gridengine.typed import parser_of, wants_help
from towline.cli.options import Parser

ABOUT = """\
Submit a script or a command as Grid Engine's `qsub` does, to any kind of cluster: `#$` lines,
arrays, its answers and exit codes. On this machine it runs in the very folder, and its output
grows in NAME.oNUMBER and NAME.eNUMBER."""
EXAMPLES = """
tow qsub -cwd train.sh
tow qsub -q lab -v MLP_DATA_DIR=/disk/data,OUTPUT_DIR='$HOME/experiments' train.py
tow qsub -t 1-10 -tc 2 -cwd task.sh
tow qsub -sync y -b y -N hello echo hello
"""


def parser() -> Parser:
    usage = "[options] [SCRIPT [ARGUMENTS...]]"
    script = ("SCRIPT", "the script and its arguments; without one, it is read from stdin")
    return parser_of("qsub", (usage, ABOUT, EXAMPLES), VALUED, PLAIN, script)


def main(args: list[str]) -> int:
    if wants_help(args):
        parser().read(["--help"])
    from towline.cli.compat.gridengine.qsub import main as submit

    return submit(args)
