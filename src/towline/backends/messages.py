"""The one door for what an agent says: its words in, what the Engine works with out."""

import time
from typing import Any

from towline.model.job import Ending


class Clock:
    """Turns times of a machine's clock into ours."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def set(self, hello: dict[str, Any]) -> None:
        """Note how far the clock of a machine that just greeted is ahead of ours."""
        self._ahead_s = hello.get("time", time.time()) - time.time()
        if abs(self._ahead_s) < 1.0:
            self._ahead_s = 0.0

    def here(self, at: float | None) -> float:
        return at - self._ahead_s if at else 0.0


def read_ending(body: dict[str, Any], clock: Clock) -> Ending:
    return Ending(
        code=body.get("code"),
        signal=body.get("signal"),
        cause=body.get("cause") or "",
        text=body.get("text") or "",
        started=clock.here(body.get("started")),
        ended=clock.here(body.get("ended")) or time.time(),
        made=body.get("made", -1),
        out_size=body.get("out_size") or 0,
        err_size=body.get("err_size") or 0,
    )


def read_output(ending: dict[str, Any]) -> tuple[bytes, bytes] | None:
    """What a job printed, where it came with its ending."""
    match ending.get("said"):
        case [str(out), str(err)]:
            return out.encode("latin-1", "replace"), err.encode("latin-1", "replace")
    return None
