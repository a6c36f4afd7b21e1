"""Lines of a batch file whose results are here already: how they ended, how to run them again."""

from __future__ import annotations

import os
import shlex

from towline.cli.compat.copies import RESULTS, existing_results
from towline.cli.terminal import note
from towline.cli.terminal.wording import FINAL, count
from towline.client.batches import batches, is_called, jobs_of
from towline.client.submission import this_folder
from towline.model.lines import name_from

TYPE_CHECKING = False
if TYPE_CHECKING:
    from towline.cli.compat.batch_file import Task
    from towline.client.session import Session

#: So many batches of one file are looked at; older ones tell less and less.
LOOK_BACK = 20


def unfinished_before(session: Session, file: str, tasks: list[Task]) -> dict[str, str]:
    """Of tasks whose results are here, those that did not end well: name -> how they stand."""
    skipped = {task.name: task for task in tasks if existing_results(task.name)}
    if not skipped or file == "-":
        return {}
    from towline.model.odd_text import original

    name, folder = name_from(file), this_folder()
    found: dict[str, str] = {}
    mine = [
        view
        for view in reversed(batches(session, everything=True))
        if original(view["folder"]) == folder and is_called(view["name"], name)
    ]
    for view in mine[:LOOK_BACK]:
        lines = {job["line"]: job for job in jobs_of(session, view["name"])["jobs"]}
        for task in [task for task in skipped.values() if task.name not in found]:
            job = lines.get(task.number)
            if job is not None and job["command"][-1:] == [task.command]:
                found[task.name] = job["state"]
    return {name: state for name, state in found.items() if state != "done"}


def words_for(state: str) -> str:
    """Behind the number of a line that is skipped."""
    if not state:
        return ""
    return f" ({state} before)" if state in FINAL else f" (it is {state})"


def say_how_to_run_again(states: dict[str, str]) -> int:
    """Say what to remove so that those run again that did not end well; the exit code."""
    again = [name for name, state in states.items() if state in FINAL]
    if not again:
        return 0
    places = [os.path.join(RESULTS, name + end) for name in again for end in ("", ".out", ".err")]
    there = [place for place in places if os.path.lexists(place)]
    were = "was" if len(again) == 1 else "were"
    note(f"{count(len(again), 'skipped line')} {were} not done; to run them again, first:")
    note(f"  rm -r {shlex.join(there)}")
    return 1
