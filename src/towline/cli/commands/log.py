"""`tow log`: a job's output."""

from __future__ import annotations

from towline.cli.follow import Follow
from towline.cli.jobs import read_with_job
from towline.cli.options import Parser

EXAMPLES = """
tow log 12
tow log -f last
tow log --stderr --tail 10000 12
tow log --service tensorboard 12
"""


def parser() -> Parser:
    parser = Parser(
        "log",
        "[options] JOB",
        "Print what a job wrote so far: its stdout to stdout, its stderr to stderr.",
        EXAMPLES,
    )
    parser.add_job()
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the job ended")
    parser.add_argument("--service", metavar="NAME", help="that of a service of the job instead")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--stdout", action="store_true", help="only its stdout")
    only.add_argument("--stderr", action="store_true", help="only its stderr")
    parser.add_argument("--tail", metavar="N", type=int, help="only the last N bytes of each")
    parser.add_argument("--json", action="store_true", help="print JSON lines for programs")
    return parser


def main(args: list[str]) -> int:
    options, engine, job = read_with_job(parser(), args)
    stream = "out" if options.stdout else "err" if options.stderr else "all"
    following = Follow(
        engine,
        job_id=job,
        json=options.json,
        stream=stream,
        tail=options.tail,
        until_end=options.follow,
        service=options.service,
    )
    return following.run()
