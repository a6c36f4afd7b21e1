"""`tow wait`: until jobs have ended."""

from __future__ import annotations

import time

from towline.cli.options import JOBS_HELP, Parser
from towline.cli.session import open_session
from towline.cli.terminal import say_json, tell
from towline.cli.terminal.wording import exit_code, outcome
from towline.client.names import split
from towline.client.waiting import WaitingForJobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: As `timeout` has it.
TIMEOUT_CODE = 124
EXAMPLES = """
tow wait 12
tow wait 12 13 sweep && echo all of it is done
tow wait --any 12-20
tow wait --timeout 2h last || tow why last
"""


def parser() -> Parser:
    parser = Parser(
        "wait",
        "[options] JOBS...",
        "Wait until jobs have ended and what they made is home. It exits with 0 only when all of\n"
        "them ended well: with a single job's own exit code, else with 1; 124 after --timeout.",
        EXAMPLES,
    )
    parser.add_argument("jobs", nargs="+", metavar="JOBS", help=JOBS_HELP)
    parser.add_argument("--any", action="store_true", help="until the first of them has ended")
    parser.add_argument("--timeout", metavar="TIME", help="wait for so long at most, e.g. 2h")
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    deadline = _deadline(options.timeout)
    session = open_session()
    waiting = WaitingForJobs(session, *split(session, options.jobs))
    alone = len(waiting.pending) == 1
    codes: list[int] = []
    try:
        for view in waiting.ends(deadline):
            codes.append(_tell(view, options.json))
            if options.any:
                return codes[0]
    except TimeoutError:
        tell(f"tow: not ended after {options.timeout}: {', '.join(waiting.pending)}")
        return TIMEOUT_CODE
    if alone:
        return codes[0]
    return 1 if any(codes) else 0


def _deadline(text: str | None) -> float | None:
    if text is None:
        return None
    from towline.model.units import parse_duration_s

    return time.monotonic() + parse_duration_s(text)


def _tell(view: dict[str, Any], json: bool) -> int:
    """Say how one ended; the exit code that goes with it."""
    if "count" in view:
        from towline.cli.terminal import batch_wording

        if json:
            say_json({"batch": view})
        else:
            tell(batch_wording.summary(view, time.time()))
        return batch_wording.exit_code(view)
    say_json({"job": view}) if json else tell(outcome(view))
    return exit_code(view)
