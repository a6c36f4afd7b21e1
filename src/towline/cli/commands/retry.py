"""`tow retry`: run ended jobs again."""

from __future__ import annotations

from towline.cli.follow import Follow
from towline.cli.options import JOBS_HELP, Parser
from towline.cli.session import open_session
from towline.cli.terminal import say, say_json
from towline.client.names import split

EXAMPLES = """
tow retry 12
tow retry -f last
tow retry 14-20
"""


def parser() -> Parser:
    parser = Parser(
        "retry",
        "[options] JOBS...",
        "Run ended jobs again, as they were submitted: same files, same command, same number.",
        EXAMPLES,
    )
    parser.add_argument("jobs", nargs="+", metavar="JOBS", help=JOBS_HELP)
    parser.add_argument("-f", "--follow", action="store_true", help="follow it; one job only")
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    retrying = parser()
    options = retrying.read(args)
    session = open_session()
    numbers, batches = split(session, options.jobs)
    if options.follow and len(numbers) + len(batches) != 1:
        retrying.error("only one job or batch can be followed")
    for name in batches:
        from towline.cli.batch.actions import act_on

        code = act_on("retry", name, *(["-f"] if options.follow else []), json=options.json)
        if code or options.follow:
            return code
    if not numbers:
        return 0
    answer = session.call("POST", "/v1/jobs/retry", {"ids": numbers})
    if options.follow:
        return Follow(session, job_id=numbers[0], json=options.json).run()
    if options.json:
        say_json(answer)
    else:
        say("\n".join(f"job {job['id']} {job['state']}" for job in answer["jobs"]))
    return 0
