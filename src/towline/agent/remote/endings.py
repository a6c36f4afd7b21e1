"""How a job ended, in numbers and words."""

import os
import time

from . import machine
from .process import not_found

MOST_TEXT = 1000


def ending(cause="", text="", code=None, signal=None, started=0.0):
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


def ending_of(status, usage, started):
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


def add_sizes(end, folder):
    for stream in ("out", "err"):
        try:
            end[stream + "_size"] = os.stat(folder + "/" + stream).st_size
        except OSError:
            pass


def explain_setup(folder, spec, end):
    """Tell a failed setup from a command that ended with the same code."""
    word = machine.read_text(folder + "/mark").strip() if spec.get("setup") else ""
    if not word or end["cause"]:
        return
    end["cause"] = word
    if word == "setup":
        end["text"] = "the setup failed, so the command was not started: %s" % spec["setup"]
    else:
        end["text"] = not_found(spec["argv"][0].encode("utf-8", "surrogateescape"))
    end["text"] = end["text"][:MOST_TEXT]


def explain_kill(end, oom_kills_before):
    """A KILL that nobody here sent: was it for want of memory?"""
    if machine.oom_kills() > oom_kills_before:
        end["cause"] = "oom"
        end["text"] = "the machine ran out of memory and the kernel killed the job"
