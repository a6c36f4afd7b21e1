"""Bounds on the memory and the CPUs of a job, where the machine lets this account set them."""

import os

from ..machine import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

GROUPS = "/sys/fs/cgroup"
NEEDED = ("memory", "cpu", "pids")


def look(
    membership: "str | None" = None,
    groups: str = GROUPS,
    may_write: "Callable[[str], bool]" = lambda path: os.access(path, os.W_OK),
) -> "tuple[str, str]":
    """What could set bounds here, or why nothing can."""
    if membership is None:
        membership = read_text("/proc/self/cgroup")
    place = own_group(membership)
    if place is None or not os.path.exists(groups + "/cgroup.controllers"):
        return "", "control groups of the second version are not in use here"
    folder = groups + place
    given = read_text(folder + "/cgroup.controllers").split()
    lacking = [name for name in NEEDED if name not in given]
    if lacking:
        return "", "the control group of this account has no %s" % ", ".join(lacking)
    if not all(may_write(folder + name) for name in ("", "/cgroup.procs")):
        return "", "the control group %s is not this account's" % place
    return "cgroup", ""


def own_group(membership: str) -> "str | None":
    """Our own place in the hierarchy of the second version, from /proc/self/cgroup."""
    for line in membership.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, place = rest.partition(":")
        if number == "0" and not controllers:
            return place.rstrip("/")
    return None
