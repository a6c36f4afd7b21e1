"""How processes ended, as their machines say: part of the door that is `messages`."""

import time
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from towline.agent.messages import UNREADABLE, Clock, Count, Small, Time, Word, readable
from towline.model.job import Ending
from towline.model.reason import NO_REASON, Reason

#: How older agents begin what they say of a set-up that failed.
_OLD_SETUP = "the setup failed, so the command was not started: "


class _Ending(Struct):
    code: Small | None = None
    signal: Annotated[int, Meta(ge=0, le=1024)] | None = None
    cause: Word | None = None
    text: str | None = None
    started: Time | None = None
    ended: Time | None = None
    made: Annotated[int, Meta(ge=-1, le=2**62)] | None = -1
    max_rss_kb: Count | None = 0
    out_size: Count | None = 0
    err_size: Count | None = 0
    because: Any = None


class _Because(Struct):
    job: Count = 0
    batch: str = ""
    state: Literal["done", "failed", "stopped", "lost", "skipped"] = "failed"


def read_ending(body: Any, clock: Clock) -> Ending:
    """How a process ended; a record that cannot be read means that nobody knows."""
    try:
        told = msgspec.convert(body, _Ending)
    except UNREADABLE:
        told = _Ending()
    if told.code is None and told.signal is None and not told.cause:
        text = "the machine's record of its end is damaged"
        return Ending(cause="lost", text=text, ended=time.time())
    return Ending(
        code=told.code,
        signal=told.signal,
        cause=told.cause or "",
        text=_said(told),
        started=clock.here(told.started),
        ended=clock.here(told.ended) or time.time(),
        made=-1 if told.made is None else told.made,
        peak_kb=told.max_rss_kb or 0,
        out_size=told.out_size or 0,
        err_size=told.err_size or 0,
        because=_because(told.because),
    )


def _because(told: Any) -> Reason:
    """What ended otherwise than it was to, where that kept it from running."""
    try:
        reason = msgspec.convert(told, _Because)
    except UNREADABLE:
        return NO_REASON
    return Reason("after", job=reason.job, batch=readable(reason.batch), state=reason.state)


def _said(told: _Ending) -> str:
    """What is said of an end beyond its cause; older agents put some of it into sentences."""
    if told.cause == "oom":
        return ""
    return readable((told.text or "").removeprefix(_OLD_SETUP if told.cause == "setup" else ""))


def read_output(ending: Any) -> tuple[bytes, bytes] | None:
    """What a job printed, where it came with its ending."""
    match ending:
        case {"said": [str(out), str(err)]}:
            return out.encode("latin-1", "replace"), err.encode("latin-1", "replace")
    return None
