"""`tow attach`: follow a job again."""

from __future__ import annotations

from towline.cli.engine import Engine
from towline.cli.follow import Follow
from towline.cli.jobs import job_number
from towline.cli.options import JOB_HELP, Parser

EXAMPLES = """
tow attach 12
tow attach --tail 10000 last
"""


def parser() -> Parser:
    parser = Parser(
        "attach",
        "[options] JOB",
        "Follow a job as `tow run` does, from the start of its output; `tow` exits with its code.",
        EXAMPLES,
    )
    parser.add_argument("job", metavar="JOB", help=JOB_HELP)
    parser.add_argument("--tail", metavar="N", type=int, help="begin N bytes before the end")
    parser.add_argument("--json", action="store_true", help="print JSON lines for programs")
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    engine = Engine()
    job = job_number(engine, options.job)
    return Follow(engine, job_id=job, json=options.json, tail=options.tail).run()
