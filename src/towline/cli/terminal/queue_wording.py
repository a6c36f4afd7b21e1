"""Where a job stands in the queue of its cluster, in words."""

from __future__ import annotations

import time

from towline.cli.terminal import printable
from towline.model.names import QUEUES
from towline.model.units import format_duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Reasons for which the moment is not what the queue expects, but what somebody asked for.
_BY_WISH = ("BeginTime",)
#: Those that have a place: others are passed over until something else has happened.
_IN_LINE = ("Priority", "Resources")
#: What Slurm expects later than this it only says because it must say something.
_LATEST_S = 200 * 86400.0
_NO_LIMIT = (None, "", "UNLIMITED", "NOT_SET", "INVALID")


def queue_name(view: dict[str, Any]) -> str:
    """`Slurm 4711`; empty for a job that is in no queue but our own, or not yet."""
    queue = view.get("queue") or {}
    number = printable(str(queue.get("number") or ""))
    return f"{QUEUES.get(queue.get('kind', ''), '')} {number}".strip() if number else ""


def queue_title(view: dict[str, Any]) -> str:
    """What people call the queue that a job is in."""
    kind = str((view.get("queue") or {}).get("kind", ""))
    return QUEUES.get(kind, "queue")


def queue_details(view: dict[str, Any]) -> str:
    """`4711 (partition main, account def-x, limit 1:00:00)`; a Grid Engine has queues."""
    queue = view.get("queue") or {}
    word = "queue" if queue.get("kind") == "gridengine" else "partition"
    named = {"partition": word, "account": "account", "time_limit": "limit"}
    present = {name: word for name, word in named.items() if queue.get(name) not in _NO_LIMIT}
    known = [f"{word} {queue[name]}" for name, word in present.items()]
    if queue.get("shared_by"):
        known.append(f"shared with other lines, {queue['shared_by']} at a time")
    return str(queue["number"]) + (f" ({', '.join(known)})" if known else "")


def options_text(view: dict[str, Any]) -> str:
    """What sbatch was told; parts of a heterogeneous job with the colon that is between them."""
    import shlex

    parts = (view.get("queue") or {}).get("options") or []
    return " : ".join(shlex.join(words) for words in parts)


def prospects(queue: dict[str, Any], now: float) -> list[str]:
    """Its place, and when it is expected to start; what is not known is not said."""
    found = []
    reason = str(queue.get("reason") or "")
    if queue.get("place") and reason.startswith(_IN_LINE):
        partition = f" in {queue['partition']}" if queue.get("partition") else ""
        found.append(f"number {queue['place']} of {queue['waiting']}{partition}")
    expected = float(queue.get("expected") or 0.0)
    if now < expected < now + _LATEST_S:
        words = "not before" if reason.startswith(_BY_WISH) else "expected to start at"
        found.append(f"{words} {moment(expected, now)}, in {_roughly(expected - now)}")
    return [printable(text) for text in found]


def _roughly(seconds: float) -> str:
    """Nobody waits for such a moment with a watch in hand."""
    return format_duration(seconds if seconds < 60 else 60 * round(seconds / 60))


def moment(at: float, now: float) -> str:
    """`14:30`, with the date where it is not today."""
    there, here = time.localtime(at), time.localtime(now)
    day = "" if there[:3] == here[:3] else time.strftime("%Y-%m-%d ", there)
    return day + time.strftime("%H:%M", there)


def waiting_line(queue: dict[str, Any], now: float) -> str:
    """For a line that goes on being shown while a job waits."""
    since = float(queue.get("since") or now)
    waited = max(0, int(now - since))
    clock = f"{waited} s" if waited < 60 else format_duration(60 * (waited // 60))
    words = [f"waits for {clock}", *prospects(queue, now)]
    return " · ".join(words)


def requeued(queue: dict[str, Any], now: float) -> str:
    """Why and when the queue took it back; empty if it did not."""
    at = queue.get("requeued_at")
    if not at:
        return ""
    why = f": {printable(str(queue['requeued']))}" if queue.get("requeued") else ""
    return f"taken back into the queue at {moment(at, now)}{why}"
