"""An attempt that Slurm runs, as the Engine keeps track of it."""

import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from towline.model.job import Ending

#: How long several processes may take to stop by themselves.
_PATIENCE_S = 30.0


class Handed(Struct):
    """One attempt that is in Slurm's queue, or to be put there."""

    key: str
    job: int
    attempt: int
    count: int
    #: The message for the agent, given Towline's folder over there.
    message: Callable[[str], dict[str, Any]]
    snapshots: tuple[str, ...] = ()
    #: sbatch was called, or may have been before the Engine was restarted.
    sent: bool = False
    #: Slurm's number of it.
    id: str = ""
    #: The run that counts has begun.
    claimed: bool = False
    stop: bool = False
    #: Its last run ended so that Slurm starts it again.
    again: bool = False
    #: An answer of sbatch is awaited.
    asking: bool = False
    started: set[int] = field(default_factory=set)
    #: What is told of earlier runs than this one is old.
    run: int = 0
    ended: set[int] = field(default_factory=set)
    #: Endings of processes that Slurm stopped: it is still to say why.
    evicted: dict[int, Ending] = field(default_factory=dict)
    #: Since when Slurm says that it is over though its files do not.
    over_since: float = 0.0
    #: sbatch failed for the moment: not before this is it called again, and how often it did.
    not_before: float = 0.0
    tries: int = 0
    reason: str = ""
    #: Its running processes have until then to stop by themselves.
    patience_until: float = 0.0

    def is_unsent(self, now: float) -> bool:
        """sbatch did not take it, and may be called again now."""
        return not (self.id or self.claimed or self.asking) and now >= self.not_before

    def wants_scancel(self, now: float) -> bool:
        """Slurm kills the steps of several processes at once: these are asked themselves first."""
        if self.count > 1 and self.claimed and not self.again:
            self.patience_until = self.patience_until or now + _PATIENCE_S
        return bool(self.id) and now >= self.patience_until

    @property
    def is_over(self) -> bool:
        return len(self.ended) == self.count


def ending_from(body: dict[str, Any]) -> Ending:
    """An ending as a runner wrote it down."""
    return Ending(
        code=body.get("code"),
        signal=body.get("signal"),
        cause=body.get("cause") or "",
        text=body.get("text") or "",
        started=body.get("started") or 0.0,
        ended=body.get("ended") or time.time(),
        made=body.get("made", -1),
        out_size=body.get("out_size") or 0,
        err_size=body.get("err_size") or 0,
    )
