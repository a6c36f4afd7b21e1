"""Compares what was asked with what ran: once each, where it is said to, with the right ending."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from testbed.hosts import Hosts
from towline.client.session import Session

#: Where every task leaves its line, below the home of its host.
LINES = "ran.txt"
# One write to a file opened for appending: lines of several tasks never mix.
SCRIPT = (
    f'echo "$1" >> "$HOME/{LINES}"; echo "out $1 begins"; echo "err $1" >&2; '
    'sleep "$2"; echo "out $1 ends"; exit "$3"'
)


class Task(NamedTuple):
    """One command to run, and how it must end."""

    name: str
    pause: float
    code: int

    @property
    def argv(self) -> list[str]:
        return ["sh", "-c", SCRIPT, "sh", self.name, f"{self.pause:.2f}", str(self.code)]

    @property
    def out(self) -> str:
        return f"out {self.name} begins\nout {self.name} ends\n"

    @property
    def err(self) -> str:
        return f"err {self.name}\n"


def tasks(count: int, random: Random, longest: float, prefix: str = "t") -> list[Task]:
    """Tasks of different lengths, two of three with an exit code other than 0."""
    return [
        Task(f"{prefix}{number}", random.uniform(0, longest), number % 3 and number % 200)
        for number in range(count)
    ]


def lines_on(hosts: Hosts, names: Iterable[str]) -> dict[str, list[str]]:
    """What ran on each host, in the order it began there."""
    files = {name: Path(hosts.home(name)) / LINES for name in names}
    return {
        name: file.read_text().splitlines() if file.exists() else [] for name, file in files.items()
    }


def output(session: Session, job: int) -> dict[str, str]:
    """What a job printed, by stream, as Towline tells it."""
    found = {"out": b"", "err": b""}
    for header, blob in session.frames("GET", f"/v1/jobs/{job}/log?follow=0"):
        if "stream" in header:
            assert header["offset"] == len(found[header["stream"]]), f"job {job}: a gap"
            found[header["stream"]] += blob
    return {stream: text.decode() for stream, text in found.items()}


def differences(
    asked: Mapping[int, Task],
    views: Iterable[Mapping[str, Any]],
    ran: Mapping[str, list[str]],
    session: Session,
) -> list[str]:
    """In words, everything that is not as it was asked; empty when all is well."""
    known = {int(view["id"]): view for view in views}
    count = Counter(line for lines in ran.values() for line in lines)
    where = {line: name for name, lines in ran.items() for line in lines}
    found = [f"job {job} was never asked for" for job in known.keys() - asked.keys()]
    found += [f"{line} ran, but is no task" for line in count.keys() - _names(asked)]
    found += [f"{len(asked)} jobs for {len(_names(asked))} tasks"] * (
        len(asked) != len(_names(asked))
    )
    for job, task in asked.items():
        if count[task.name] != 1:
            found.append(f"job {job}: {task.name} ran {count[task.name]} times")
        if job in known:
            found += _about(job, task, known[job], where.get(task.name), session)
        else:
            found.append(f"job {job} is not known any more")
    return found


def _names(asked: Mapping[int, Task]) -> set[str]:
    return {task.name for task in asked.values()}


def _about(
    job: int, task: Task, view: Mapping[str, Any], where: str | None, session: Session
) -> list[str]:
    expected = {
        "state": "failed" if task.code else "done",
        "exit_code": task.code,
        "machines": [where],
        "command": task.argv,
    }
    told = output(session, job)
    found = [
        f"job {job}: {name} is {view[name]!r}, not {value!r} ({view['reason']})"
        for name, value in expected.items()
        if view[name] != value
    ]
    # A start that never went out, because the machine was away, may be followed by another one; but
    # that it ran is told of exactly one, also where nobody was there to hear it begin.
    if (runs := _runs(session, job)) != 1:
        found.append(f"job {job}: attempt {view['attempt']}, and it was said to run {runs} times")
    if told != {"out": task.out, "err": task.err}:
        found.append(f"job {job}: its output is {told!r}")
    return found


def _runs(session: Session, job: int) -> int:
    """How many times Towline said that a job runs."""
    history = session.call("GET", f"/v1/jobs/{job}")["history"]
    return sum(entry["text"].startswith("running on") for entry in history)
