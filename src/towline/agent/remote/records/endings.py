"""How a job ended, in numbers and words."""

import os
import signal as signals
import time

from .. import machine
from ..commands.process import not_found

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..typed import Ending, Message, Spec

MOST_TEXT = 1000
#: Output up to this size travels with the ending.
MOST_SAID = 4096
#: A kill that the kernel counted longer ago than this was another's.
RECENT_S = 10.0
#: How the keeper of a box begins what it says of one that could not be made.
NO_BOX = "box "
#: What a shell says of a command that was killed.
KILLED_IN_SHELL = 128 + signals.SIGKILL


def ending(
    cause: str = "",
    text: str = "",
    code: "int | None" = None,
    signal: "int | None" = None,
    started: float = 0.0,
) -> "Ending":
    return {
        "code": code,
        "signal": signal,
        "cause": cause,
        "text": text[:MOST_TEXT],
        "started": started,
        "ended": time.time(),
        "max_rss_kb": 0,
        "cpu_s": 0.0,
        "out_size": 0,
        "err_size": 0,
    }


def ending_of(status: int, usage: "Any", started: float) -> "Ending":
    """The ending of a command from what `wait4` said."""
    end = ending(started=started)
    if os.WIFSIGNALED(status):
        end["signal"] = os.WTERMSIG(status)
    else:
        end["code"] = os.WEXITSTATUS(status)
    if usage is not None:
        end["max_rss_kb"] = usage.ru_maxrss
        end["cpu_s"] = round(usage.ru_utime + usage.ru_stime, 6)
    return end


def add_sizes(end: "Ending", folder: str) -> None:
    for stream in ("out", "err"):
        try:
            end[stream + "_size"] = os.stat(folder + "/" + stream).st_size
        except OSError:
            pass


def said(end: "Ending", folder: str) -> "Message":
    """All that a job printed, where that is little: whoever hears of its end need not ask."""
    sizes = end["out_size"], end["err_size"]
    if not any(sizes) or sum(sizes) > MOST_SAID or end.get("made") != 0:
        return {}
    names = zip(("/out", "/err"), sizes)
    texts = [read_all(folder + name) if size else b"" for name, size in names]
    if [len(text) for text in texts] != list(sizes):
        return {}
    # JSON has no bytes; in this encoding each of them is one character.
    return {"said": [text.decode("latin-1") for text in texts]}


def read_all(path: str) -> bytes:
    """What a small file holds."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, MOST_SAID + 1)
    except OSError:
        return b""
    finally:
        os.close(fd)


def explain_setup(record: str, spec: "Spec", end: "Ending") -> None:
    """Tell a failed setup from a command that ended with the same code."""
    has_mark = spec.get("setup") or spec.get("box")
    word = machine.read_text(record + "/mark").strip() if has_mark else ""
    if not word or end["cause"]:
        return
    if word.startswith(NO_BOX):
        end["cause"], end["code"] = "walls", None
        end["text"] = ("its walls could not be made: " + word[len(NO_BOX) :])[:MOST_TEXT]
        return
    if word == "not_executable":
        end["cause"], end["text"] = word, "not executable: %s" % spec["argv"][0]
        return
    end["cause"] = "not_found" if word == "not_found" else "setup"
    if word == "profile":
        end["text"] = "the profile of the login shell ended it, so the command was not started"
    elif word == "setup":
        end["text"] = spec["setup"]
    else:
        end["text"] = not_found(spec["argv"][0].encode("utf-8", "surrogateescape"))
    end["text"] = end["text"][:MOST_TEXT]


class Kills:
    """How often the kernel killed for want of memory, up to a moment ago.

    Two looks are kept: one who is being killed may take a while to be gone.
    """

    def __init__(self) -> None:
        self.before = self.last = machine.oom_kills()
        self.looked = time.monotonic()

    def look(self) -> None:
        self.before, self.last = self.last, machine.oom_kills()
        self.looked = time.monotonic()

    def refresh(self) -> None:
        """Before a job: what happened while there was none is not its concern."""
        if time.monotonic() - self.looked > RECENT_S:
            self.look()
            self.before = self.last

    def any_lately(self) -> bool:
        """True once for each: the next job is not to be told of this one's."""
        count = machine.oom_kills()
        rose = count > self.before
        self.before = self.last = count
        return rose


def explain_kill(end: "Ending") -> None:
    """A KILL that nobody here sent came when the kernel killed for want of memory."""
    if end["signal"] == signals.SIGKILL or end["code"] == KILLED_IN_SHELL:
        end["cause"] = "oom"
