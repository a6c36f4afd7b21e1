"""`tow qdel`: stop jobs, by number, name, pattern and task."""

from __future__ import annotations

import getpass

from towline.cli.compat.gridengine.listing import (
    Entries,
    Entry,
    task_numbers,
    task_text,
    unknown_job,
)
from towline.cli.compat.gridengine.outputs import see_to_it
from towline.cli.session import open_session

VALUED = {
    "-t": ("1-3:1", "only these tasks of the array before it"),
    "-u": ("USER", "all jobs of this user"),
}
PLAIN = {"-f": "taken: a job goes when its machine says that it ended"}


def main(words: list[str]) -> int:
    names, user, code = _read(words)
    if code:
        return code
    see_to_it()
    entries = Entries(open_session())
    me = getpass.getuser()
    chosen: dict[int, Entry] = {}
    for name, tasks in names:
        found = entries.called(name)
        if tasks:
            found = [entry for entry in found if entry.task in task_numbers(tasks)]
        if not found:
            print(unknown_job(name, me))
            code = 1
        chosen.update((entry.job, entry) for entry in found)
    if user:
        mine = [entry for entry in entries.all if user in (entry.user, "*")]
        if not mine:
            print(f"There is no job registered for the following users: {user}")
            code = 1
        chosen.update((entry.job, entry) for entry in mine)
    if chosen:
        _stop(entries, chosen)
        for line in _told(list(chosen.values()), me):
            print(line)
    return code


def _read(words: list[str]) -> tuple[list[tuple[str, str]], str, int]:
    names: list[tuple[str, str]] = []
    user, rest = "", list(words)
    while rest:
        word = rest.pop(0)
        if word == "-t" and rest and names:
            names[-1] = names[-1][0], rest.pop(0)
        elif word == "-u" and rest:
            user = rest.pop(0)
        elif word.startswith("-") and word not in PLAIN:
            print(f'ERROR! invalid option argument "{word}"')
            return [], "", 1
        elif word not in PLAIN:
            names += [(name, "") for name in word.split(",") if name]
    if not names and not user:
        print("ERROR! no option argument\nusage: qdel [options] job_task_list")
        return [], "", 1
    return names, user, 0


def _stop(entries: Entries, chosen: dict[int, Entry]) -> None:
    """A whole array is stopped as one; of others, each job."""
    jobs = dict(chosen)
    for name in {entry.batch for entry in chosen.values() if entry.batch}:
        mine = {entry.job for entry in entries.all if entry.batch == name}
        if mine <= chosen.keys():
            from towline.client.batches import ask_of_batch

            ask_of_batch(entries.session, name, "stop", {})
            for job in mine:
                jobs.pop(job, None)
    if jobs:
        entries.session.call("POST", "/v1/jobs/stop", {"ids": list(jobs)}, repeat=True)


def _told(entries: list[Entry], me: str) -> list[str]:
    told = []
    arrays: dict[int, list[int]] = {}
    for entry in entries:
        who = f"{entry.number}.{entry.task}" if entry.task else str(entry.number)
        kind = "job-array task" if entry.task else "job"
        if entry.state == "dr":
            told.append(f"job {entry.number} is already in deletion")
        elif not entry.is_waiting:
            told.append(f"{me} has registered the {kind} {who} for deletion")
        elif entry.task:
            arrays.setdefault(entry.number, []).append(entry.task)
        else:
            told.append(f"{me} has deleted job {entry.number}")
    for number, tasks in arrays.items():
        if len(tasks) == 1:
            told.append(f"{me} has deleted job-array task {number}.{tasks[0]}")
        else:
            told.append(f"{me} has deleted job-array tasks {task_text(tasks)} of job {number}")
    return told
