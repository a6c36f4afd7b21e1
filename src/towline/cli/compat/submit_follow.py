"""Following a submitted job: where its TensorBoard is, and what Ctrl-C and a dead network ask."""

from __future__ import annotations

import signal
from contextlib import suppress

from towline.cli.follow import INTERRUPTED_CODE, TerminalFollow
from towline.cli.terminal import interactive, note, tell
from towline.cli.terminal.asking import GONE, line_typed
from towline.errors import TowlineError, UsageError
from towline.model.units import format_duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

    from towline.client.session import Session


class SubmitFollow(TerminalFollow):
    """Goes on until a person says otherwise; without TensorBoard or terminal, to the job's end."""

    def __init__(
        self, session: Session, ask: dict[str, Any], key: str, patience_s: float = 120.0
    ) -> None:
        super().__init__(session, ask=ask, key=key)
        # A new connection to the Engine tells anew what is broken.
        self.following.on_connect = self._heard
        self.has_board = bool(ask.get("services"))
        #: How long the network may be away before a person is asked.
        self.patience_s = patience_s
        #: True when it was away for that long.
        self.away = False
        #: True from then on until something is heard: nothing is told of what cannot be reached.
        self.unheard = False
        self.cancelled = False
        #: The address of its TensorBoard here, once that is up.
        self.url = ""

    def run(self) -> int:
        if interactive():
            signal.signal(signal.SIGALRM, self._waited_long)
        try:
            return super().run()
        finally:
            self._heard()

    # --- what is shown -----------------------------------------------------------------------

    def _show(self, header: dict[str, Any], blob: bytes) -> bool:
        if header.get("broken"):
            self._unheard()
        elif "broken" in header or "stream" in header or "job" in header:
            self._heard()
        if self.unheard and (
            "stream" in header or "end" in header or header.get("broken") is False
        ):
            self.unheard = False
            if header.get("broken") is not False:
                self._say_it_is_back()
                if self.url:
                    self._show_url(self.url)
        if header.get("service", {}).get("state") == "up" and header["service"].get("url"):
            if self.unheard:
                self.url = header["service"]["url"]
            elif self._is_new(header):
                self._show_url(header["service"]["url"])
            return False
        over = super()._show(header, blob)
        if header.get("broken") is False and self.url:
            self._show_url(self.url)
        return over

    def _show_url(self, url: str) -> None:
        self.output.clear_bar()
        self.url = url
        tell("TensorBoard:", (url, "bold"))

    def _ended(self, view: dict[str, Any]) -> int:
        code = super()._ended(view)
        if self.has_board and not self.cancelled and interactive():
            with suppress(KeyboardInterrupt):
                self._stay()
        elif self.url:
            note(f"its TensorBoard has ended with it; to look again: tow tensorboard {self.job_id}")
        return code

    def _stay(self) -> None:
        """Show what the job wrote in a TensorBoard of this machine, at the same address."""
        from towline.cli.commands.tensorboard import free_port, show_until_left

        assert self.job_id is not None
        try:
            try:
                port = free_port(int(self.url.rpartition(":")[2].partition("/")[0] or 0))
            except UsageError:
                port = free_port(0)
            show_until_left(self.session, [self.job_id], port, self._say_it_stays, alone=True)
        except TowlineError as error:
            note(f"its TensorBoard has ended with it: {error.text}")
            note(f"to look again: tow tensorboard {self.job_id}; Ctrl-C leaves")
            while True:
                signal.pause()

    def _say_it_stays(self, url: str) -> None:
        self._show_url(url)
        note("what it wrote, shown from here; Ctrl-C leaves")

    # --- the network -------------------------------------------------------------------------

    def _unheard(self) -> None:
        asking = interactive() and not self.cancelled
        if asking and not any(signal.getitimer(signal.ITIMER_REAL)):
            signal.setitimer(signal.ITIMER_REAL, self.patience_s)

    def _heard(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.away = False

    def _waited_long(self, number: int, frame: FrameType | None) -> None:
        if not self.writing:
            self.away = True
            raise KeyboardInterrupt

    # --- what a person is asked --------------------------------------------------------------

    def _interrupted(self) -> int | None:
        """What to exit with after Ctrl-C, or after too long without a network; None: go on."""
        away = self.away
        self._heard()
        self.writing = self.interrupted = False
        if self.job_id is None or not interactive():
            return super()._interrupted()
        if self.cancelled:
            note(f"job {self.job_id} is being cancelled: tow status")
            return INTERRUPTED_CODE
        self.output.clear_bar()
        while True:
            try:
                typed = line_typed(self._question(away), self._is_back if away else None)
            except KeyboardInterrupt:
                tell("")
                return self._detach(INTERRUPTED_CODE)
            if typed is None:
                self._say_it_is_back()
                return None
            answer = typed.strip().lower()
            if answer in ("y", "yes"):
                self._cancel(away)
                return None
            if answer in ("n", "no"):
                # Told again, so that it need not be looked for.
                self.services = {}
                self.unheard = away
                if away:
                    note(f"job {self.job_id} · {self.cluster} · trying to reach it again")
                return None
            if answer in ("d", GONE):
                return self._detach(INTERRUPTED_CODE)

    def _is_back(self) -> bool:
        """Whether the cluster was heard again."""
        with suppress(TowlineError):
            return not self.session.call("GET", f"/v1/jobs/{self.job_id}").get("silent_since")
        return False

    def _say_it_is_back(self) -> None:
        self.output.clear_bar()
        note(f"job {self.job_id} · {self.cluster} · connected again")

    def _question(self, away: bool) -> str:
        silent = f"{self.cluster} could not be reached for {format_duration(self.patience_s)}.\n"
        return (
            f"\n{silent if away else ''}Cancel job {self.job_id}? "
            "[y]es, [n]o (keep it and go on following), Ctrl-C leaves: "
        )

    def _cancel(self, away: bool) -> None:
        self.session.call("POST", "/v1/jobs/stop", {"ids": [self.job_id]}, repeat=True)
        self.cancelled = True
        if away:
            note(f"job {self.job_id} is cancelled as soon as {self.cluster} answers")
