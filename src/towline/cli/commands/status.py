"""`tow status`: jobs and batches, and where they stand."""

from __future__ import annotations

import os
import time

from towline.cli.batch_wording import machine_names, progress, state_of, took
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

    from towline.cli.table import Cell, Rows

COLUMNS = ["JOB", "STATE", "TITLE", "CLUSTER", "MACHINES", "TIME", "REASON"]
NOTHING = "no jobs yet: tow run COMMAND starts one"
WATCH_EVERY_S = 1.0
TITLE_WIDTH = 30
WIDE_TERMINAL = 100
WIDE_BAR, NARROW_BAR = 10, 6
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
        "List jobs and where they stand: the active ones and those of the last day, newest last.\n"
        "A batch is one row.",
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
    found = _found(engine, options)
    if options.json:
        say_json(found)
    elif not any(found.values()):
        say(NOTHING)
    else:
        show_table(COLUMNS, rows(found, time.time()))
    return 0


def rows(found: dict[str, Any], now: float) -> Rows:
    """One row per job and one per batch, in the order they were submitted in."""
    placed = [(int(job["id"]), _job_row(job, now)) for job in found["jobs"]]
    placed += [(int(batch["first"]), _batch_row(batch, now)) for batch in found["batches"]]
    return [row for _, row in sorted(placed, key=lambda one: one[0])]


def _job_row(job: dict[str, Any], now: float) -> list[Cell]:
    return [
        str(job["id"]),
        (job["state"], STATE_COLOURS.get(job["state"], "")),
        _short(job["title"]),
        job["cluster"],
        machines(job),
        _when(job, now),
        ending(job),
    ]


def _batch_row(batch: dict[str, Any], now: float) -> list[Cell]:
    state = state_of(batch)
    time_taken = took(batch, now)
    return [
        "batch",
        (state, STATE_COLOURS.get(state, "")),
        _short(batch["name"]),
        batch["cluster"],
        machine_names(batch),
        f"{time_taken} · {ago(batch['ended'], now)}" if batch.get("ended") else time_taken,
        progress(batch, _bar_width()),
    ]


def _bar_width() -> int:
    """So that the bar stays in one piece where the last column is narrow."""
    try:
        return WIDE_BAR if os.get_terminal_size(1).columns >= WIDE_TERMINAL else NARROW_BAR
    except OSError:
        return WIDE_BAR


def _when(job: dict[str, Any], now: float) -> str:
    took = duration(job, now)
    if job["state"] not in FINAL:
        return took or ago(job["submitted"], now)
    since = ago(job["ended"], now) if job.get("ended") else ""
    return " · ".join(filter(None, (took, since)))


def _short(title: str) -> str:
    return title if len(title) <= TITLE_WIDTH else title[: TITLE_WIDTH - 1] + "…"


def _found(engine: Engine, options: Namespace) -> dict[str, list[dict[str, Any]]]:
    """What was asked for, as `--json` prints it."""
    if options.jobs:
        from towline.cli.jobs import job_numbers

        numbers = job_numbers(engine, options.jobs)
        jobs = [engine.call("GET", f"/v1/jobs/{job}") for job in numbers]
        return {"jobs": jobs, "batches": []}
    return {"jobs": _jobs(engine, options), "batches": _batches(engine, options)}


def _batches(engine: Engine, options: Namespace) -> list[dict[str, Any]]:
    batches: list[dict[str, Any]] = engine.call(
        "GET", with_query("/v1/batches", all=int(options.all))
    )["batches"]
    return [
        batch
        for batch in batches
        if options.cluster in (None, batch["cluster"]) and options.state in (None, state_of(batch))
    ]


def _jobs(engine: Engine, options: Namespace) -> list[dict[str, Any]]:
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
            found = _found(engine, options)
            table = (
                rich_table(COLUMNS, rows(found, time.time())) if any(found.values()) else NOTHING
            )
            live.update(table, refresh=True)
            time.sleep(WATCH_EVERY_S)


def _watch_changes(engine: Engine, options: Namespace) -> None:
    before = None
    while True:
        found = _found(engine, options)
        if found != before:
            before = found
            say_json(found) if options.json else say(
                plain_table(COLUMNS, rows(found, time.time())) + "\n"
            )
        time.sleep(WATCH_EVERY_S)
