"""A job as the agent knows it, from its start to its end."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..typed import Message
    from .supervisors import SupervisorHandle


class KnownJob:
    """One job that has not ended, as far as this agent knows."""

    __slots__ = (
        "held", "host", "key", "pid", "raw", "released", "series", "started", "stopping", "tries",
        "trouble", "worker",
    )  # fmt: skip

    def __init__(self, key: str, raw: bytes = b"", series: str = "") -> None:
        self.key = key
        self.raw = raw
        self.series = series
        self.worker: "SupervisorHandle | None" = None
        self.held = False
        #: The machine that it is on, if it is not this one.
        self.host = ""
        #: Told to go before it was ready to.
        self.released = False
        self.pid = 0
        self.tries = 0
        #: What its supervisor failed by, if it was not killed.
        self.trouble = ""
        #: The grace that a stop was asked with, once it was.
        self.stopping: "tuple[float | None] | None" = None
        self.started = 0.0

    def state(self) -> "Message":
        if self.host:
            return {"state": "elsewhere", "host": self.host}
        if self.held:
            return {"state": "held"}
        state: "dict[str, Any]" = {"state": "running"}
        if self.started:
            state["started"] = self.started
        return state
