"""`tow status`: jobs and batches, and where they stand."""

from __future__ import annotations

import os
import time

from towline.cli.options import JOBS_HELP, Parser
from towline.cli.session import open_for
from towline.cli.terminal import note, printable, say, say_json
from towline.cli.terminal.batch_wording import machine_names, progress, state_of, took
from towline.cli.terminal.table import (
    LATE,
    Column,
    cut,
    fitted,
    plain_table,
    show_table,
    terminal_width,
)
from towline.cli.terminal.wording import FINAL, STATE_COLOURS, ago, duration, ending, machines
from towline.client.transport import with_query
from towline.model.names import shown_cluster

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from towline.cli.terminal.table import Cell, Rows
    from towline.client.session import Session

    Found = dict[str, Any]

COLUMNS = [
    Column("JOB"),
    Column("STATE"),
    Column("TITLE", least=12),
    Column("CLUSTER", drop=1),
    Column("MACHINES", drop=2),
    Column("TIME", drop=LATE, shorter=lambda text: text.partition(" · ")[0]),
    Column("REASON", least=20),
]
NOTHING = "no jobs yet: tow run COMMAND starts one"
WATCH_EVERY_S = 1.0
TITLE_WIDTH = 30
WIDE_TERMINAL = 100
WIDE_BAR, NARROW_BAR = 10, 6
#: Rows, unless -n says otherwise; what is active is shown in any case.
ROWS, LEAST_ENDED = 30, 5
#: Lines of a terminal that `--watch` does not fill: the heading, what is left out, the cursor.
LINES_BESIDE = 3
MOVING = ("starting", "running", "stopping")
EXAMPLES = """
tow status
tow status --all -n 100
tow status --state active
tow status 12 13 14-20 sweep
tow status --watch
tow status --json | jq '.jobs[].state'
"""


def parser() -> Parser:
    parser = Parser(
        "status",
        "[options] [JOBS...]",
        "List jobs and where they stand: all that are active, and the newest of those that ended\n"
        "within a day; newest last. A batch is one row.",
        EXAMPLES,
    )
    parser.add_argument("jobs", nargs="*", metavar="JOBS", help=JOBS_HELP)
    parser.add_argument("-a", "--all", action="store_true", help="also what ended long ago")
    parser.add_count("-n", dest="limit", help="at most N rows, what is active before the rest")
    parser.add_argument("-c", "--cluster", metavar="NAME", help="only jobs of this cluster")
    parser.add_argument(
        "--state", metavar="STATE", help="only jobs in this state, e.g. running; or `active`"
    )
    parser.add_argument("--watch", action="store_true", help="go on showing it until Ctrl-C")
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    session = open_for(options)
    if options.watch:
        return _watch(session, options)
    found = _found(session, options)
    if options.json:
        say_json(found)
        return 0
    if not (found["jobs"] or found["batches"]):
        say(_nothing(options))
    else:
        show_table(COLUMNS, rows(found, time.time()))
        if found["left_out"]:
            note(_more(found["left_out"], options))
    for job in found.get("unreadable", ()):
        note(f"the record of job {job} cannot be read; `tow show {job}` says why")
    return 0


def _nothing(options: Namespace) -> str:
    if options.cluster is None and options.state is None:
        return NOTHING
    where = f" of {options.cluster}" if options.cluster else ""
    return f"no job{where} is {options.state}" if options.state else f"no job{where}"


def _more(left_out: int, options: Namespace) -> str:
    import shlex

    chosen = [("-c", options.cluster), ("--state", options.state)]
    words = [word for flag, value in chosen if value for word in (flag, value)]
    return f"… and {left_out} more: {shlex.join(['tow', 'status', '--all', *words])}"


def rows(found: Found, now: float) -> Rows:
    """One row per job and one per batch, in the order they were submitted in."""
    placed = [(int(job["id"]), _job_row(job, now)) for job in found["jobs"]]
    placed += [(int(batch["first"]), _batch_row(batch, now)) for batch in found["batches"]]
    return [row for _, row in sorted(placed, key=lambda one: one[0])]


def _prospects(job: dict[str, Any], now: float) -> list[str]:
    """What the queue of its cluster says of it, where there is one."""
    if not job.get("queue"):
        return []
    from towline.cli.terminal.queue_wording import prospects

    return prospects(job["queue"], now)


def _job_row(job: dict[str, Any], now: float) -> list[Cell]:
    return [
        str(job["id"]),
        (job["state"], STATE_COLOURS.get(job["state"], "")),
        _short(job["title"]),
        _where(job),
        "" if job["state"] in ("waiting", "queued") else machines(job),
        _when(job, now),
        " · ".join(filter(None, (ending(job), *_prospects(job, now)))),
    ]


def _where(job: dict[str, Any]) -> str:
    """Its cluster, and its number in the queue of that."""
    number = (job.get("queue") or {}).get("number")
    return " · ".join(filter(None, (shown_cluster(job["cluster"]), number)))


def _batch_row(batch: dict[str, Any], now: float) -> list[Cell]:
    state = state_of(batch)
    time_taken = took(batch, now)
    return [
        "batch",
        (state, STATE_COLOURS.get(state, "")),
        _short(batch["name"]),
        shown_cluster(batch["cluster"]),
        machine_names(batch),
        f"{time_taken} · {ago(batch['ended'], now)}" if batch.get("ended") else time_taken,
        printable(batch["why"]) if state == "waiting" else progress(batch, _bar_width()),
    ]


def _bar_width() -> int:
    """So that the bar stays in one piece where the last column is narrow."""
    if not os.isatty(1):
        return WIDE_BAR
    return WIDE_BAR if terminal_width() >= WIDE_TERMINAL else NARROW_BAR


def _when(job: dict[str, Any], now: float) -> str:
    took = duration(job, now)
    if job["state"] not in FINAL:
        return took or ago(job["submitted"], now)
    since = ago(job["ended"], now) if job.get("ended") else ""
    return " · ".join(filter(None, (took, since)))


def _short(title: str) -> str:
    return cut(printable(title), TITLE_WIDTH)


def _found(session: Session, options: Namespace) -> Found:
    """What was asked for, as `--json` prints it."""
    if options.jobs:
        return _named(session, options)
    target = with_query(
        "/v1/jobs",
        all=int(options.all),
        limit=options.limit,
        cluster=options.cluster,
        state=options.state,
    )
    answer = session.call("GET", target)
    batches = _batches(session, options)
    found = {"jobs": answer["jobs"], "batches": batches, "left_out": answer.get("left_out", 0)}
    if options.limit is not None or not options.all:
        found = fewest(found, options.limit)
    if answer.get("unreadable"):
        found["unreadable"] = answer["unreadable"]
    return found


def _named(session: Session, options: Namespace) -> Found:
    from towline.client.batches import jobs_of
    from towline.client.names import split

    numbers, batches = split(session, options.jobs)
    return {
        "jobs": [session.call("GET", f"/v1/jobs/{job}") for job in numbers],
        "batches": [jobs_of(session, name, limit=1)["batch"] for name in batches],
        "left_out": 0,
    }


def fewest(found: Found, limit: int | None) -> Found:
    """So many rows, jobs and batches alike: what runs, what waits, then the newest that ended.

    Without a limit, whatever is active and a few that ended.
    """
    ranked = [(_rank(job["state"]), int(job["id"]), "jobs", job) for job in found["jobs"]]
    ranked += [
        (_rank(state_of(batch)), int(batch["first"]), "batches", batch)
        for batch in found["batches"]
    ]
    ranked.sort(key=lambda one: (one[0], -one[1]))
    if limit is None:
        active = sum(1 for rank, *_ in ranked if rank < _rank("done"))
        limit = active + max(LEAST_ENDED, ROWS - active)
    kept = sorted(ranked[:limit], key=lambda one: one[1])
    return {
        "jobs": [view for _, _, kind, view in kept if kind == "jobs"],
        "batches": [view for _, _, kind, view in kept if kind == "batches"],
        "left_out": found["left_out"] + len(ranked) - len(kept),
    }


def _rank(state: str) -> int:
    return 0 if state in MOVING else 1 if state not in FINAL else 2


def _batches(session: Session, options: Namespace) -> list[dict[str, Any]]:
    batches: list[dict[str, Any]] = session.call(
        "GET", with_query("/v1/batches", all=int(options.all))
    )["batches"]
    return [
        batch
        for batch in batches
        if options.cluster in (None, batch["cluster"], shown_cluster(batch["cluster"]))
        and _is_in(batch, options.state)
    ]


def _is_in(batch: dict[str, Any], state: str | None) -> bool:
    its = state_of(batch)
    return its not in FINAL if state == "active" else state in (None, its)


def _watch(session: Session, options: Namespace) -> int:
    try:
        if os.isatty(1) and not options.json:
            _watch_live(session, options)
        else:
            _watch_changes(session, options)
    except KeyboardInterrupt:
        pass
    return 0


def _watch_live(session: Session, options: Namespace) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from towline.client.news import News

    console = Console(highlight=False)
    news, found = News(session), {}
    with Live(console=console, auto_refresh=False) as live:
        while True:
            if news.any():
                found = _found(session, options)
            lines = watched(found, options, console.width, console.height)
            live.update(Text.from_ansi("\n".join(lines), no_wrap=True), refresh=True)
            time.sleep(WATCH_EVERY_S)


def watched(found: Found, options: Namespace, width: int, height: int) -> list[str]:
    """What fits on a screen: one line each, and what runs is never cut off for what does not."""
    found = fewest(found, max(1, height - LINES_BESIDE))
    if not (found["jobs"] or found["batches"]):
        return [_nothing(options)]
    lines = fitted(COLUMNS, rows(found, time.time()), width, one_line=True)
    return [*lines, _more(found["left_out"], options)] if found["left_out"] else lines


def _watch_changes(session: Session, options: Namespace) -> None:
    from towline.client.news import News

    news, found, before = News(session), None, None
    while True:
        if news.any():
            found = _found(session, options)
        if found is not None and found != before:
            before = found
            say_json(found) if options.json else say(
                plain_table(COLUMNS, rows(found, time.time())) + "\n"
            )
        time.sleep(WATCH_EVERY_S)
