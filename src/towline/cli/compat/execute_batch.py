"""`execute_batch FILE --machines M...`: the lines of a file as jobs, on just these machines."""

from __future__ import annotations

import os

from towline.cli.compat.batch_file import Task, read_tasks
from towline.cli.compat.before import say_how_to_run_again, unfinished_before, words_for
from towline.cli.compat.copies import (
    EVERYTHING,
    add_copies,
    backwards,
    existing_results,
    forwards,
)
from towline.cli.compat.machine_files import machine_entries
from towline.cli.compat.needs import add_needs, argv_for, needs_gpu, request_for
from towline.cli.compat.program import ProgramOptions
from towline.cli.compat.submission import batch_base, machine_limits
from towline.cli.main import leave
from towline.cli.session import open_session
from towline.cli.terminal import note, say, tell
from towline.client.submission import this_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from towline.client.session import Session


def parser() -> ProgramOptions:
    parser = ProgramOptions(
        "execute_batch",
        "Run every line of a file as a job, on as many of the machines at a time as have room. "
        "Results go to job_results; a job whose results are there is skipped.",
        hint="the file stands first: execute_batch FILE --machines M1.yaml M2.yaml",
    )
    add_copies(parser, EVERYTHING)
    parser.add_argument(
        "--machines", nargs="+", required=True, metavar="FILE", help="the machines' files"
    )
    add_needs(parser)
    parser.add_argument("--verbose", action="store_true", help="say more about what is done")
    parser.add_argument(
        "--dry-run", action="store_true", help="only show what would go where at first"
    )
    parser.add_argument(
        "--commands",
        action="store_true",
        help="every line is an execute_remote command (such lines are recognised anyway)",
    )
    parser.add_argument(
        "filename", nargs="?", help="a file with a command on each line; - is stdin"
    )
    return parser


def command(args: list[str]) -> int:
    options = _parsed(args)
    request = request_for(options)
    tasks = read_tasks(options.filename, options.commands)
    entries = machine_entries(options.machines)
    base = {
        **batch_base(request, forwards(options.copy_forwards)),
        "back": backwards(options.copy_backwards),
        "whole": bool(options.copy_backwards) or any(task.back for task in tasks),
    }
    session = open_session()
    machines = machine_limits(session, dict(zip(options.machines, entries, strict=True)), request)
    slots = {name: found["slots"] for name, found in machines.items()}
    say(f"machine limits:  { {name: len(found) for name, found in slots.items()} }")
    say(f"machine gpu choices: {[[gpus[0] for gpus in found if gpus] for found in slots.values()]}")
    before = unfinished_before(session, options.filename, tasks)
    left = [task for task in tasks if not _skipped(task, before.get(task.name, ""))]
    if options.verbose:
        _tell_more(options, request, machines)
    if options.dry_run:
        if not any(slots.values()):
            _check_possible(session, request, machines)
        return _dry_run(options, left, slots)
    code = _run(session, options, left, base, entries) if left else 0
    return say_how_to_run_again(before) or code


def _parsed(args: list[str]) -> Namespace:
    asking = parser()
    options = asking.parse_args(args)
    if options.filename is None and not options.machines[-1].endswith((".yaml", ".yml")):
        # argparse takes it for one more machine.
        options.filename = options.machines.pop()
    if not options.machines or not options.filename:
        asking.error("a file of commands and the machines to run them on are needed")
    return options


def _skipped(task: Task, state: str) -> bool:
    if not existing_results(task.name):
        return False
    say(
        f"WARNING: job results already exists for line {task.number}{words_for(state)}, "
        "skipping evaluation: delete if you wish to rerun"
    )
    return True


def _run(
    session: Session,
    options: Namespace,
    tasks: list[Task],
    base: dict[str, Any],
    entries: list[dict[str, Any]],
) -> int:
    from towline.cli.batch.follow import BatchFollow
    from towline.cli.compat.progress import ProgressLine
    from towline.client.submission import new_key
    from towline.model.lines import name_from

    ask = {
        "name": name_from(options.filename) if options.filename != "-" else "",
        "base": base,
        "lines": [_line(task, options) for task in tasks],
        "machines": entries,
    }
    view = session.once("/v1/batches", ask, new_key())["batch"]
    if options.verbose:
        note(f"batch {view['name']}, jobs {view['first']} to {view['first'] + view['count'] - 1}")
    progress = ProgressLine(tasks, shows_gpu=needs_gpu(options) and not options.reserve)
    return BatchFollow(session, view["name"], progress).run()


def _line(task: Task, options: Namespace) -> dict[str, Any]:
    line: dict[str, Any] = {
        "argv": argv_for(task.command, options),
        "title": task.command,
        "name": task.name,
        "number": task.number,
    }
    if task.only is not None:
        line["only"] = task.only
    if task.back is not None:
        line["back"] = task.back
    return line


def _check_possible(session: Session, request: str, machines: dict[str, dict[str, Any]]) -> None:
    """Raise, as the run itself would, what none of the machines can ever take."""
    together = next(iter(machines.values()))["together"]
    ask = {**batch_base(request, []), "argv": ["true"], "cluster": together}
    session.call("POST", "/v1/plan", ask, repeat=True)


def _dry_run(options: Namespace, tasks: list[Task], slots: dict[str, list[list[int]]]) -> int:
    """What would start at once, machine by machine, and what would wait."""
    from towline.cli.compat.progress import started_line

    shows_gpu = needs_gpu(options) and not options.reserve
    free = [(name, gpus) for name, found in slots.items() for gpus in found]
    for task, (name, gpus) in zip(tasks, free, strict=False):
        say(f"on {name}: {started_line(task, gpus if shows_gpu else [])}")
    for task in tasks[len(free) :]:
        say(f"waits for room: {task.name};  {task.line}")
    return 0


def _tell_more(options: Namespace, request: str, machines: dict[str, dict[str, Any]]) -> None:
    note(f"each job needs {request}")
    note(f"results go to {os.path.join(this_folder(), 'job_results')}")
    for file, found in machines.items():
        tell(f"{file} is {found['name']}")


def main() -> None:
    leave("execute_batch", command)


if __name__ == "__main__":
    main()
