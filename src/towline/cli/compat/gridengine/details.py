"""`qstat -j`: everything about jobs."""

from __future__ import annotations

import os
import sys
import time

from towline.cli.compat.gridengine.listing import (
    Entries,
    Entry,
    asked_of_queue,
    hard_resources,
    task_text,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Words of the command that `qsub` puts before the script's own arguments.
_BEFORE_ARGUMENTS = 4


def details(entries: Entries, names: str, xml: bool) -> int:
    """What is known of jobs; those that do not exist are said so only when none does."""
    if not names:
        # A scheduler's own messages, which are told of each job here.
        sys.stdout.write("scheduling info:            There are no messages available\n\n")
        return 0
    wanted = [name.strip() for name in names.split(",")]
    found = {entry.number: entry for name in wanted for entry in reversed(entries.called(name))}
    if xml:
        from towline.cli.compat.gridengine.as_xml import known_jobs, unknown_jobs

        sys.stdout.write(known_jobs(found.values()) if found else unknown_jobs(wanted))
        return 0
    if not found:
        sys.stderr.write("Following jobs do not exist: \n" + ", ".join(wanted) + "\n")
        return 1
    for number in sorted(found):
        sys.stdout.write("=" * 62 + "\n" + _detail(entries, found[number]))
    return 0


def _detail(entries: Entries, entry: Entry) -> str:
    job = entries.session.call("GET", f"/v1/jobs/{entry.job}")
    why = str(entries.session.call("GET", f"/v1/jobs/{entry.job}/why")["text"])
    mine = [one for one in entries.all if one.number == entry.number]
    facts = {**_of_submission(entry, job), **_of_request(entry, job, mine)}
    text = "".join(f"{name + ':':<28}{value}\n" for name, value in facts.items() if value)
    for one in mine:
        if "E" in one.state:
            reason = str(one.view.get("reason") or "").partition(": ")[2]
            text += f"error reason {one.task or 1:>10}:      {reason or why}\n"
    waits = [one for one in mine if one.is_waiting]
    if waits:
        by_wish = job.get("waits_for") or job.get("begin")
        info = why if by_wish else str(job.get("reason") or why)
        info = "Job is in error state" if all("E" in one.state for one in waits) else info
        text += f"{'scheduling info:':<28}{info}\n"
    return text


def _of_submission(entry: Entry, job: dict[str, Any]) -> dict[str, str]:
    facts = {
        "job_number": str(entry.number),
        "submission_time": time.ctime(job["submitted"]),
        "owner": entry.user,
        **_person(entry.user),
        "sge_o_host": os.uname().nodename,
        "account": "sge",
        "cwd": str(job["folder"]),
    }
    return facts


def group_of(name: str) -> str:
    return _person(name).get("group", "NONE")


def _person(name: str) -> dict[str, str]:
    """Of somebody whom this machine knows."""
    import grp
    import pwd

    try:
        person = pwd.getpwnam(name)
        group = grp.getgrgid(person.pw_gid).gr_name
    except KeyError:
        return {}
    return {"uid": str(person.pw_uid), "group": group, "gid": str(person.pw_gid)}


def _of_request(entry: Entry, job: dict[str, Any], mine: list[Entry]) -> dict[str, str]:
    tasks = [one.task for one in mine if one.task]
    command = [str(word) for word in job.get("command") or ()]
    ours = command[:2] == ["/bin/sh", "-c"] and "QSUB_" in "".join(command[2:3])
    arguments = command[_BEFORE_ARGUMENTS:] if ours else command[1:]
    return {
        "hard resource_list": ",".join(hard_resources(entry, "", float(job.get("time_s") or 0))),
        "notify": "FALSE",
        "job_name": entry.name,
        "priority": str(job["priority"]) if job.get("priority") else "",
        "jobshare": "0",
        "hard_queue_list": _queue_asked(entry),
        "execution_time": time.ctime(job["begin"]) if job.get("begin") else "",
        "job_args": ",".join(arguments),
        "script_file": "" if ours else " ".join(command[:1]),
        "parallel environment": _parallel(entry),
        "jid_predecessor_list": ",".join(map(str, entry.awaited)),
        "job-array tasks": task_text(tasks) if tasks else "",
        "binding": "NONE",
        "job_type": "NONE",
    }


def _parallel(entry: Entry) -> str:
    return f"{entry.environment} range: {entry.slots}" if entry.environment else ""


def _queue_asked(entry: Entry) -> str:
    """The queue, or partition, that was named; of machines the cluster is one."""
    asked = asked_of_queue(entry.view)
    named = [*asked.get("-q", ()), *asked.get("--partition", ())]
    return ",".join(named) if entry.view.get("queue") else entry.cluster
