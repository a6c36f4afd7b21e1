"""`tow results`: bring home what a job has made so far."""

from __future__ import annotations

import os

from towline.cli.engine import Engine
from towline.cli.jobs import job_number
from towline.cli.options import JOB_HELP, Parser
from towline.cli.terminal import printable, say, say_json, tell
from towline.cli.wording import count, size

EXAMPLES = """
tow results 12
tow results 12 --back checkpoints
"""


def parser() -> Parser:
    parser = Parser(
        "results",
        "[--back PATH] [--json] JOB",
        "Bring home what a job has made or changed so far, into job_results/NUMBER/ of the folder\n"
        "it was submitted from. This happens by itself when a job ends. Nothing is overwritten.",
        EXAMPLES,
    )
    parser.add_argument("job", metavar="JOB", help=JOB_HELP)
    parser.add_argument(
        "--back",
        action="append",
        default=[],
        metavar="PATH",
        help="only this path; may be repeated",
    )
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    engine = Engine()
    job = job_number(engine, options.job)
    done = engine.call("POST", f"/v1/jobs/{job}/results", {"back": options.back}, repeat=True)
    if options.json:
        say_json(done)
        return 0
    say(f"{count(done['files'], 'file')}, {size(done['bytes'])} in {_short(done['folder'])}")
    for here, newer in done["conflicts"]:
        tell(f"kept {_short(here)} as it was; the newer copy is {_short(newer)}")
    for name in done["refused"]:
        tell(f"left out {printable(name)}: it leads out of the folder, or cannot be read")
    return 0


def _short(path: str) -> str:
    return printable(os.path.relpath(path))
