"""`tow show`: everything about one job."""

from __future__ import annotations

import time

from towline.cli.options import Parser
from towline.cli.session import open_session
from towline.cli.terminal import paint, printable, say, say_json
from towline.cli.terminal.queue_wording import (
    options_text,
    prospects,
    queue_details,
    queue_title,
    requeued,
)
from towline.cli.terminal.table import show_table
from towline.cli.terminal.wording import (
    STATE_COLOURS,
    ago,
    count,
    duration,
    ending,
    hints,
    machines,
    one_line,
    size,
)
from towline.client.names import meant
from towline.model.names import shown_cluster

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EXAMPLES = """
tow show 12
tow show last --json
tow show 12 --script > job.sh
tow show sweep.3
"""


def parser() -> Parser:
    parser = Parser(
        "show",
        "[--json | --script] JOB",
        "Everything about one job: its command, its processes, what happened to it and when.\n"
        "Of a batch, what `tow batch show` tells.",
        EXAMPLES,
    )
    parser.add_job(or_batch=True)
    parser.add_json()
    parser.add_argument(
        "--script", action="store_true", help="print a job on a Slurm as a script for sbatch"
    )
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    session = open_session()
    found = meant(session, options.job)
    if found.batch:
        from towline.cli.batch.actions import act_on

        return act_on("show", found.batch, json=options.json)
    job = session.call("GET", f"/v1/jobs/{found.job}")
    if options.json:
        say_json(job)
        return 0
    if options.script:
        return _show_script(job)
    say("\n".join(_facts(job, time.time())))
    _show_processes(job.get("processes") or [])
    for entry in job.get("history") or []:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry["at"]))
        say(f"{paint(moment, 'dim', 1)}  {one_line(str(entry['text']))}")
    return 0


def _show_script(job: dict[str, Any]) -> int:
    from towline.cli.sbatch_script import script
    from towline.errors import UsageError

    if (job.get("queue") or {}).get("kind") != "slurm":
        raise UsageError(
            f"job {job['id']} is not on a Slurm, so there is no script for sbatch",
            hint=f"tow show {job['id']} has its command",
        )
    say("\n".join(map(printable, script(job).split("\n"))))
    return 0


def _facts(job: dict[str, Any], now: float) -> list[str]:
    import shlex

    from towline.model.odd_text import original
    from towline.model.units import format_duration

    attempt = f"{job['attempt']} of at most {job['retries'] + 1}" if job.get("retries") else ""
    facts = {
        "title": job["title"],
        "command": shlex.join(map(original, job["command"])).replace("\n", " ↵ "),
        "folder": original(job["folder"]),
        "cluster": shown_cluster(job["cluster"]),
        "machines": machines(job, most=20),
        queue_title(job): _in_queue(job),
        "options": options_text(job),
        "request": job["request"],
        "priority": str(job.get("priority") or ""),
        "after": _after(job),
        "attempt": attempt,
        "setup": job.get("setup") or "",
        "sets": ", ".join(job.get("env") or []),
        "services": ", ".join(job.get("services") or []),
        "time limit": format_duration(job["time_s"]) if job.get("time_s") else "",
        "submitted": ago(job["submitted"], now),
        "ran for": duration(job, now),
        "used": _used(job.get("peaks") or {}),
        "ended": ago(job["ended"], now) if job.get("ended") else "",
        "exit code": "" if job.get("exit_code") is None else str(job["exit_code"]),
        "sent": sent(job),
        "commit": job.get("commit") or "",
        "record": job.get("branch") or "",
        "changed": changed(job.get("changed") or []),
    }
    state = paint(job["state"], STATE_COLOURS.get(job["state"], "bold"), 1)
    why = ending(job)
    head = f"job {job['id']} · {state}{why and f': {why}'}"
    width = max(10, *(len(name) for name, text in facts.items() if text))
    return [
        head,
        *(f"    {hint}" for hint in hints(job)),
        *(f"  {name:<{width}} {printable(text)}" for name, text in facts.items() if text),
    ]


def _used(peaks: dict[str, Any]) -> str:
    """The most that it used at a time."""
    from towline.model.units import format_memory

    if not peaks:
        return ""
    found = [f"up to {peaks['cpus']:.1f} CPUs"] if peaks["cpus"] else []
    found.append(f"{'' if found else 'up to '}{format_memory(peaks['mem_mb'])} of memory")
    if peaks.get("gpu_util") is not None:
        found.append(f"{100 * peaks['gpu_util']:.0f} % of its GPUs")
    if peaks.get("gpu_mem_mb"):
        found.append(f"{format_memory(peaks['gpu_mem_mb'])} of their memory")
    return ", ".join(found)


def _after(job: dict[str, Any]) -> str:
    """What it was submitted to run after."""
    from towline.model.names import awaited_words

    told = job.get("after") or []
    return awaited_words((one["batch"] or one["job"], one["when"], "") for one in told)


def _in_queue(job: dict[str, Any]) -> str:
    queue = job.get("queue") or {}
    if not queue.get("number"):
        return ""
    now = time.time()
    taken_back = [text] if (text := requeued(queue, now)) else []
    return " · ".join([queue_details(job), *taken_back, *prospects(queue, now)])


def sent(job: dict[str, Any]) -> str:
    files = job.get("files") or 0
    return f"{count(files, 'file')}, {size(job.get('bytes') or 0)}" if files else ""


def changed(files: list[dict[str, str]], most: int = 8) -> str:
    """What differed from the last commit, in one line."""
    shown = ", ".join(f"{entry['letter']} {entry['path']}" for entry in files[:most])
    return shown + (f" and {len(files) - most} more" if len(files) > most else "")


def _show_processes(processes: list[dict[str, Any]]) -> None:
    if not processes:
        return
    say("")
    show_table(
        ["PROCESS", "MACHINE", "GPUS", "STATE", "EXIT", "FOLDER"],
        [
            [
                f"{process['group']}.{process['process']}",
                str(process.get("machine") or ""),
                ", ".join(map(str, process.get("gpus") or [])),
                (
                    str(process.get("state") or ""),
                    STATE_COLOURS.get(process.get("state") or "", ""),
                ),
                _exit(process),
                str(process.get("folder") or ""),
            ]
            for process in processes
        ],
    )
    say("")


def _exit(process: dict[str, Any]) -> str:
    if process.get("signal"):
        return f"signal {process['signal']}"
    return "" if process.get("exit_code") is None else str(process["exit_code"])
