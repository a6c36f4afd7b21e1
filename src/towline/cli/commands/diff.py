"""`tow diff`: what changed since a job was submitted, or between two jobs."""

from __future__ import annotations

from towline.cli.options import Parser
from towline.cli.session import read_with_job
from towline.cli.terminal import say_json, write
from towline.client.names import job_number
from towline.client.transport import with_query

EXAMPLES = """
tow diff 12
tow diff 12 15
tow diff --names last
"""


def parser() -> Parser:
    parser = Parser(
        "diff",
        "[--names] [--json] JOB [JOB]",
        "Show what changed from the version a job was submitted with to the folder as it is now,\n"
        "or to the version of another job.",
        EXAMPLES,
    )
    parser.add_job()
    parser.add_argument("other", metavar="JOB", nargs="?", help="compare with this job's version")
    parser.add_argument("--names", action="store_true", help="only name the files that differ")
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    options, session, job = read_with_job(parser(), args)
    values = {"names": "1"} if options.names else {}
    if options.other is not None:
        values["other"] = str(job_number(session, options.other))
    found = session.call("GET", with_query(f"/v1/jobs/{job}/diff", **values))
    if options.json:
        say_json(found)
    else:
        write(1, found["diff"].encode("utf-8", "surrogateescape"))
    return 0
