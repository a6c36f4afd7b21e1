"""Batches in words: how far one is, what happened to its jobs, how it ended."""

from __future__ import annotations

from towline.cli.terminal import printable
from towline.cli.terminal.wording import FINAL, STOPPED_CODE, about, count
from towline.model.units import format_duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WAITING = ("new", "staging", "waiting", "queued")
RUNNING = ("starting", "running", "stopping")
WORST_FIRST = ("failed", "lost", "stopped", "skipped")
BAR_WIDTH = 20
#: Less than this is said per minute, or per hour: 0.0/s tells nothing.
SLOW_PER_S, SLOWER_PER_S = 0.5, 0.5 / 60


def ended_count(view: dict[str, Any]) -> int:
    return sum(_counts(view, *FINAL).values())


def state_of(view: dict[str, Any]) -> str:
    """A batch's state, in the words for jobs."""
    if ended_count(view) < view["count"]:
        waits = "waiting" if view.get("waits_for") else "queued"
        return "running" if any(_counts(view, *RUNNING).values()) else waits
    ended_so = _counts(view, *WORST_FIRST)
    return next((state for state in WORST_FIRST if ended_so[state]), "done")


def exit_code(view: dict[str, Any]) -> int:
    """0 when all is done, 1 when anything failed or was lost, 130 when some were only stopped."""
    return {"done": 0, "stopped": STOPPED_CODE}.get(state_of(view), 1)


def bar(view: dict[str, Any], width: int = BAR_WIDTH) -> str:
    """How much has ended, drawn."""
    filled: int = width * ended_count(view) // max(1, view["count"])
    return "█" * filled + "░" * (width - filled)


def counted(view: dict[str, Any]) -> list[tuple[str, str]]:
    """`8 running`, `480 waiting` ...: what there is of each, and the state it is coloured as."""
    sums = {
        "running": sum(_counts(view, *RUNNING).values()),
        "waiting": sum(_counts(view, *WAITING).values()),
        **_counts(view, *FINAL),
    }
    return [(f"{number} {word}", word) for word, number in sums.items() if number]


def counts_text(view: dict[str, Any]) -> str:
    return ", ".join(text for text, _ in counted(view))


def pace(view: dict[str, Any]) -> str:
    """`12/s · 40 s left`; empty while nobody knows."""
    if ended_count(view) >= view["count"]:
        return ""
    rate, eta = view.get("rate") or 0.0, view.get("eta_s")
    left = "" if eta is None else f"{about(eta)} left"
    return " · ".join(filter(None, (_rate(rate), left)))


def progress(view: dict[str, Any], width: int = BAR_WIDTH) -> str:
    """How far it is, in one cell of a table."""
    if ended_count(view) >= view["count"]:
        return counts_text(view)
    done = f"{bar(view, width)} {ended_count(view)} of {view['count']}"
    worst = [f"{number} {state}" for state, number in _counts(view, *WORST_FIRST).items() if number]
    return " · ".join([", ".join([done, *worst]), *filter(None, [pace(view)])])


def machine_names(view: dict[str, Any], most: int = 3) -> str:
    names = [printable(str(name)) for name in view.get("machines") or {}]
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" +{rest}" if rest > 0 else "")


def took(view: dict[str, Any], now: float) -> str:
    return format_duration((view.get("ended") or now) - view["submitted"])


def event_line(event: dict[str, Any]) -> str:
    """`started 12 line 3 on h1 gpu 0: python train.py`."""
    state, job, why = str(event["state"]), event["job"], reason(event)
    title = printable(str(event.get("title") or ""))
    if state == "remark":
        return f"job {job} line {event['line']}: {why}"
    words = f"{state} {job} line {event['line']}{_where(event)}"
    if state == "started":
        return f"{words}: {title}" if title else words
    words += f" ({why})" if why else ""
    if state not in ("failed", "lost"):
        return words
    return f"{words}: {title} · tow log {job}" if title else f"{words} · tow log {job}"


def reason(event: dict[str, Any]) -> str:
    """Why it ended as it did; empty when its state says it all."""
    if event["state"] in FINAL:
        why = "" if event["because"] == event["state"] else event["reason"]
    else:
        why = event.get("text") or ""
    return printable(str(why).split("\n")[0])


def homecoming(view: dict[str, Any]) -> str:
    """What is still to come once all have ended; empty when nothing is."""
    if not view.get("ended") or view.get("home", True):
        return ""
    if not (away := view.get("away")):
        return "all have ended; bringing their results home"
    pending = count(int(view.get("pending") or 0), "job")
    reasons = "; ".join(printable(str(machine["reason"])) for machine in away)
    return f"all have ended; results of {pending} are not home: {reasons}"


def summary(view: dict[str, Any], now: float) -> str:
    """The one line that ends a followed batch."""
    state = state_of(view)
    mark = {"done": "✓", "stopped": "■"}.get(state, "✗")
    name = printable(view["name"])
    words = f"{mark} batch {name}: {counts_text(view)} in {took(view, now)}"
    return words if state == "done" else f"{words} · tow batch show {name}"


def _where(event: dict[str, Any]) -> str:
    gpus = ",".join(str(gpu) for gpu in event.get("gpus") or [])
    where = f" on {printable(str(event['machine']))}" if event.get("machine") else ""
    return where + (f" gpu {gpus}" if gpus and event["state"] == "started" else "")


def _counts(view: dict[str, Any], *states: str) -> dict[str, int]:
    return {state: int(view["counts"].get(state) or 0) for state in states}


def _rate(per_s: float) -> str:
    if per_s <= 0:
        return ""
    for least, factor, unit in ((SLOW_PER_S, 1, "s"), (SLOWER_PER_S, 60, "min"), (0.0, 3600, "h")):
        if per_s >= least:
            return (
                f"{per_s * factor:.0f}/{unit}"
                if per_s * factor >= 10
                else (f"{per_s * factor:.1f}/{unit}")
            )
    return ""
