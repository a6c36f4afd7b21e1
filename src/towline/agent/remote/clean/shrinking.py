"""Reduce the folder of a job that has ended to what the job made.

What it was sent, and did not change, can be had elsewhere. What it made or changed stays, and so
does what it keeps and what it printed, for whoever wants to look into it.
"""

import os

from ..content import changes
from ..machine import to_path, to_text
from ..records import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable

    from ..home import Home, JobPlace
    from ..typed import Message, Spec, Steps

#: In the record of a job that was reduced already.
DONE = "/shrunk"
BLOCK = 512


def shrunk(
    home: "Home", keys: "Iterable[str]", is_busy: "Callable[[str], bool]"
) -> "Steps[Message]":
    """The bytes that went, in steps; `is_busy` tells which folder somebody works in."""
    freed = 0
    latest: "tuple[str, dict[str, Any]]" = ("", {})
    for key in keys:
        yield
        place = home.place(key)
        spec = record.read_spec(place.record)
        if spec is None or record.read_exit(place.record) is None:
            continue
        if os.path.exists(place.record + DONE):
            continue
        if spec.get("at") or spec.get("folder") or is_busy(key):
            continue
        # Jobs of a batch start from one snapshot, and its list is long.
        name = "%s %r" % (spec["snapshot"], spec.get("links"))
        if latest[0] != name:
            latest = (name, changes.contents(home, spec))
        freed += yield from reduce(place, spec, latest[1])
        try:
            record.write_whole(place.record + DONE, b"")
        except OSError:
            pass  # then it is looked at again
    return {"bytes": freed}


def reduce(place: "JobPlace", spec: "Spec", known: "dict[str, Any]") -> "Steps[int]":
    """Remove what is as the snapshot made it, and folders that have nothing else in them."""
    try:
        window = changes.Window(place.record)
    except OSError:
        return 0  # it came no further than that
    top = place.job + "/src"
    freed, emptied = 0, set()
    for path, facts in changes.found_below(top):
        yield
        inside = to_text(os.path.relpath(path, top))
        if inside not in known:
            continue
        if not window.has(facts) and not changes.is_unchanged(known[inside], path, facts):
            continue
        try:
            os.unlink(path)
        except OSError:
            continue  # in a folder that the job made read-only
        freed += facts.st_blocks * BLOCK
        emptied.add(os.path.dirname(path))
    stays = {top, os.path.normpath(top + "/" + to_path(spec["cwd"]))}
    for folder in sorted(emptied, key=len, reverse=True):
        remove_empty(folder, stays)
    return freed


def remove_empty(folder: str, stays: "set[str]") -> None:
    """A folder without anything in it goes, and the one above it if that was all it had."""
    while folder not in stays:
        try:
            os.rmdir(folder)
        except OSError:
            return
        folder = os.path.dirname(folder)
