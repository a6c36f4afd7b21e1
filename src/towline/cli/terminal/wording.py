"""Jobs in words: how one ended, how long it took, how long ago that was."""

from __future__ import annotations

import time

from towline.cli.terminal import printable
from towline.model.names import SAYS_STATE, shown_cluster
from towline.model.units import format_duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FINAL = ("done", "failed", "stopped", "lost", "skipped")
STATE_COLOURS = {
    "done": "green",
    "failed": "red",
    "lost": "red",
    "stopped": "yellow",
    "skipped": "yellow",
    "stopping": "yellow",
    "running": "cyan",
}
STOPPED_CODE = 130


def exit_code(view: dict[str, Any]) -> int:
    """What `tow` exits with after a job: the command's own code, 128 + n for signal n."""
    code = view.get("exit_code")
    state = view.get("state", "done")
    if code:
        return 128 - int(code) if code < 0 else int(code) & 0xFF or 1
    if state == "done" and code is not None:
        return 0
    return {"done": 0, "stopped": STOPPED_CODE}.get(state, 1)


def outcome(view: dict[str, Any]) -> str:
    """The line that ends a followed job, and below it what to do about it."""
    job, state = view["id"], view["state"]
    took = duration(view)
    where = f" on {machines(view)}" if view.get("machines") else ""
    if state == "done":
        return f"✓ job {job} done{took and f' in {took}'}{where} · {_whereabouts(view)}"
    why = ending(view)
    if _kind(view) not in SAYS_STATE:
        why = f"{state}: {why}" if why else state
    why = why or state
    mark = "■" if state == "stopped" else "✗"
    home = f" · {_whereabouts(view)}" if view.get("results") else ""
    line = f"{mark} job {job} {why}{took and f' after {took}'}{where}{home} · tow log {job}"
    return "\n  ".join([line, *hints(view)])


def _whereabouts(view: dict[str, Any]) -> str:
    """Where what it made is: here already, or still on its machine."""
    home = view.get("home") or {}
    if home.get("kind") == "home":
        from towline.cli.cwd import short_path
        from towline.model.odd_text import original

        return f"results: {short_path(original(home['path']))}"
    return printable(str(view.get("results") or "")) or f"files: tow ls {view['id']}"


def ending(view: dict[str, Any]) -> str:
    """Why a job ended as it did, or why it waits."""
    reason = printable(str(view.get("reason") or "").split("\n")[0]) + silence(view)
    code = view.get("exit_code")
    if reason or view["state"] != "failed" or code is None:
        return "" if _kind(view) == view["state"] else reason
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _kind(view: dict[str, Any]) -> str:
    """Of what kind the reason is for which a job ended as it did."""
    return str((view.get("because") or {}).get("kind") or "")


def silence(view: dict[str, Any]) -> str:
    """For how long nothing has been heard of a job, to be added to why that is."""
    since = view.get("silent_since")
    return f"; silent for {format_duration(time.time() - since)}" if since else ""


def hints(view: dict[str, Any]) -> list[str]:
    """What to do about how a job ended."""
    return [printable(line) for line in str(view.get("reason") or "").splitlines()[1:]]


def one_line(text: str) -> str:
    """Lines from elsewhere, on one."""
    return " · ".join(map(printable, text.splitlines()))


def duration(view: dict[str, Any], now: float | None = None) -> str:
    """How long a job ran, up to `now` when it has not ended; empty when it never started."""
    started, ended = view.get("started"), view.get("ended") or now
    return format_duration(ended - started) if started and ended else ""


def about(seconds: float) -> str:
    """A length of time that is only guessed: no tenths."""
    return format_duration(seconds) if seconds >= 60 else f"{max(1, round(seconds))} s"


def ago(moment: float, now: float) -> str:
    """A moment in the past, as people say it."""
    seconds = max(0.0, now - moment)
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {name} ago"
    return "just now" if seconds < 5 else f"{int(seconds)} s ago"


def machines(view: dict[str, Any], most: int = 3) -> str:
    """The machines of a job; of many, the first ones and how many more."""
    names = [printable(shown_cluster(str(name))) for name in view.get("machines") or []]
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" +{rest}" if rest > 0 else "")


def size(count: int) -> str:
    """A number of bytes for people."""
    value = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TB"


def count(number: int, thing: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number} {thing}{'' if number == 1 else 's'}"
