"""Where a job stands, told from its files alone."""

import json
import os
import time

from .. import machine
from ..commands import process_tree
from . import endings, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..home import Home, JobPlace
    from ..typed import Ending, Message, Reaped

#: So long a command may take from the call that starts it until it bears the job's mark.
BEING_BORN_S = 2.0
#: With the record of a job that another queue runs, on whichever machine it likes.
ELSEWHERE = "/elsewhere"
#: So long whoever has the command of a killed supervisor may take to tell how it ended: it may have
#: to become another program first, on a machine that is busy, or be stopped.
HEIR_S = 60.0
UNTOLD = "its supervisor was killed, so its exit code is not known"


class Seen:
    """`state` is unknown, held, running, ended, or elsewhere: on another machine that has the same
    home, where alone it can be judged. A running one may be without a supervisor."""

    def __init__(
        self,
        state: str,
        ending: "Ending | None" = None,
        life: "Message | None" = None,
        supervised: bool = False,
        handed: bool = False,
        host: str = "",
    ) -> None:
        self.state = state
        #: Another queue runs it.
        self.handed = handed
        self.host = host
        self.ending: "Any" = ending
        self.supervised = supervised
        life = life or {}
        self.pid = life.get("pid", 0)
        self.start = life.get("start", 0)
        self.started = life.get("started", 0.0)
        spec = life.get("spec")
        self.series = str(spec.get("series") or "") if isinstance(spec, dict) else ""

    def as_reply(self) -> "Message":
        reply: "Message" = {"state": self.state}
        if self.state == "elsewhere":
            reply["host"] = self.host
        if self.ending is not None:
            reply["ending"] = self.ending
        if self.started and self.state == "running":
            reply["started"] = self.started
        return reply


def is_elsewhere(folder: str) -> bool:
    """Whether another queue runs the job with this record."""
    return os.path.exists(folder + ELSEWHERE)


def look(
    home: "Home", key: str, reaped: "Reaped | None" = None, entomb: "Ending | None" = None
) -> "Seen":
    """What became of the job `key`.

    `reaped` are children that ended just now, {pid: (status, usage)}.
    With `entomb`, a job that never started gets this ending, so that it never will.
    """
    place = home.place(key)
    folder = place.record
    if is_elsewhere(folder):
        end = record.read_exit(folder)
        if end is not None:
            return Seen("ended", end)
        return Seen("running", supervised=True, handed=True)
    fd = record.open_life(folder, create=False)
    if fd is None:
        end = record.read_exit(folder)
        if end is not None:
            return Seen("ended", end)
        if entomb is None:
            return Seen("unknown")
        fd = record.open_life(folder, create=True)
    try:
        life = record.read_life(fd)
        if machine.is_another(life.get("identity")):
            return Seen("elsewhere", None, life, True, host=str(life["identity"].get("host") or ""))
        # While somebody holds the lock no ending counts, whoever wrote it.
        if not record.lock(fd):
            return Seen("held" if life.get("held") else "running", None, life, True)
        return look_inside(place, fd, reaped or {}, entomb)
    finally:
        os.close(fd)


def look_inside(place: "JobPlace", fd: int, reaped: "Reaped", entomb: "Ending | None") -> "Seen":
    """With the lock held, so nobody else decides at the same time."""
    end = record.read_exit(place.record)
    if end is not None:
        return Seen("ended", end)
    life = record.read_life(fd)
    if "ended" in life:  # killed just before the rename
        return settle(place, fd, {name: life[name] for name in life if name != "spec"}, life)
    if "spawning" not in life:
        return Seen("unknown") if entomb is None else settle(place, fd, entomb, life)
    if life.get("boot") != machine.boot_id():
        return settle(place, fd, lost(place, life, "the machine restarted"), life)
    if "pid" not in life:
        find_unnamed(place.key, life)
    pid = life.get("pid", 0)
    patience = HEIR_S if heir_lives(life) else BEING_BORN_S
    if not pid and 0 <= time.time() - life["spawning"] < patience:
        return Seen("running", None, life)
    over, result = fate(pid, life.get("start", 0), reaped)
    if result is not None:
        return settle(place, fd, from_status(place, life, *result), life)
    # Of one that is just gone another agent may know more: who watches it leaves it some time.
    if pid and (not over or life.get("status") is None):
        return Seen("running", None, life)
    return settle(place, fd, lost(place, life, UNTOLD), life)


def fate(pid: int, start: int, reaped: "Reaped") -> "tuple[bool, tuple[int, Any] | None]":
    """Whether a command is over, and how it ended as (status, usage) where we can know it.

    Whether it is over is asked first: one that ends between two looks is waited for by the second.
    """
    facts = process_tree.stat(pid) if pid else None
    if facts is None or facts.start != start:
        return True, reaped.get(pid)
    if facts.state != "Z":
        return False, None
    try:
        ended, status, usage = os.wait4(pid, os.WNOHANG)
    except ChildProcessError:
        return True, reaped.get(pid)
    # It may be that only its first thread has ended.
    return (True, (status, usage)) if ended else (False, None)


def heir_lives(life: "Message") -> bool:
    """Whether another than us may tell how its command ended: who started its supervisor."""
    try:
        pid, start = life["heir"]
        return pid != os.getpid() and process_tree.lives(pid, start)
    except (KeyError, TypeError, ValueError):
        return False  # an older agent's, or damaged


def find_unnamed(key: str, life: "Message") -> None:
    """The supervisor was killed between the start and writing down the pid."""
    for pid in process_tree.marked(key):
        facts = process_tree.stat(pid)
        if facts is not None and facts.session == pid:
            life.update(pid=pid, start=facts.start, started=life["spawning"])
            return


def settle(place: "JobPlace", fd: int, end: "Ending", life: "Message") -> "Seen":
    spec = json.dumps(life.get("spec") or {}).encode("ascii")
    record.write_exit(place.record, fd, end, spec)
    return Seen("ended", end)


def began(life: "Message") -> float:
    """When the command started; its supervisor may have been killed before it wrote that down."""
    return float(life.get("started") or life["spawning"])


def lost(place: "JobPlace", life: "Message", text: str) -> "Ending":
    end = endings.ending("lost", text, started=began(life))
    if life.get("status") is not None:
        end = endings.ending_of(life["status"], None, began(life))
    return with_notes(place, life, end)


def from_status(place: "JobPlace", life: "Message", status: int, usage: "Any") -> "Ending":
    return with_notes(place, life, endings.ending_of(status, usage, began(life)))


def with_notes(place: "JobPlace", life: "Message", end: "Ending") -> "Ending":
    """Complete an ending by what the supervisor wrote down before it was killed."""
    if life.get("cause"):
        end["cause"], end["text"] = life["cause"], life.get("text", "")
    elif end["signal"] and record.asked_to_stop(place.record) is not None:
        end["cause"] = "stopped"
    endings.add_sizes(end, place.job)
    endings.explain_setup(place.record, life.get("spec") or {}, end)
    return end
