"""`tow checkout`: the version a job was submitted with, as a folder."""

from __future__ import annotations

import os

from towline.cli.engine import Engine
from towline.cli.jobs import job_number
from towline.cli.options import JOB_HELP, Parser
from towline.cli.terminal import say, say_json

EXAMPLES = """
tow checkout 12
tow checkout 12 /tmp/as-it-was
"""


def parser() -> Parser:
    parser = Parser(
        "checkout",
        "[--json] JOB [FOLDER]",
        "Bring the version a job was submitted with into a new folder, whatever happened since.\n"
        "Your working copy stays as it is.",
        EXAMPLES,
    )
    parser.add_argument("job", metavar="JOB", help=JOB_HELP)
    parser.add_argument(
        "folder", metavar="FOLDER", nargs="?", help="a new or empty folder (default: job-NUMBER)"
    )
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    engine = Engine()
    job = job_number(engine, options.job)
    folder = os.path.abspath(options.folder or f"job-{job}")
    done = engine.call("POST", f"/v1/jobs/{job}/checkout", {"folder": folder})
    if options.json:
        say_json({"folder": folder, **done})
    else:
        say(f"{done['files']} files in {folder}")
    return 0
