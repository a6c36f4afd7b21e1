"""`tow qacct -j`: how jobs ended, as Grid Engine's accounting tells it."""

from __future__ import annotations

import re
import sys
import time
from fnmatch import fnmatchcase

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
    name, session = options["-j"], open_session()
    # Of what was deleted before it began there is no record.
    ended = [entry for entry in _called(session, name) if entry.view["state"] in FINAL]
    ended = [entry for entry in ended if entry.view["started"] or entry.view["state"] == "lost"]
    if "-t" in options:
        ended = [entry for entry in ended if entry.task in task_numbers(options["-t"])]
    if not ended:
        kind = "id" if name.isdecimal() else "name"
        sys.stderr.write(f"error: job {kind} {name} not found\n")
        return 1
    for entry in ended:
        sys.stdout.write("=" * 62 + "\n" + _record(entry, _used(session, entry)))
    return 0


def _called(session: Session, name: str) -> list[Entry]:
    found = []
    for batch in batches(session, everything=True):
        # Of several arrays of one name, later ones have a number behind it.
        title = re.sub(r"-\d+$", "", batch["name"])
        is_named = not name.isdecimal() and (batch["name"] == name or fnmatchcase(title, name))
        if is_named or name == str(batch["first"]):
            jobs = jobs_of(session, batch["name"])
            found += [Entry(job, jobs["batch"]) for job in jobs["jobs"]]
    if name.isdecimal():
        if found:
            return found
        try:
            job = session.call("GET", f"/v1/jobs/{name}")
        except NotFound:
            return []
        return [] if job["batch"] else [Entry(job)]
    jobs = session.call("GET", "/v1/jobs?all=1")["jobs"]
    found += [Entry(job) for job in jobs if not job["batch"] and fnmatchcase(job["title"], name)]
    return sorted(found, key=lambda entry: entry.job)


def _used(session: Session, entry: Entry) -> dict[str, str]:
    """The most memory that it had, where that was measured."""
    peaks = session.call("GET", f"/v1/jobs/{entry.job}").get("peaks") or {}
    most_mb = float(peaks.get("mem_mb") or 0)
    if not most_mb:
        return {}
    return {"ru_maxrss": f"{most_mb * 1024:.3f}KB", "maxvmem": f"{most_mb:.3f}MB"}


def _record(entry: Entry, used: dict[str, str]) -> str:
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
        "granted_pe": entry.environment or "NONE",
        "slots": str(entry.slots),
        "failed": failed,
        "exit_status": status,
    }
    plain = {"ru_wallclock": f"{wall:.0f}s", **used}
    text = "".join(f"{name:<12} {value:<{_width(name)}}\n" for name, value in padded.items())
    return text + "".join(f"{name:<12} {value}\n" for name, value in plain.items())


def _width(name: str) -> int:
    return 0 if name.endswith("_time") else 5 if name == "failed" else 20


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
