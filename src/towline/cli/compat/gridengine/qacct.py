"""`tow qacct -j`: how jobs ended, as Grid Engine's accounting tells it."""

from __future__ import annotations

import sys
import time

from towline.cli.compat.gridengine.details import group_of
from towline.cli.compat.gridengine.listing import Entry, task_numbers
from towline.cli.session import open_session
from towline.cli.terminal.wording import FINAL
from towline.client.batches import batches, jobs_of
from towline.errors import NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.client.session import Session

VALUED = {
    "-j": ("JOB", "of the job, or the array, of this number or name"),
    "-t": ("1-3:1", "only these tasks of an array"),
}
PLAIN: dict[str, str] = {}
_KILLED = 137
_SIGNALS = {137: "Killed", 139: "Segmentation fault", 143: "Terminated"}


def main(words: list[str]) -> int:
    options = dict(zip(words[::2], words[1::2], strict=False))
    if len(words) % 2 or not options.keys() <= VALUED.keys() or "-j" not in options:
        sys.stderr.write("usage: qacct -j JOB [-t TASKS]\n")
        return 1
    name = options["-j"]
    ended = [entry for entry in _called(open_session(), name) if entry.view["state"] in FINAL]
    if "-t" in options:
        ended = [entry for entry in ended if entry.task in task_numbers(options["-t"])]
    if not ended:
        kind = "id" if name.isdecimal() else "name"
        sys.stderr.write(f"error: job {kind} {name} not found\n")
        return 1
    for entry in ended:
        sys.stdout.write("=" * 62 + "\n" + _record(entry))
    return 0


def _called(session: Session, name: str) -> list[Entry]:
    for batch in batches(session, everything=True):
        if name in (str(batch["first"]), batch["name"]):
            found = jobs_of(session, batch["name"])
            return [Entry(job, found["batch"]) for job in found["jobs"]]
    if name.isdecimal():
        try:
            job = session.call("GET", f"/v1/jobs/{name}")
        except NotFound:
            return []
        return [] if job["batch"] else [Entry(job)]
    jobs = session.call("GET", "/v1/jobs?all=1")["jobs"]
    return [Entry(job) for job in jobs if job["title"] == name]


def _record(entry: Entry) -> str:
    job = entry.view
    failed, status = _verdict(job)
    host = next(iter(job.get("machines") or ()), "")
    wall = (job["ended"] or 0) - (job["started"] or job["ended"] or 0)
    padded = {
        "qname": entry.among,
        "hostname": host or "UNKNOWN",
        "group": group_of(entry.user),
        "owner": entry.user,
        "project": "NONE",
        "department": "defaultdepartment",
        "jobname": entry.name,
        "jobnumber": str(entry.number),
        "taskid": str(entry.task or "undefined"),
        "account": "sge",
        "priority": str(job["priority"]),
        "qsub_time": _moment(job["submitted"]),
        "start_time": _moment(job["started"]),
        "end_time": _moment(job["ended"]),
        "granted_pe": "NONE" if entry.slots == 1 else "smp",
        "slots": str(entry.slots),
        "failed": failed,
        "exit_status": status,
        "ru_wallclock": f"{wall:.0f}s",
    }
    return "".join(f"{name:<12} {value:<20}".rstrip() + "\n" for name, value in padded.items())


def _moment(at: float | None) -> str:
    return time.ctime(at) if at else "-/-"


def _verdict(job: dict[str, Any]) -> tuple[str, str]:
    """What failed, and the exit status, as accounting has them."""
    kind, code = str((job.get("because") or {}).get("kind") or ""), job["exit_code"]
    if kind in ("timeout", "oom"):
        return "37  : qmaster enforced h_rt, h_cpu, or h_vmem limit", _status(_KILLED)
    if job["state"] == "lost":
        return "19  : before writing exit_status", "0"
    if kind == "signal" or (job["state"] == "stopped" and job["started"]):
        return "100 : assumedly after job", _status(code or _KILLED)
    if code is None:
        return "21  : in recognizing job", "0"
    return "0", _status(code)


def _status(code: int) -> str:
    return f"{code:<20} ({_SIGNALS[code]})" if code in _SIGNALS else str(code)
