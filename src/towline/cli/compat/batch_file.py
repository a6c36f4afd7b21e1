"""A batch file: each line a command, or an `execute_remote` command without its machine."""

from __future__ import annotations

import os
import shlex
import sys

from towline.cli.compat.copies import backwards, checked_name, forwards
from towline.cli.compat.single import RANDOM, single_options
from towline.errors import UsageError
from towline.model.lines import commands_from

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

REMOTE = "execute_remote"


class Task:
    """One line of a batch file."""

    __slots__ = ("back", "command", "line", "name", "number", "only")

    def __init__(self, number: int, name: str, line: str, command: str) -> None:
        #: The line it stands on, from 1.
        self.number = number
        #: Its results go to `job_results/<name>`.
        self.name = name
        #: As it stands in the file, and what bash runs of it.
        self.line = line
        self.command = command
        #: What goes along and comes home, where it is not the same for all.
        self.only: list[str] | None = None
        self.back: list[str] | None = None


def read_tasks(file: str, commands_only: bool = False) -> list[Task]:
    """The tasks of a batch file; `commands_only`: every line must be an `execute_remote`."""
    stem = os.path.normpath(file).replace("/", "_").lstrip(".") if file != "-" else "batch"
    tasks = []
    for command in commands_from(_content(file), file):
        task = Task(command.number, f"{stem}.{command.number}", command.title, command.argv[-1])
        where = f"{file}, line {command.number}: "
        words = _words(task.command)
        if words is not None and words[:1] == [REMOTE]:
            _read_remote(task, words[1:], where)
        elif commands_only:
            raise UsageError(
                f"{where}this is not an {REMOTE} command",
                "with --commands every line is one; without it, lines may also be plain commands",
            )
        checked_name(task.name, where)
        tasks.append(task)
    _check_names(tasks, file)
    return tasks


def _content(file: str) -> bytes:
    try:
        if file == "-":
            return sys.stdin.buffer.read()
        with open(file, "rb") as stream:
            return stream.read()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None


def _words(line: str) -> list[str] | None:
    """The words of an `execute_remote` line; None for any other, which is bash's to read."""
    if not line.lstrip().startswith(REMOTE):
        return None
    try:
        # Where a line goes on in the next, bash sees nothing between them.
        return shlex.split(line.replace("\\\n", ""))
    except ValueError:
        return None


def _read_remote(task: Task, words: list[str], where: str) -> None:
    """A partial command: the machine and its GPUs are given out here, whatever it says."""
    options = _parsed(words, where)
    task.command = options.command
    if options.job_name != RANDOM:
        task.name = options.job_name
    if options.copy_forwards is not None:
        task.only = forwards(options.copy_forwards, where)
    if options.copy_backwards is not None:
        task.back = backwards(options.copy_backwards, where)


def _parsed(words: list[str], where: str) -> Namespace:
    parser = single_options(default=None, machine_needed=False, failing=where)
    return parser.parse_args(words)


def _check_names(tasks: list[Task], file: str) -> None:
    seen: dict[str, int] = {}
    for task in tasks:
        if seen.setdefault(task.name, task.number) != task.number:
            raise UsageError(
                f"{file}: lines {seen[task.name]} and {task.number} are both called {task.name}",
                "give each its own --job-name: results of two jobs cannot have one name",
            )
