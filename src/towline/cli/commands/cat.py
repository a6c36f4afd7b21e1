"""`tow cat`: one of a job's files."""

from __future__ import annotations

from towline.cli.options import Parser
from towline.cli.patience import patience
from towline.cli.session import read_with_job
from towline.cli.terminal import write
from towline.client.transport import with_query

EXAMPLES = """
tow cat 12 result.csv
tow cat last model.bin > model.bin
"""


def parser() -> Parser:
    parser = Parser("cat", "JOB PATH", "Print one of a job's files, byte by byte.", EXAMPLES)
    parser.add_job()
    parser.add_argument("path", metavar="PATH", help="the file, in the job's folder")
    return parser


def main(args: list[str]) -> int:
    options, session, job = read_with_job(parser(), args)
    with patience(session, job):
        reply = session.open("GET", with_query(f"/v1/jobs/{job}/file", path=options.path))
    with reply:
        while piece := reply.read():
            write(1, piece)
    return 0
