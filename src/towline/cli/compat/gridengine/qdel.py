"""`tow qdel`: stop jobs, by number, name, pattern and task."""

from __future__ import annotations

import getpass
import re
import sys

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
_USAGE = """\
usage: qdel [options] job_task_list
   [-f]                                     force action
   [-help]                                  print this help
   [-u user_list]                           delete all jobs of users specified in list
   job_task_list                            delete all jobs given in list

job_task_list           job_tasks[,job_tasks,...]
job_tasks               [job_id['.'task_id_range]|job_name|pattern][' -t 'task_id_range]
task_id_range           task_id['-'task_id[':'step]]
user_list               user[,user,...]
"""


class Wrong(Exception):
    """What was typed means nothing; the text says so."""


class Deletion:
    """What was named so far: what is told of it, in its order, and what is to be stopped."""

    def __init__(self, entries: Entries, me: str) -> None:
        self.entries = entries
        self.me = me
        self.chosen: dict[int, Entry] = {}
        self.told: list[str] = []
        self.code = 0

    def add(self, found: list[Entry], some_tasks: bool) -> None:
        """Tasks that wait are told of together: as the job itself, unless some were named."""
        waiting: dict[int, list[int]] = {}
        for entry in found:
            kind = "job-array task" if entry.task else "job"
            who = f"{entry.number}.{entry.task}" if entry.task else str(entry.number)
            if entry.state[0] == "d" or entry.job in self.chosen:
                self.told.append(f"job {entry.number} is already in deletion")
            elif not entry.is_waiting:
                self.told.append(f"{self.me} has registered the {kind} {who} for deletion")
            else:
                waiting.setdefault(entry.number, []).append(entry.task)
        for number, tasks in waiting.items():
            self.told.append(f"{self.me} has deleted {_called(number, tasks, some_tasks)}")
        self.chosen.update((entry.job, entry) for entry in found)

    def unknown(self, text: str) -> None:
        self.told.append(text)
        self.code = 1

    def stop(self) -> None:
        """A whole array is stopped as one; of others, each job."""
        jobs = dict(self.chosen)
        for name in {entry.batch for entry in jobs.values() if entry.batch}:
            mine = {entry.job for entry in self.entries.all if entry.batch == name}
            if mine <= self.chosen.keys():
                from towline.client.batches import ask_of_batch

                ask_of_batch(self.entries.session, name, "stop", {})
                for job in mine:
                    jobs.pop(job, None)
        if jobs:
            body = {"ids": list(jobs)}
            self.entries.session.call("POST", "/v1/jobs/stop", body, repeat=True)


def _called(number: int, tasks: list[int], some_tasks: bool) -> str:
    if not some_tasks:
        return f"job {number}"
    if len(tasks) == 1:
        return f"job-array task {number}.{tasks[0]}"
    return f"job-array tasks {task_text(tasks)} of job {number}"


def main(words: list[str]) -> int:
    try:
        names, users = _read(words)
    except Wrong as wrong:
        sys.stderr.write(f"error: {wrong}\n")
        return 1
    except ValueError as wrong:
        print(f"ERROR! {wrong}")
        sys.stderr.write(_USAGE)
        return 1
    me = getpass.getuser()
    if users == ["*"]:
        print(f'denied: "{me}" must be manager to modify all jobs')
        return 1
    see_to_it()
    deletion = Deletion(Entries(open_session()), me)
    for name, tasks in names:
        found = deletion.entries.called(name)
        if tasks:
            found = [entry for entry in found if entry.task in task_numbers(tasks)]
        if found:
            in_parts = bool(tasks) or (name[:1].isdigit() and "." in name)
            deletion.add(found, in_parts and bool(found[0].task))
        else:
            deletion.unknown(unknown_job(name, me))
    if users:
        mine = [entry for entry in deletion.entries.all if entry.user in users]
        if mine:
            deletion.add(mine, False)
        else:
            text = "There is no job registered for the following users: "
            deletion.unknown(text + ",".join(users))
    if deletion.chosen:
        deletion.stop()
    for line in deletion.told:
        print(line)
    return deletion.code


def _read(words: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Names, each with the tasks that were named behind it, and users."""
    names: list[tuple[str, str]] = []
    users: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "-t":
            tasks = _tasks(rest.pop(0) if rest else "")
            if not names:
                needs = "The -t option needs a leading job name"
                raise Wrong(f"found lonely '-t {tasks}' option ({needs}).")
            names[-1] = names[-1][0], tasks
        elif word == "-u" and rest:
            users += filter(None, rest.pop(0).split(","))
        elif word not in (*PLAIN, "-u"):
            names += [(_checked(name), "") for name in word.split(",") if name]
    if not names and not users:
        raise ValueError("no option argument")
    return names, users


def _tasks(text: str) -> str:
    if not text:
        raise Wrong("-t option must have a list of task id ranges")
    for part in re.split("[-:,]", text):
        if not part.isdecimal():
            number = "Numerical value invalid!\nThe initial portion of string"
            raise Wrong(f'{number} "{part}" contains no decimal number')
    return text


def _checked(name: str) -> str:
    """A number with a dot behind it is of an array."""
    number, dot, tasks = name.partition(".")
    if number.isdecimal() and dot and not re.fullmatch(r"[\d:-]+", tasks):
        raise Wrong(f'ERROR! "{name}" is an invalid job-task identifier')
    return name
