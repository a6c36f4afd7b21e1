"""`tow retry`: run ended jobs again."""

from __future__ import annotations

from towline.cli.follow import TerminalFollow
from towline.cli.options import JOBS_HELP, Parser
from towline.cli.session import open_session
from towline.cli.terminal import note, say, say_json
from towline.cli.terminal.wording import ending
from towline.client.names import meant, split

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from towline.client.session import Session

#: So many skipped jobs are named.
FEW = 20

EXAMPLES = """
tow retry 12
tow retry -f last
tow retry 14-20
"""


def parser() -> Parser:
    parser = Parser(
        "retry",
        "[options] JOBS...",
        "Run ended jobs again, as they were submitted: same files, same command, same number.\n"
        "One that a Grid Engine set aside for an error starts after all.",
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
    for some in _in_order(session, numbers, batches):
        code = (
            _retry_batch(some, options) if isinstance(some, str) else _retry(session, some, options)
        )
        if code:
            return code
    return 0


def _in_order(session: Session, numbers: list[int], batches: list[str]) -> list[str | list[int]]:
    """Jobs, as many together as can be, and batches; what may wait for others comes after them."""
    if not batches:
        return [numbers]
    from itertools import groupby

    places: list[tuple[int, str]] = [(number, "") for number in numbers]
    places += [(meant(session, name).jobs.start, name) for name in batches]
    grouped = groupby(sorted(places), key=lambda one: one[1])
    return [name or [number for number, _ in group] for name, group in grouped]


def _retry_batch(name: str, options: Namespace) -> int:
    from towline.cli.batch.actions import act_on

    return act_on("retry", name, *(["-f"] if options.follow else []), json=options.json)


def _retry(session: Session, numbers: list[int], options: Namespace) -> int:
    answer = session.call("POST", "/v1/jobs/retry", {"ids": numbers})
    if options.follow:
        return TerminalFollow(session, job_id=numbers[0], json=options.json).run()
    if options.json:
        say_json(answer)
        return 0
    for job in answer["jobs"]:
        why = ending(job) if job["state"] == "waiting" else ""
        say(f"job {job['id']} {job['state']}" + (why and f": {why}"))
    if skipped := answer.get("skipped"):
        few = " ".join(skipped[:FEW]) + (" ..." if len(skipped) > FEW else "")
        note(f"skipped because of that, and still so: tow retry {few}")
    return 0
