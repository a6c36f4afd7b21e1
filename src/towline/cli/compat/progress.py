"""A batch's progress in the ssh scheduler's words: started, finished, failed."""

from __future__ import annotations

from towline.cli.terminal import note, printable, say
from towline.cli.terminal.wording import FINAL, one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.cli.compat.batch_file import Task


def started_line(task: Task, gpus: list[int]) -> str:
    chosen = ",".join(map(str, gpus))
    export = f"export CUDA_VISIBLE_DEVICES={chosen} && " if gpus else ""
    return f"started: {task.name};  {export}{task.line}"


#: Kinds of reasons that a job's own output is told of.
_IN_ITS_OUTPUT = ("exit_code", "setup")


class ProgressLine:
    """Prints one line for each thing that happens to a task; shown by `BatchFollow`."""

    def __init__(self, tasks: list[Task], shows_gpu: bool) -> None:
        self.tasks = {task.number: task for task in tasks}
        self.shows_gpu = shows_gpu
        self._running: set[int] = set()
        #: The last reason to wait that was heard, and that was told.
        self._why = self._told_why = ""

    def start(self) -> None:
        pass

    def show(self, events: list[dict[str, Any]], view: dict[str, Any]) -> None:
        for event in events:
            task = self.tasks.get(event["line"])
            if task is not None:
                self._show(task, event)
        self._show_why(view)

    def pause(self) -> None:
        pass

    def finish(self, view: dict[str, Any]) -> None:
        pass

    def _show_why(self, view: dict[str, Any]) -> None:
        """Why nothing runs, once that has been so for a moment."""
        why = "" if self._running else printable(str(view.get("why") or ""))
        if why and why == self._why and why != self._told_why:
            note(f"waiting: {why}")
            self._told_why = why
        self._why = why

    def _show(self, task: Task, event: dict[str, Any]) -> None:
        state = event["state"]
        if state == "requeued":
            self._running.discard(task.number)
        if state != "started" and state not in FINAL:
            return
        # A short job may be over before anybody was told that it runs.
        if task.number not in self._running and event["machine"]:
            self._running.add(task.number)
            say(started_line(task, event["gpus"] if self.shows_gpu else []))
        if state in FINAL:
            self._running.discard(task.number)
            say(f"{'finished' if state == 'done' else 'failed'}: {task.name}; {task.line}")
            self._say_why(task, event)

    def _say_why(self, task: Task, event: dict[str, Any]) -> None:
        """What is not to be seen in the job's own output: lost, stopped, out of memory ..."""
        text = one_line(str(event["text"] or ""))
        if event["state"] != "done" and text and event["because"] not in _IN_ITS_OUTPUT:
            note(f"{task.name}: {text}")
