"""Following a job on a terminal: what is shown of it, and what Ctrl-C asks."""

from __future__ import annotations

import time

from towline.cli.terminal import interactive, note, tell
from towline.cli.terminal.output import JsonLines, Output
from towline.client.follow import Following
from towline.model.names import shown_cluster

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    from towline.client.session import Session

INTERRUPTED_CODE = 130
#: What to exit with, of the answers to `what_now` after which nothing is followed any more.
LEAVING = {"detach": 0, "leave": INTERRUPTED_CODE}
COLOUR_OF = {"done": "green", "stopped": "yellow"}


class TerminalFollow:
    """One job being followed by a person, or by a program that reads JSON lines."""

    def __init__(
        self,
        session: Session,
        *,
        ask: dict[str, Any] | None = None,
        key: str = "",
        job_id: int | None = None,
        json: bool = False,
        stream: str = "all",
        tail: dict[str, int] | None = None,
        until_end: bool = True,
        service: str | None = None,
    ) -> None:
        self.session = session
        self.following = Following(
            session,
            ask=ask,
            key=key,
            job_id=job_id,
            stream=stream,
            tail=tail,
            until_end=until_end,
            service=service,
        )
        #: The services whose URL or failure was shown.
        self.services: dict[str, str] = {}
        #: False: show what there is so far, and leave.
        self.until_end = until_end
        self.output: Output | JsonLines = JsonLines() if json else Output()
        self.json = json
        self.cluster = ""
        #: Where it was last said to run.
        self.machines: list[str] = []
        #: True while output is on its way to the terminal.
        self.writing = False
        #: True once Ctrl-C was pressed while `writing`.
        self.interrupted = False
        #: Takes back that it is said when nothing is heard for long.
        self._quiet: Callable[[], object] | None = None

    @property
    def job_id(self) -> int | None:
        """None until the Engine has accepted it."""
        return self.following.job_id

    def run(self) -> int:
        """Follow to the end; what `tow` exits with."""
        if interactive():
            self._hold_interrupts()
            if self.job_id is None:
                from towline.cli.patience import say_when_slow

                self._quiet = say_when_slow()
        while True:
            try:
                return self._to_the_end()
            except KeyboardInterrupt:
                code = self._interrupted()
                if code is not None:
                    return code

    def _hold_interrupts(self) -> None:
        """Let Ctrl-C wait while output is written, so that going on shows nothing twice."""
        import signal

        def pressed(number: int, frame: FrameType | None) -> None:
            # Pressed again, it does not wait: the write may be stuck.
            if not self.writing or self.interrupted:
                raise KeyboardInterrupt
            self.interrupted = True

        signal.signal(signal.SIGINT, pressed)

    def _heard_first(self) -> None:
        if self._quiet is not None:
            self._quiet()
            self._quiet = None

    def _to_the_end(self) -> int:
        for header, blob in self.following.frames():
            self._heard_first()
            if self._show(header, blob):
                return self._ended(header["end"])
        return self._ended({})

    def _show(self, header: dict[str, Any], blob: bytes) -> bool:
        """Show one frame; True when it was the last."""
        if "progress" in header:
            self.output.progress(header, f"job {self.job_id} · {self.cluster}")
            return False
        if "waits" in header:
            self._show_waiting(header["waits"])
            return False
        self.output.clear_bar()
        if "stream" in header:
            self._show_output(header, blob)
        elif "job" in header:
            self.cluster = shown_cluster(header["job"].get("cluster") or "")
            self.output.job(header)
            self._show_machines(header["job"])
        elif "note" in header and self._is_new(header):
            text = header["note"].removeprefix(f"{self.cluster}: ")
            self.output.note(header, f"job {self.job_id} · {self.cluster} · {text}")
        elif "login" in header:
            from towline.cli.login import log_in

            log_in(self.session, [header["login"]])
        return "end" in header

    def _show_machines(self, job: dict[str, Any]) -> None:
        """Of what a queue started, its number there and where it runs."""
        machines = job.get("machines") or []
        if job.get("queue") and job["state"] == "running" and machines != self.machines:
            from towline.cli.terminal.queue_wording import queue_name

            self.machines = machines
            known = (f"job {job['id']}", self.cluster, queue_name(job))
            where = f"runs on {', '.join(machines)}"
            self.output.note({"note": where}, " · ".join([*filter(None, known), where]))

    def _show_waiting(self, queue: dict[str, Any]) -> None:
        from towline.cli.terminal.queue_wording import queue_name, waiting_line
        from towline.cli.terminal.table import terminal_width

        known = (f"job {self.job_id}", self.cluster, queue_name({"queue": queue}))
        line = " · ".join([*filter(None, known), waiting_line(queue, time.time())])
        self.output.waits(line[: terminal_width() - 1])

    def _is_new(self, header: dict[str, Any]) -> bool:
        """A service is told of once, also over broken connections."""
        if "service" not in header:
            return True
        before = self.services.get(header["service"]["name"])
        self.services[header["service"]["name"]] = header["note"]
        return bool(before != header["note"])

    def _show_output(self, header: dict[str, Any], blob: bytes) -> None:
        self.writing = True
        if blob:
            self.output.stream(header, blob)
        self.following.told(header, blob)
        self.writing = False
        if self.interrupted:
            raise KeyboardInterrupt

    def _ended(self, view: dict[str, Any]) -> int:
        from towline.cli.terminal.wording import exit_code, outcome

        self.output.finish(view if self.until_end else None)
        if not self.until_end:
            return 0
        if not self.json:
            tell((outcome(view), COLOUR_OF.get(view["state"], "red")))
        return exit_code(view)

    def _interrupted(self) -> int | None:
        """What to exit with after Ctrl-C; None: go on following."""
        self.writing = self.interrupted = False
        if self.job_id is None:
            note("interrupted; if the job was accepted by then, it goes on: tow status")
            return INTERRUPTED_CODE
        if not interactive():
            return self._detach(INTERRUPTED_CODE)
        wish = what_now(f"job {self.job_id}")
        if wish == "stop":
            self.session.call("POST", "/v1/jobs/stop", {"ids": [self.job_id]}, repeat=True)
        return self._detach(LEAVING[wish]) if wish in LEAVING else None

    def _detach(self, code: int) -> int:
        self.output.finish(None)
        note(f"detached; job {self.job_id} goes on: tow attach {self.job_id}")
        return code


def what_now(what: str) -> str:
    """What a person wants after Ctrl-C: to `stop`, `keep` or `detach`; to `leave` after another."""
    from towline.cli.terminal.asking import key_pressed

    question = f"\n{what} has not ended. [s]top it, [k]eep following, [d]etach? "
    meaning = {"s": "stop", "k": "keep", "d": "detach", "\x04": "detach"}
    try:
        return meaning[key_pressed(question, meaning)]
    except KeyboardInterrupt:
        tell("")
        return "leave"
