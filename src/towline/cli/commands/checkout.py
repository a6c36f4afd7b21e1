"""`tow checkout`: the version a job was submitted with, as a folder."""

from __future__ import annotations

from towline.cli.cwd import whole_path
from towline.cli.options import Parser
from towline.cli.session import read_with_job
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
    parser.add_job()
    parser.add_argument(
        "folder", metavar="FOLDER", nargs="?", help="a new or empty folder (default: job-NUMBER)"
    )
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    options, session, job = read_with_job(parser(), args)
    folder = whole_path(options.folder or f"job-{job}")
    done = session.call("POST", f"/v1/jobs/{job}/checkout", {"folder": folder})
    if options.json:
        say_json({"folder": folder, **done})
    else:
        say(f"{done['files']} files in {folder}")
    return 0
