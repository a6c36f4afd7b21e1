"""Following a job until it ended, over broken connections and restarted Engines."""

from __future__ import annotations

import time

from towline.cli.terminal import interactive, note, tell
from towline.cli.terminal.output import JsonLines, Output
from towline.client.transport import Gone, with_query
from towline.errors import EngineError
from towline.model.names import shown_cluster

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType
    from typing import Any

    from towline.client.session import Session

    Frames = Iterator[tuple[dict[str, Any], bytes]]

#: How long to go on trying when the Engine went away and none can be started.
PATIENCE_S = 60.0
PAUSE_S = 0.02
#: So long nothing is said while the folder is read.
SLOW_S = 1.5
INTERRUPTED_CODE = 130
#: What to exit with, of the answers to `what_now` after which nothing is followed any more.
LEAVING = {"detach": 0, "leave": INTERRUPTED_CODE}
COLOUR_OF = {"done": "green", "stopped": "yellow"}


class Patience:
    """With an Engine that went away, until it is heard again."""

    def __init__(self) -> None:
        self.until: float | None = None

    @property
    def tried(self) -> bool:
        """An error is at first a reason to fail; later, a killed Engine may need a moment."""
        return self.until is not None

    def heard(self) -> None:
        self.until = None

    def wait(self) -> None:
        """A moment before the next try; an error when there were enough of them."""
        self.until = self.until or time.monotonic() + PATIENCE_S
        if time.monotonic() > self.until:
            raise EngineError(
                "the Engine went away and does not come back",
                "jobs go on without it; its log may tell why: tow engine log",
            )
        time.sleep(PAUSE_S)


class Follow:
    """One job being followed: what was shown of it, so that nothing is shown twice or left out."""

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
        self.ask = ask
        self.key = key
        self.job_id = job_id
        self.stream = stream
        #: How much of the end to begin with: `lines`, or `tail` for bytes.
        self.tail = tail or {}
        #: Show what this service of the job printed, instead of the job's own output.
        self.service = service
        #: The services whose URL or failure was shown.
        self.services: dict[str, str] = {}
        #: False: show what there is so far, and leave.
        self.until_end = until_end
        self.output: Output | JsonLines = JsonLines() if json else Output()
        self.json = json
        self.cluster = ""
        #: The job as it was when that was last told.
        self.view: dict[str, Any] = {}
        #: Where it was last said to run.
        self.machines: list[str] = []
        self.attempt: int | None = None
        #: "group.process.stream" -> the position up to which its file was shown.
        self.offsets: dict[str, int] = {}
        #: The keys of `offsets` that the current connection has sent something of.
        self.live: set[str] = set()
        #: True while output is on its way to the terminal.
        self.writing = False
        #: True once Ctrl-C was pressed while `writing`.
        self.interrupted = False
        #: Takes back that it is said when nothing is heard for long.
        self._quiet: Callable[[], object] | None = None
        #: The job whose log the current connection was asked to go on with.
        self.resumed: int | None = None

    def run(self) -> int:
        """Follow to the end; what `tow` exits with."""
        if interactive():
            self._hold_interrupts()
            if self.job_id is None:
                self._say_when_slow()
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

    def _say_when_slow(self) -> None:
        """A large folder takes a while to read: say so, rather than nothing."""
        import signal

        def slow(number: int, frame: FrameType | None) -> None:
            note("reading this folder; .towignore and --exclude leave things out")

        if signal.getsignal(signal.SIGALRM) is signal.SIG_DFL:
            signal.signal(signal.SIGALRM, slow)
            signal.setitimer(signal.ITIMER_REAL, SLOW_S)
            self._quiet = lambda: signal.setitimer(signal.ITIMER_REAL, 0)

    def _heard_first(self) -> None:
        if self._quiet is not None:
            self._quiet()
            self._quiet = None

    def _to_the_end(self) -> int:
        patience = Patience()
        while True:
            try:
                for header, blob in self._frames():
                    patience.heard()
                    self._heard_first()
                    if self._show(header, blob):
                        return self._ended(header["end"])
                    if self._restarted(header):
                        break
                else:
                    if not self.until_end:
                        return self._ended({})
            except Gone:
                if self.job_id is None:
                    self.session.check_key_known()
            except EngineError:
                if not patience.tried:
                    raise
            patience.wait()

    def _frames(self) -> Frames:
        self.live = set()
        self.resumed = self.job_id
        if self.job_id is None:
            return self.session.frames("POST", "/v1/run", self.ask, self.key)
        return self.session.frames("GET", self._log_target())

    def _log_target(self) -> str:
        import json

        return with_query(
            f"/v1/jobs/{self.job_id}/log",
            follow=int(self.until_end),
            stream=self.stream,
            service=self.service,
            **({"from": json.dumps(self.offsets)} if self.offsets else self.tail),
        )

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
            self.job_id = header["job"]["id"]
            self.view = header["job"]
            self.cluster = shown_cluster(header["job"].get("cluster") or "")
            self.output.job(header)
            self._show_machines(header["job"])
        elif "note" in header and self._is_new(header):
            text = header["note"].removeprefix(f"{self.cluster}: ")
            self.output.note(header, f"job {self.job_id} · {self.cluster} · {text}")
        elif "login" in header:
            self._log_in(header["login"])
        elif "end" in header:
            self.job_id = header["end"].get("id", self.job_id)
            return True
        return False

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
        key = f"{header.get('group', 0)}.{header.get('process', 0)}.{header['stream']}"
        shown = self.offsets.get(key, 0)
        offset = int(header.get("offset", shown))
        if key in self.live and offset < shown:
            # One connection never repeats itself: this is the output of the next attempt.
            shown = 0
        self.live.add(key)
        fresh = blob[max(0, shown - offset) :]
        self.writing = True
        if fresh:
            self.output.stream({**header, "offset": max(offset, shown)}, fresh)
        self.offsets[key] = max(shown, offset + len(blob))
        self.writing = False
        if self.interrupted:
            raise KeyboardInterrupt

    def _restarted(self, header: dict[str, Any]) -> bool:
        """True when we asked to go on in the output of an earlier attempt: ask again."""
        if "job" not in header:
            return False
        before, self.attempt = self.attempt, header["job"].get("attempt") or 0
        if not before or self.attempt == before:
            return False
        stale = bool(self.offsets) and not self.live and header["job"]["id"] == self.resumed
        self.offsets, self.tail = {}, {}
        return stale

    def _log_in(self, login: dict[str, Any]) -> None:
        from towline.cli.login import log_in

        log_in(self.session, [login])

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
