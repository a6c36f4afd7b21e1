"""`tow cat`: one of a job's files."""

from __future__ import annotations

from towline.cli.options import Parser
from towline.cli.patience import patience
from towline.cli.session import domain_in, open_session
from towline.cli.terminal import write
from towline.client.names import job_number
from towline.client.transport import with_query

EXAMPLES = """
tow cat 12 result.csv
tow cat last model.bin > model.bin
tow @team cat shared words.txt
"""


def parser() -> Parser:
    parser = Parser("cat", "JOB PATH", "Print one of a job's files, byte by byte.", EXAMPLES)
    parser.add_job()
    parser.add_argument("path", metavar="PATH", help="the file, in the job's folder")
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    session = open_session()
    if (data := domain_in(session, options.job)) is not None:
        from towline.cli.data.moving import print_file

        print_file(data, options.path)
        return 0
    job = job_number(session, options.job)
    with patience(session, job):
        reply = session.open("GET", with_query(f"/v1/jobs/{job}/file", path=options.path))
    with reply:
        while piece := reply.read():
            write(1, piece)
    return 0
