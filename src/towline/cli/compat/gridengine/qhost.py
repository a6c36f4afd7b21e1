"""`tow qhost`: machines, and nodes of queues, in Grid Engine's columns."""

from __future__ import annotations

import fnmatch
import sys

from towline.cli.session import open_session
from towline.client.submission import this_folder
from towline.client.transport import with_query
from towline.model.names import AD_HOC, shown_cluster

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.client.session import Session

VALUED = {"-h": ("HOSTS", "only these; patterns are understood")}
PLAIN = {"-q": "the queues of each, with their slots", "-xml": "as XML"}
#: Their names in XML, and for people; what nobody knows is a dash.
_COLUMNS = {
    "arch_string": "ARCH",
    "num_proc": "NCPU",
    "m_socket": "NSOC",
    "m_core": "NCOR",
    "m_thread": "NTHR",
    "load_avg": "LOAD",
    "mem_total": "MEMTOT",
    "mem_used": "MEMUSE",
    "swap_total": "SWAPTO",
    "swap_used": "SWAPUS",
}
_HELP = """\
usage: qhost [options]
  [-h hostlist]              display only selected hosts
  [-help]                    print this help
  [-q]                       display queues hosted by host
  [-xml]                     display the information in XML format
"""
_WIDTHS = (4, 4, 4, 4, 5, 7, 7, 7, 7)


class Host:
    """One machine: what it has, what is used of it, and the queues that it is in."""

    def __init__(self, machine: dict[str, Any]) -> None:
        self.name = str(machine["name"])
        names = [name for name in machine["clusters"] if not name.startswith(AD_HOC)]
        #: By what its cluster itself calls them, where it is one with queues.
        self.queues = list(machine.get("queues") or map(shown_cluster, names))
        self.heard = machine["state"] == "online" and machine.get("cpus") is not None
        self.closed = bool(machine.get("closed"))
        self.cpus = int(machine.get("cpus") or 0)
        self.busy = max(0.0, float(machine.get("cpus") or 0) - float(machine.get("cpus_free") or 0))
        total, free = machine.get("mem_mb") or 0, machine.get("mem_free_mb") or 0
        self.facts: dict[str, str] = {}
        if machine.get("cpus") is not None:
            self.facts |= {"num_proc": str(self.cpus), "mem_total": memory(total)}
        if self.heard:
            self.facts |= {"load_avg": f"{self.busy:.2f}", "mem_used": memory(total - free)}
        # A Grid Engine's own words; its slots are not its processors.
        self.facts |= machine.get("facts") or {}

    @property
    def letters(self) -> str:
        """What is wrong with it, as `qstat -f` shows it; a Grid Engine says so itself."""
        if own := self.facts.get("states"):
            return own
        return "d" if self.heard and self.closed else "" if self.heard else "au"


def hosts(session: Session) -> list[Host]:
    """All that are configured; those that do not answer as well."""
    target = with_query("/v1/machines", cwd=this_folder())
    return [Host(machine) for machine in session.call("GET", target)["machines"]]


def main(words: list[str]) -> int:
    patterns, rest = list[str](), list(words)
    plain: set[str] = set()
    while rest:
        word = rest.pop(0)
        if word in PLAIN:
            plain.add(word)
        elif word == "-h" and rest:
            patterns += rest.pop(0).split(",")
        else:
            sys.stderr.write(f'{_HELP}error: invalid option argument "{word}"\n')
            return 1
    found = hosts(open_session())
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(host.name, pattern) for host in found):
            sys.stderr.write(f'{_HELP}error: can\'t resolve hostname "{pattern}"\n')
            return 1
    if patterns:
        found = [one for one in found if any(fnmatch.fnmatchcase(one.name, p) for p in patterns)]
    sys.stdout.write(as_xml(found) if "-xml" in plain else table(found, "-q" in plain))
    return 0


def table(found: list[Host], queues: bool = False) -> str:
    """Grid Engine's own columns, blank for blank."""
    text = _row("HOSTNAME", list(_COLUMNS.values())) + "-" * 94 + "\n"
    text += _row("global", ["-"] * len(_COLUMNS))
    for host in found:
        text += _row(host.name, [host.facts.get(name, "-") for name in _COLUMNS])
        for queue in host.queues if queues else ():
            counts = f"0/{round(host.busy)}/{host.cpus}"
            text += f"   {queue:<20} BIP   {counts:<14}{host.letters}\n"
    return text


def _row(name: str, values: list[str]) -> str:
    arch, *numbers = values
    shown = " ".join(
        f"{text[:width]:>{width}}" for text, width in zip(numbers, _WIDTHS, strict=True)
    )
    return f"{name[:23]:<23} {arch[:12]:<12} {shown}\n"


def memory(megabytes: float) -> str:
    """`23.5G`, `965.9M`, `0.0`: as Grid Engine writes sizes."""
    if megabytes >= 1024 * 1024:
        return f"{megabytes / 1024 / 1024:.1f}T"
    if megabytes >= 1024:
        return f"{megabytes / 1024:.1f}G"
    return f"{megabytes:.1f}M" if megabytes > 0 else "0.0"


def as_xml(found: list[Host]) -> str:
    from xml.sax.saxutils import escape, quoteattr

    text = "<?xml version='1.0'?>\n<qhost>\n"
    named = [("global", dict[str, str]()), *((host.name, host.facts) for host in found)]
    for name, facts in named:
        text += f" <host name={quoteattr(name)}>\n"
        for column in _COLUMNS:
            value = escape(facts.get(column, "-"))
            text += f"   <hostvalue name='{column}'>{value}</hostvalue>\n"
        text += " </host>\n"
    return text + "</qhost>\n"
