"""`tow stop`: stop jobs."""

from __future__ import annotations

from towline.cli.options import JOBS_HELP, Parser
from towline.cli.session import open_session
from towline.cli.terminal import say, say_json, tell
from towline.cli.terminal.wording import machines
from towline.client.names import split

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EXAMPLES = """
tow stop 12
tow stop 12 13 14-20
tow stop all
tow stop --now 12
tow stop --give-up 12
"""


def parser() -> Parser:
    parser = Parser(
        "stop",
        "[--now] [--give-up] [--json] JOBS...",
        "Stop jobs: TERM to all their processes, and KILL to those that are still there later.\n"
        "`all` stops all that is active. Asked again, it asks the machines again.",
        EXAMPLES,
    )
    parser.add_argument("jobs", nargs="+", metavar="JOBS", help=f"{JOBS_HELP}; or `all`")
    parser.add_argument(
        "--now", action="store_true", help="KILL at once, without the time to end by themselves"
    )
    parser.add_argument(
        "--give-up",
        action="store_true",
        help="do not wait for machines that do not answer: such a job counts as lost, and is told "
        "to stop should its machine ever come back",
    )
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    session = open_session()
    numbers, batches = split(session, options.jobs)
    # The Engine's API never means "all" by "none": without a number there is nothing to do.
    stopping = {"ids": numbers, "now": options.now, "give_up": options.give_up}
    answer = (
        session.call("POST", "/v1/jobs/stop", stopping, repeat=True) if numbers else {"jobs": []}
    )
    for name in batches:
        from towline.client.batches import ask_of_batch

        ask_of_batch(session, name, "stop", {"now": options.now})
    if options.json:
        say_json({**answer, "batches": batches} if batches else answer)
    elif not (numbers or batches):
        say("no job is active")
    else:
        lines = [_line(job) for job in answer["jobs"]]
        say("\n".join([*lines, *(f"batch {name} stopping" for name in batches)]))
    return _unknown(answer.get("unknown") or [], options.jobs)


def _line(job: dict[str, Any]) -> str:
    line = f"job {job['id']} {job['state']}"
    if not job.get("silent_since"):
        return line
    later = f"{machines(job)} does not answer; it is told as soon as it does"
    return f"{line}: {later} (tow stop --give-up {job['id']} does not wait)"


def _unknown(numbers: list[int], named: list[str]) -> int:
    """Say which of the jobs that were named one by one are not there; the exit code."""
    missing = [str(number) for number in numbers if str(number) in named]
    if missing:
        tell(("tow:", "red"), f"there is no job {', '.join(missing)}")
    return 2 if missing else 0
