"""`tow shims`: Grid Engine's commands under their own names, for tools that know no others."""

from __future__ import annotations

import os
import sys

from towline.cli.options import Parser
from towline.cli.terminal import say
from towline.client.local import SHIM

NAMES = ("qsub", "qstat", "qdel", "qhold", "qrls", "qhost", "qacct")
EXAMPLES = """
tow shims ~/ge-bin
"""


def parser() -> Parser:
    parser = Parser(
        "shims",
        "FOLDER",
        "Write `qsub`, `qstat`, `qdel` and the like into a folder, which call those of `tow`: for\n"
        "tools such as Snakemake that know only these names. No PATH has it until you add it.",
        EXAMPLES,
    )
    parser.add_argument("folder", metavar="FOLDER", help="where to write them; made if missing")
    return parser


def main(args: list[str]) -> int:
    import shlex

    options = parser().read(args)
    folder = os.path.abspath(os.path.expanduser(options.folder))
    os.makedirs(folder, exist_ok=True)
    tow = shlex.join([sys.executable, "-m", "towline.cli.main"])
    for name in NAMES:
        path = os.path.join(folder, name)
        with open(path, "w") as file:
            file.write(f'{SHIM}exec {tow} {name} "$@"\n')
        os.chmod(path, 0o755)
    say(f"{', '.join(NAMES)} are in {folder}; for this shell: PATH={shlex.quote(folder)}:$PATH")
    return 0
