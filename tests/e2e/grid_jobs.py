"""A Grid Engine as a user configures it, and the questions the tests ask of it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.jobs import ENGINE
from testbed import disk
from testbed.gridengine import NODES, QUEUE, GridEngine
from testbed.gridengine_files import BINARIES, SLOTS
from testbed.tow import Tow

#: A gate before each job: Grid Engine sets a job aside whose prolog ends with 100.
GATE = "/home/gate.sh"


def configure(tow: Tow, more: str = "") -> None:
    """Make the test Grid Engine the cluster `msc`."""
    cluster = f'[clusters.msc]\nkind = "gridengine"\nhost = "msc"\n{more}\n'
    (tow.home / "config.toml").write_text(f"{ENGINE}{cluster}")


#: How sites differ: whether the first lines of scripts are heeded, and reasons are collected.
SITES = {"as Debian's": ("unix_behavior", True), "as installed": ("posix_compliant", False)}
on_every_site = pytest.mark.parametrize("site", SITES.values(), ids=SITES.keys())


def become(grid: GridEngine, site: tuple[str, bool]) -> None:
    grid.start_mode(site[0])
    grid.tell_why(site[1])


def shell(grid: GridEngine, text: str) -> str:
    """Typed by the user on the head node, in a shell that logs in."""
    return grid.worker("bash", "-lc", text)


def processes(grid: GridEngine, host: str) -> str:
    """The command lines of all that runs on a host."""
    return grid.run(host, ["ps", "-eo", "args"]).stdout


@contextmanager
def gated(grid: GridEngine) -> Iterator[str]:
    """Jobs are set aside until the file that this gives is there."""
    opened = f"/home/{disk.USER}/open"
    # Shared by all hosts, and not in the user's home, which tests empty.
    gate = grid.root("h1") / GATE[1:]
    gate.write_text(f"#!/bin/sh\n[ -e {opened} ] || exit 100\n")
    gate.chmod(0o755)
    grid.control("qconf", "-mattr", "queue", "prolog", GATE, QUEUE)
    try:
        yield opened
    finally:
        grid.control("qconf", "-mattr", "queue", "prolog", "NONE", QUEUE)
        gate.unlink()


def close_all(grid: GridEngine) -> None:
    """Nothing starts on any host until `restore`."""
    grid.control("qmod", "-d", *(f"{QUEUE}@{name}" for name in NODES))


@contextmanager
def slots(grid: GridEngine, count: int) -> Iterator[None]:
    """Each host runs so many jobs at a time meanwhile."""
    grid.control("qconf", "-mattr", "queue", "slots", str(count), QUEUE)
    try:
        yield
    finally:
        grid.control("qconf", "-mattr", "queue", "slots", str(SLOTS), QUEUE)


@contextmanager
def longest_array(grid: GridEngine, tasks: int) -> Iterator[None]:
    """The site takes no longer arrays for a while."""
    before = grid.control("qconf", "-sconf")
    text = re.sub(r"max_aj_tasks +\d+", f"max_aj_tasks {tasks}", before)
    set_configuration(grid, text)
    try:
        yield
    finally:
        set_configuration(grid, before)


def set_configuration(grid: GridEngine, text: str) -> None:
    file = grid.root("h1") / "tmp/global"
    file.write_text("".join(f"{line}\n" for line in text.splitlines() if line[:1] != "#"))
    grid.control("qconf", "-Mconf", "/tmp/global")


@contextmanager
def slow_qsub(grid: GridEngine) -> Iterator[Path]:
    """Each qsub does its work and then takes long to say so; the file says that one has."""
    real, tmp = grid.root("h1") / BINARIES[1:], grid.root("h1") / "tmp"
    grid.control("mkdir", f"{BINARIES}/real")
    grid.control("mv", f"{BINARIES}/qsub", f"{BINARIES}/real/qsub")
    (real / "qsub").write_text(
        f'#!/bin/sh\ncase "$*" in *-terse*) ;; *) exec {BINARIES}/real/qsub "$@"; esac\n'
        f'{BINARIES}/real/qsub "$@" > /tmp/said.$$ || exit\n'
        "touch /tmp/queued; [ -e /tmp/hurry ] || sleep 20; cat /tmp/said.$$\n"
    )
    (real / "qsub").chmod(0o755)
    try:
        yield tmp / "queued"
    finally:
        grid.control("mv", f"{BINARIES}/real/qsub", f"{BINARIES}/qsub")
        grid.control("rmdir", f"{BINARIES}/real")
