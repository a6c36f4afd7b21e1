"""Following a job until it ended, over broken connections and restarted Engines."""

from __future__ import annotations

import time

from towline.client.session import ApiError
from towline.client.transport import Gone, with_query
from towline.errors import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from towline.client.session import Session

    Frames = Iterator[tuple[dict[str, Any], bytes]]

#: How long to go on trying when the Engine went away and none can be started.
PATIENCE_S = 60.0
PAUSE_S = 0.02


class Patience:
    """With an Engine that went away, until it is heard again."""

    def __init__(self) -> None:
        self.until: float | None = None

    @property
    def tried(self) -> bool:
        """True while it is tried again: an Engine that was just killed may need a moment."""
        return self.until is not None

    def heard(self) -> None:
        self.until = None

    def bear(self, error: EngineError) -> None:
        """Raise what waiting does not mend: a refusal, or an Engine that never answered at all."""
        if isinstance(error, ApiError) or not (isinstance(error, Gone) or self.tried):
            raise error

    def wait(self) -> None:
        """A moment before the next try; an error when there were enough of them."""
        self.until = self.until or time.monotonic() + PATIENCE_S
        if time.monotonic() > self.until:
            raise EngineError(
                "the Engine went away and does not come back",
                "jobs go on without it; its log may tell why: tow engine log",
            )
        time.sleep(PAUSE_S)


class Following:
    """One job being followed: what was told of it, so that nothing is told twice or left out.

    `frames` may be asked for again after whatever broke it off: it goes on behind the output that
    was acknowledged with `told`.
    """

    def __init__(
        self,
        session: Session,
        *,
        ask: dict[str, Any] | None = None,
        key: str = "",
        job_id: int | None = None,
        stream: str = "all",
        tail: dict[str, int] | None = None,
        until_end: bool = True,
        service: str | None = None,
    ) -> None:
        self.session = session
        #: What to submit first, and the key that tells this submission from others.
        self.ask = ask
        self.key = key
        #: None until the Engine has accepted it.
        self.job_id = job_id
        self.stream = stream
        #: How much of the end to begin with: `lines`, or `tail` for bytes.
        self.tail = tail or {}
        #: False: tell what there is so far, and leave.
        self.until_end = until_end
        #: Tell what this service of the job printed, instead of the job's own output.
        self.service = service
        #: Called before each connection.
        self.on_connect: Callable[[], None] = lambda: None
        #: The job as it was when that was last told.
        self.view: dict[str, Any] = {}
        self.attempt: int | None = None
        #: "group.process.stream" -> the position up to which its file was told.
        self.offsets: dict[str, int] = {}
        #: The keys of `offsets` that the current connection has sent something of.
        self._live: set[str] = set()
        #: The job whose log the current connection was asked to go on with.
        self._resumed: int | None = None

    def frames(self, deadline: float | None = None) -> Frames:
        """Every frame up to the last one; of output, only what was not told before.

        Raises TimeoutError when the clock (`time.monotonic`) passes `deadline`.
        """
        patience = Patience()
        while True:
            try:
                for header, blob in self._connection(deadline):
                    patience.heard()
                    if view := header.get("job") or header.get("end"):
                        self.view = view
                        self.job_id = view.get("id", self.job_id)
                    yield self._fresh(header, blob) if "stream" in header else (header, blob)
                    if "end" in header:
                        return
                    if self._restarted(header):
                        break
                else:
                    if not self.until_end:
                        return
            except EngineError as error:
                patience.bear(error)
                if self.job_id is None and isinstance(error, Gone):
                    self.session.check_key_known()
            patience.wait()

    def told(self, header: dict[str, Any], blob: bytes) -> None:
        """Remember that a piece of output has reached whoever it is for."""
        self.offsets[_key(header)] = int(header["offset"]) + len(blob)

    def _connection(self, deadline: float | None) -> Frames:
        self._live = set()
        self._resumed = self.job_id
        self.on_connect()
        if self.job_id is None:
            return self.session.frames("POST", "/v1/run", self.ask, self.key, deadline=deadline)
        return self.session.frames("GET", self._log_target(), deadline=deadline)

    def _log_target(self) -> str:
        import json

        return with_query(
            f"/v1/jobs/{self.job_id}/log",
            follow=int(self.until_end),
            stream=self.stream,
            service=self.service,
            **({"from": json.dumps(self.offsets)} if self.offsets else self.tail),
        )

    def _fresh(self, header: dict[str, Any], blob: bytes) -> tuple[dict[str, Any], bytes]:
        """A piece of output without what was told before, which may be all of it."""
        key = _key(header)
        told = self.offsets.get(key, 0)
        offset = int(header.get("offset", told))
        if key in self._live and offset < told:
            # One connection never repeats itself: this is the output of the next attempt.
            told = 0
        self._live.add(key)
        return {**header, "offset": max(offset, told)}, blob[max(0, told - offset) :]

    def _restarted(self, header: dict[str, Any]) -> bool:
        """True when we asked to go on in the output of an earlier attempt: ask again."""
        if "job" not in header:
            return False
        before, self.attempt = self.attempt, header["job"].get("attempt") or 0
        if not before or self.attempt == before:
            return False
        stale = bool(self.offsets) and not self._live and header["job"]["id"] == self._resumed
        self.offsets, self.tail = {}, {}
        return stale


def _key(header: dict[str, Any]) -> str:
    return f"{header.get('group', 0)}.{header.get('process', 0)}.{header['stream']}"
