"""`tow pull`: files of a job, brought here."""

from __future__ import annotations

from towline.cli.options import Parser
from towline.cli.patience import patience
from towline.cli.pulling import Pull
from towline.cli.session import domain_in, open_session
from towline.cli.terminal import say, say_json
from towline.cli.terminal.wording import count, size
from towline.client.names import job_number
from towline.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from towline.cli.data.moving import DataPull

EXAMPLES = """
tow pull 12 result.csv
tow pull 12 checkpoints results/
tow pull 12 'logs/*.csv'
tow pull last .
tow @team pull group:staff sets/images
"""
MOST_NAMED = 5


def parser() -> Parser:
    parser = Parser(
        "pull",
        "[options] JOB PATH [LOCAL]",
        "Copy a file or a whole folder of a job to here. A different file that is already here\n"
        "is never overwritten, unless --force says so.",
        EXAMPLES,
    )
    parser.add_job()
    parser.add_argument(
        "path", metavar="PATH", help="a file or folder of the job, or *.csv; `.` is all"
    )
    parser.add_argument("local", nargs="?", metavar="LOCAL", help="where to (default: here)")
    parser.add_argument("--force", action="store_true", help="overwrite files that are here")
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    session = open_session()
    pull: Pull | DataPull
    if (data := domain_in(session, options.job)) is not None:
        from towline.cli.data.moving import DataPull

        pull = DataPull(data, force=options.force)
        pull.run(options.path, options.local)
    else:
        job = job_number(session, options.job)
        pull = Pull(session, job, force=options.force)
        with patience(session, job):
            pull.run(options.path, options.local)
    if options.json:
        same, other = pull.same, pull.in_the_way
        say_json({"brought": pull.brought, "same": same, "different": other, "bytes": pull.bytes})
    else:
        already = f", {len(pull.same)} here already" if pull.same else ""
        say(f"{count(len(pull.brought), 'file')}, {size(pull.bytes)}{already}")
    if pull.in_the_way:
        _refuse(pull.in_the_way)
    return 0


def _refuse(places: list[str]) -> None:
    named = ", ".join(places[:MOST_NAMED])
    more = len(places) - MOST_NAMED
    raise UsageError(
        f"here already, with other contents: {named}{f' and {more} more' if more > 0 else ''}",
        "nothing was overwritten; --force does, or give another place: tow pull JOB PATH LOCAL",
    )
