"""`tow attach`: follow a job again."""

from __future__ import annotations

from towline.cli.follow import TerminalFollow
from towline.cli.options import Parser
from towline.cli.session import open_session
from towline.client.names import meant

EXAMPLES = """
tow attach 12
tow attach --tail 20 last
"""


def parser() -> Parser:
    parser = Parser(
        "attach",
        "[options] JOB",
        "Follow a job as `tow run` does, from the start of its output, or a batch; `tow` exits\n"
        "with its code.",
        EXAMPLES,
    )
    parser.add_job(or_batch=True)
    parser.add_tail("begin N lines before the end; 64k, 1M are bytes")
    parser.add_argument("--json", action="store_true", help="print JSON lines for programs")
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    session = open_session()
    found = meant(session, options.job)
    if found.batch:
        from towline.cli.batch.actions import act_on

        return act_on("show", found.batch, "-f", json=options.json)
    return TerminalFollow(session, job_id=found.job, json=options.json, tail=options.tail).run()
