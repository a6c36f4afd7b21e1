"""`tow status`: jobs and where they stand."""

from __future__ import annotations

import os
import time

from towline.cli.client import with_query
from towline.cli.engine import Engine
from towline.cli.options import JOB_HELP, Parser
from towline.cli.table import plain_table, rich_table, show_table
from towline.cli.terminal import say, say_json
from towline.cli.wording import FINAL, STATE_COLOURS, ago, duration, ending, machines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from towline.cli.table import Rows

COLUMNS = ["JOB", "STATE", "TITLE", "CLUSTER", "MACHINES", "TIME", "REASON"]
NOTHING = "no jobs yet: tow run COMMAND starts one"
WATCH_EVERY_S = 1.0
TITLE_WIDTH = 30
EXAMPLES = """
tow status
tow status --all -n 100
tow status 12 13 14-20
tow status --watch
tow status --json | jq '.jobs[].state'
"""


def parser() -> Parser:
    parser = Parser(
        "status",
        "[options] [JOBS...]",
        "List jobs and where they stand: the active ones and those of the last day, newest last.",
        EXAMPLES,
    )
    parser.add_argument("jobs", nargs="*", metavar="JOBS", help=f"{JOB_HELP}, or a range 14-20")
    parser.add_argument("-a", "--all", action="store_true", help="also jobs that ended long ago")
    parser.add_argument("-n", metavar="N", dest="limit", type=int, help="at most N jobs")
    parser.add_argument("-c", "--cluster", metavar="NAME", help="only jobs of this cluster")
    parser.add_argument("--state", metavar="STATE", help="only jobs in this state, e.g. running")
    parser.add_argument("--watch", action="store_true", help="go on showing it until Ctrl-C")
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    engine = Engine()
    if options.watch:
        return _watch(engine, options)
    jobs = _jobs(engine, options)
    if options.json:
        say_json({"jobs": jobs})
    elif not jobs:
        say(NOTHING)
    else:
        show_table(COLUMNS, rows(jobs, time.time()))
    return 0


def rows(jobs: list[dict[str, Any]], now: float) -> Rows:
    """One row per job."""
    return [
        [
            str(job["id"]),
            (job["state"], STATE_COLOURS.get(job["state"], "")),
            _short(job["title"]),
            job["cluster"],
            machines(job),
            _when(job, now),
            ending(job),
        ]
        for job in jobs
    ]


def _when(job: dict[str, Any], now: float) -> str:
    took = duration(job, now)
    if job["state"] not in FINAL:
        return took or ago(job["submitted"], now)
    since = ago(job["ended"], now) if job.get("ended") else ""
    return " · ".join(filter(None, (took, since)))


def _short(title: str) -> str:
    return title if len(title) <= TITLE_WIDTH else title[: TITLE_WIDTH - 1] + "…"


def _jobs(engine: Engine, options: Namespace) -> list[dict[str, Any]]:
    if options.jobs:
        from towline.cli.jobs import job_numbers

        return [engine.call("GET", f"/v1/jobs/{job}") for job in job_numbers(engine, options.jobs)]
    target = with_query(
        "/v1/jobs",
        all=int(options.all),
        limit=options.limit,
        cluster=options.cluster,
        state=options.state,
    )
    jobs: list[dict[str, Any]] = engine.call("GET", target)["jobs"]
    return jobs


def _watch(engine: Engine, options: Namespace) -> int:
    try:
        if os.isatty(1) and not options.json:
            _watch_live(engine, options)
        else:
            _watch_changes(engine, options)
    except KeyboardInterrupt:
        pass
    return 0


def _watch_live(engine: Engine, options: Namespace) -> None:
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        while True:
            jobs = _jobs(engine, options)
            live.update(
                rich_table(COLUMNS, rows(jobs, time.time())) if jobs else NOTHING, refresh=True
            )
            time.sleep(WATCH_EVERY_S)


def _watch_changes(engine: Engine, options: Namespace) -> None:
    before = None
    while True:
        jobs = _jobs(engine, options)
        if jobs != before:
            before = jobs
            say_json({"jobs": jobs}) if options.json else say(
                plain_table(COLUMNS, rows(jobs, time.time())) + "\n"
            )
        time.sleep(WATCH_EVERY_S)
