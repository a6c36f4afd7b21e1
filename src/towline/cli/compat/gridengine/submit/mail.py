"""`qsub -m`: mails about a job. A queue writes them itself; of other jobs they are written here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from email.message import EmailMessage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.cli.compat.gridengine.submit.wanted import Wanted

#: Where sendmail is on machines that do not have it on everybody's PATH.
_PLACES = ("/usr/sbin", "/usr/lib", "/usr/local/sbin")
#: What Slurm calls it.
_SLURM = {"b": "BEGIN", "e": "END", "a": "FAIL,REQUEUE"}
_TIMEOUT_S = 60.0


def for_slurm(options: dict[str, str]) -> dict[str, str]:
    """The options of sbatch for the same."""
    letters = options.get("-m", "n")
    if "n" in letters:
        return {}
    kinds = ",".join(kind for letter, kind in _SLURM.items() if letter in letters)
    return {"mail-type": kinds, "mail-user": options.get("-M", "")} if kinds else {}


def wanted_here(wanted: Wanted, ask: dict[str, Any]) -> dict[str, str]:
    """Whom to write to and when, where no queue does; said, where nobody can."""
    letters = wanted.options.get("-m", "n")
    if "n" in letters or "options" in ask:
        return {}
    if not sendmail():
        sys.stderr.write("warning: no mail will be sent: there is no sendmail on this machine\n")
        return {}
    to = wanted.options.get("-M") or os.environ.get("LOGNAME") or os.environ.get("USER", "root")
    return {"to": to, "when": letters, "told": ""}


def sendmail() -> str:
    path = os.pathsep.join([os.environ.get("PATH", ""), *_PLACES])
    return shutil.which("sendmail", path=path) or ""


def due(letter: dict[str, str], view: dict[str, Any], over: bool) -> list[str]:
    """Which mails are to be written now: `b`, `e` or `a`."""
    found = ["b"] if view["started"] else []
    aborted = view["exit_code"] is None or view["state"] == "stopped"
    found += ["a" if aborted else "e"] if over else []
    return [one for one in found if one in letter["when"] and one not in letter["told"]]


def message(kind: str, who: str, view: dict[str, Any], queue: str, to: str) -> EmailMessage:
    """What Grid Engine writes."""
    what = {"b": "Started", "e": "Complete", "a": "Aborted"}[kind]
    subject = f"{who} ({view['title']}) {what}"
    host = (view.get("machines") or ["unknown"])[0]
    facts = {"User": view["owner"], "Queue": f"{queue}@{host}", "Host": host}
    facts |= {"Start Time": _moment(view["started"])}
    if kind != "b":
        spent = int((view["ended"] or 0) - (view["started"] or view["ended"] or 0))
        clock = f"{spent // 3600:02d}:{spent // 60 % 60:02d}:{spent % 60:02d}"
        facts |= {"End Time": _moment(view["ended"]), "Wallclock Time": clock}
        facts |= {"Exit Status": "unknown" if view["exit_code"] is None else view["exit_code"]}
    if kind == "a":
        facts["failed because"] = view["reason"]
    found = EmailMessage()
    # A title is the user's own, and a header has one line.
    found["Subject"], found["To"] = " ".join(subject.split()), to
    lines = "".join(f" {name:<16} = {value}\n" for name, value in facts.items())
    found.set_content(f"{subject}\n{lines}")
    return found


def send(mail: EmailMessage) -> None:
    """Have it delivered; OSError where that cannot be."""
    # Whom it is for is read from its head: no address is ever taken for an option.
    argv = [sendmail() or "sendmail", "-t", "-oi"]
    subprocess.run(argv, input=bytes(mail), check=False, timeout=_TIMEOUT_S, capture_output=True)


def _moment(at: float | None) -> str:
    return time.strftime("%m/%d/%Y %H:%M:%S", time.localtime(at)) if at else "unknown"
