"""`tow sweep table NAME`: every run of a sweep, with its values and what came of it."""

from __future__ import annotations

import time

from towline.cli.options import Parser
from towline.cli.session import open_session
from towline.cli.terminal import say_json
from towline.cli.terminal.table import Column, show_table
from towline.cli.terminal.wording import STATE_COLOURS, machines
from towline.client.batches import jobs_of
from towline.model.units import format_duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.client.session import Session
    from towline.sweeps.runs import RunStanding

COLUMNS = [
    Column("RUN"),
    Column("VALUES", least=20),
    Column("STATE"),
    Column("TIME", drop=1),
    Column("MACHINE", drop=2),
    Column("EXIT", drop=4),
    Column("JOB", drop=5),
    Column("REASON", drop=3),
]


def parser() -> Parser:
    parser = Parser(
        "sweep table",
        "[--state STATE] [--json] NAME",
        "Every run of a sweep, or of any batch: its values, where it stands, how long it ran, on\n"
        "which machine, and its exit code.",
        "tow sweep table sweep\ntow sweep table --state failed last\ntow sweep table --json sweep",
    )
    parser.add_argument("name", metavar="NAME", help="the sweep's name, or `last`")
    parser.add_argument("--state", metavar="STATE", help="only runs in this state, e.g. failed")
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    session = open_session()
    if is_of_a_launcher(session, options.name):
        runs = _of_a_launcher(session, options.name, options.state)
    else:
        jobs = jobs_of(session, options.name, state=options.state or "")["jobs"]
        now = time.time()
        runs = [_run(job, now) for job in sorted(jobs, key=lambda job: int(job["id"]))]
    if options.json:
        say_json({"runs": runs})
        return 0
    show_runs(runs)
    return 0


def is_of_a_launcher(session: Session, name: str) -> bool:
    """Whether jobs of a batch run several runs of a sweep each, which its record tells of."""
    jobs = jobs_of(session, name, limit=1)["jobs"]
    return bool(jobs) and "towline_sweep.packer" in jobs[0]["command"]


def show_runs(runs: list[dict[str, Any]]) -> None:
    show_table(COLUMNS, [_row(run) for run in runs])


def _of_a_launcher(session: Session, name: str, state: str | None) -> list[dict[str, Any]]:
    from towline.cli.batch.sweep_actions import Looked, called

    looked = Looked(session, called(session, name))
    return shown_runs([run for run in looked.runs if run.state == (state or run.state)])


def shown_runs(runs: list[RunStanding]) -> list[dict[str, Any]]:
    """Runs of a launcher's sweep as a program reads them."""
    now = time.time()
    return [
        {
            "run": run.number,
            "job": run.job,
            "values": run.values,
            "state": run.state,
            "seconds": round((run.ended or now) - run.started, 3) if run.started else None,
            "machine": run.machine,
            "exit_code": run.exit_code,
            "reason": run.reason,
        }
        for run in runs
    ]


def _run(job: dict[str, Any], now: float) -> dict[str, Any]:
    """One run as a program reads it."""
    started, ended = job.get("started"), job.get("ended")
    return {
        "run": job["line"],
        "job": job["id"],
        "values": job["title"],
        "state": job["state"],
        "seconds": round((ended or now) - started, 3) if started else None,
        "machine": machines(job),
        "exit_code": job.get("exit_code"),
        "reason": job.get("reason") or "",
    }


def _row(run: dict[str, Any]) -> list[Any]:
    return [
        str(run["run"]),
        run["values"],
        (run["state"], STATE_COLOURS.get(run["state"], "")),
        "" if run["seconds"] is None else format_duration(run["seconds"]),
        run["machine"],
        "" if run["exit_code"] is None else str(run["exit_code"]),
        str(run["job"] or ""),
        run["reason"],
    ]
