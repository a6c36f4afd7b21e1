"""`tow cat`: one of a job's files."""

from __future__ import annotations

from towline.cli.client import with_query
from towline.cli.engine import Engine
from towline.cli.jobs import job_number
from towline.cli.options import JOB_HELP, Parser
from towline.cli.terminal import write

EXAMPLES = """
tow cat 12 result.csv
tow cat last model.bin > model.bin
"""


def parser() -> Parser:
    parser = Parser("cat", "JOB PATH", "Print one of a job's files, byte by byte.", EXAMPLES)
    parser.add_argument("job", metavar="JOB", help=JOB_HELP)
    parser.add_argument("path", metavar="PATH", help="the file, in the job's folder")
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    engine = Engine()
    job = job_number(engine, options.job)
    with engine.open("GET", with_query(f"/v1/jobs/{job}/file", path=options.path)) as reply:
        while piece := reply.read():
            write(1, piece)
    return 0
