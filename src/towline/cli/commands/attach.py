"""`tow attach`: follow a job again."""

from __future__ import annotations

from towline.cli.follow import Follow
from towline.cli.jobs import read_with_job
from towline.cli.options import Parser

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
    parser.add_job()
    parser.add_argument("--tail", metavar="N", type=int, help="begin N bytes before the end")
    parser.add_argument("--json", action="store_true", help="print JSON lines for programs")
    return parser


def main(args: list[str]) -> int:
    options, engine, job = read_with_job(parser(), args)
    return Follow(engine, job_id=job, json=options.json, tail=options.tail).run()
