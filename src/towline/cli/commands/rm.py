"""`tow rm`: forget jobs that have ended."""

from __future__ import annotations

from towline.cli.options import JOBS_HELP, Parser
from towline.cli.session import open_session
from towline.cli.terminal import printable, say, say_json, tell
from towline.cli.terminal.wording import count, size
from towline.client.names import split

EXAMPLES = """
tow rm 12
tow rm 12-20 sweep
tow rm --force 12
"""


def parser() -> Parser:
    parser = Parser(
        "rm",
        "[--force] [--json] JOBS...",
        "Forget jobs that have ended: their folders on machines go, and what is remembered of\n"
        "them here. What came home to job_results stays.",
        EXAMPLES,
    )
    parser.add_argument("jobs", nargs="+", metavar="JOBS", help=JOBS_HELP)
    parser.add_argument(
        "--force", action="store_true", help="also jobs with results that are not home"
    )
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    session = open_session()
    jobs, batches = split(session, options.jobs)
    asked = {"ids": jobs, "batches": batches, "force": options.force}
    done = session.call("POST", "/v1/jobs/remove", asked)
    if options.json:
        say_json(done)
        return 1 if done["stay"] else 0
    gone = len(done["jobs"])
    if gone or not done["lines"]:
        say(f"{count(gone, 'job')} forgotten, {size(done['bytes'])} freed")
    if done["lines"]:
        lines = count(len(done["lines"]), "line")
        say(f"the folders of {lines} of a batch went; the batch still lists them")
    for job, why in done["stay"]:
        tell(("tow:", "red"), f"job {job} stays: {printable(why)}")
    return 1 if done["stay"] else 0
