"""The processes of hosts and of this machine, as this machine numbers them."""

import contextlib
import os
from pathlib import Path

from .hosts import Hosts


def processes_on(hosts: Hosts, host: str, name: str) -> list[int]:
    """Those of this name on a host."""
    inside = os.stat(f"/proc/{hosts.pid(host)}/ns/pid").st_ino
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if name_of(int(pid)) == name and os.stat(f"/proc/{pid}/ns/pid").st_ino == inside:
                found.append(int(pid))
    return found


def name_of(pid: int) -> str:
    """What a process calls itself; empty when it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def parent_of(pid: int) -> int:
    """0 when it is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("PPid:"):
                return int(line.split()[1])
    return 0


def children_of(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []
