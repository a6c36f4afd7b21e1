"""Following a batch on a terminal: what is shown of it, and what Ctrl-C asks."""

from __future__ import annotations

from towline.cli.follow import INTERRUPTED_CODE, LEAVING, TerminalFollow, what_now
from towline.cli.terminal import interactive, note
from towline.cli.terminal.batch_wording import exit_code
from towline.cli.terminal.output import Output
from towline.client.batch_follow import follow_batch
from towline.client.transport import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Protocol

    from towline.client.session import Session

    class Display(Protocol):
        """Where a followed batch is shown."""

        def start(self) -> None: ...

        def show(self, events: list[dict[str, Any]], view: dict[str, Any]) -> None: ...

        def pause(self) -> None: ...

        def finish(self, view: dict[str, Any]) -> None: ...


class BatchFollow:
    """One batch being followed; no event is shown twice or left out."""

    def __init__(self, session: Session, name: str, display: Display, since: int = 0) -> None:
        self.session = session
        self.name = name
        self.display = display
        #: Number of the last event that was shown.
        self.seen = since

    def run(self) -> int:
        """Follow to the end; what `tow` exits with."""
        while True:
            try:
                self.display.start()
                view = self._to_the_end()
                self.display.finish(view)
                return exit_code(view)
            except KeyboardInterrupt:
                self.display.pause()
                code = interrupted(self.session, self.name)
                if code is not None:
                    return code
            except BaseException:
                self.display.pause()
                raise

    def _to_the_end(self) -> dict[str, Any]:
        view: dict[str, Any] = {}
        for events, view in follow_batch(self.session, self.name, self.seen):
            if events:
                self.seen = events[-1]["seq"]
            self.display.show(events, view)
        return view


#: The kinds of what is said of jobs that go their ordinary way.
ORDINARY = ("waiting", "results", "large")


class OutputOnly(Output):
    """What jobs write, and of them only what keeps it from coming."""

    def note(self, header: dict[str, Any], text: str) -> None:
        if header.get("kind") not in ORDINARY:
            super().note(header, text)

    def progress(self, header: dict[str, Any], text: str) -> None:
        pass


class OneOfMany(TerminalFollow):
    """A job whose output is printed between that of others."""

    def __init__(self, session: Session, job_id: int, stream: str, until_end: bool) -> None:
        super().__init__(session, job_id=job_id, stream=stream, until_end=until_end)
        self.output = OutputOnly()

    def run(self) -> int:
        # Ctrl-C is about the batch: it is not for this one job to ask what was meant.
        return self._to_the_end()

    def _ended(self, view: dict[str, Any]) -> int:
        self.output.finish(None)
        return 0


def print_in_order(
    session: Session, name: str, jobs: Iterable[int], *, stream: str = "all", until_end: bool = True
) -> int | None:
    """Each job's output after that of the one before it; what to exit with after a Ctrl-C."""
    for job in jobs:
        following = OneOfMany(session, job, stream, until_end)
        while True:
            try:
                following.run()
                break
            except KeyboardInterrupt:
                code = interrupted(session, name) if until_end else INTERRUPTED_CODE
                if code is not None:
                    return code
    return None


def interrupted(session: Session, name: str) -> int | None:
    """What to exit with after Ctrl-C; None: go on following."""
    if not interactive():
        return _detach(name, INTERRUPTED_CODE)
    wish = what_now(f"batch {name}")
    if wish == "stop":
        session.call("POST", f"/v1/batches/{quoted(name)}/stop", {}, repeat=True)
    return _detach(name, LEAVING[wish]) if wish in LEAVING else None


def _detach(name: str, code: int) -> int:
    note(f"detached; batch {name} goes on: tow batch show -f {name} · tow batch stop {name}")
    return code
