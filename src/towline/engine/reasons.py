"""Why a job waits or ended as it did, in words."""

import signal as signals

from towline.model.names import unit_name
from towline.model.reason import Reason
from towline.model.units import format_memory


def reason_words(reason: Reason) -> str:
    """A reason for people; lines after the first say what to do about it."""
    words = _happened(reason)
    process = f"process {reason.process} on {reason.machine}" if reason.process else ""
    if reason.then == "stopping_others":
        return f"{process} ended: {words}; stopping the others"
    words = f"{process}: {words}" if process else words
    if reason.then == "trying_again":
        return f"attempt {reason.attempt} on {reason.machine}: {words}; trying again"
    return words


_PLAIN = {
    "": "",
    "held": "held",
    "forbidden": "no machine that its owner may use can take it any more",
    "stop_asked": "stop was asked for",
    "stopped": "stopped",
    "stopped_waiting": "stopped before it started",
    "timeout": "stopped at its time limit",
}


def _happened(reason: Reason) -> str:
    if reason.kind in _PLAIN:
        return _PLAIN[reason.kind]
    if reason.kind == "line_ended":
        return f"stopped because line {reason.line} {reason.state}"
    if reason.kind == "after":
        return _ended_otherwise(reason)
    if reason.kind == "oom" and not reason.text:
        used = f", when it used up to {format_memory(reason.peak_kb / 1024)}"
        used = used if reason.peak_kb else ""
        return f"killed because the machine ran out of memory{used}; ask for more with --mem"
    if reason.kind == "setup":
        said = f": {reason.text}" if reason.text else ""
        return f"set-up failed with exit code {reason.code}{said}"
    if reason.text:
        return "\n".join(reason.text.splitlines())
    if reason.signal is not None:
        return f"killed by signal {reason.signal} ({_signal_name(reason.signal)})"
    return reason.kind if reason.code is None else f"exit code {reason.code}"


def _ended_otherwise(reason: Reason) -> str:
    """What became of a job or batch that another was to run after."""
    if reason.batch and reason.state == "failed":
        return f"batch {reason.batch} did not end well"
    how = {"failed": "failed", "done": "is done"}.get(reason.state, f"was {reason.state}")
    return f"{unit_name(reason.batch or reason.job)} {how}"


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return "unknown"
