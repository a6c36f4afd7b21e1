"""`tow stop`: stop jobs."""

from __future__ import annotations

from towline.cli.engine import Engine
from towline.cli.jobs import job_numbers
from towline.cli.options import JOB_HELP, Parser
from towline.cli.terminal import say, say_json

EXAMPLES = """
tow stop 12
tow stop 12 13 14-20
tow stop all
tow stop --now 12
"""


def parser() -> Parser:
    parser = Parser(
        "stop",
        "[--now] [--json] JOBS...",
        "Stop jobs: TERM to all their processes, and KILL to those that are still there later.\n"
        "`all` stops all batches, too. Asked again, it asks the machines again.",
        EXAMPLES,
    )
    parser.add_argument(
        "jobs", nargs="+", metavar="JOBS", help=f"{JOB_HELP}; a range 14-20; or `all`"
    )
    parser.add_argument(
        "--now", action="store_true", help="KILL at once, without the time to end by themselves"
    )
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    engine = Engine()
    numbers = job_numbers(engine, options.jobs)
    # The Engine's API never means "all" by "none": without a number there is nothing to do.
    stopping = {"ids": numbers, "now": options.now}
    answer = (
        engine.call("POST", "/v1/jobs/stop", stopping, repeat=True) if numbers else {"jobs": []}
    )
    batches = _stop_batches(engine, options.now) if "all" in options.jobs else []
    if options.json:
        say_json({**answer, "batches": batches} if batches else answer)
    elif not numbers and not batches:
        say("no job is active")
    else:
        lines = [f"job {job['id']} {job['state']}" for job in answer["jobs"]]
        say("\n".join([*lines, *(f"batch {name} stopping" for name in batches)]))
    return 0


def _stop_batches(engine: Engine, now: bool) -> list[str]:
    """Stop every batch that has not ended; their names."""
    from towline.cli.batch_names import ask_of_batch, batches

    active = [view["name"] for view in batches(engine) if view["ended"] is None]
    for name in active:
        ask_of_batch(engine, name, "stop", {"now": now})
    return active
