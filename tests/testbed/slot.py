"""A slot: the names, networks and folder that one set of hosts has for itself on this machine.

The lock of a slot is held by its owner and its janitor, and goes with them, however they end.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
from pathlib import Path

from .waiting import wait_until

FOLDER = Path("/run/towline-testbed")
NETNS = Path("/run/netns")
SLOTS = 64
#: Root's PATH may lack the folders where `ip` and `pivot_root` are.
ENVIRONMENT = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}


class TestbedError(Exception):
    """The hosts cannot be started or used; the text says why and what to do."""

    __test__ = False


def command(*argv: str, input: str | None = None) -> str:
    """Run a program of this machine and return what it printed."""
    done = subprocess.run(
        argv, input=input, env=ENVIRONMENT, capture_output=True, text=True, timeout=30
    )
    if done.returncode:
        raise TestbedError(f"{' '.join(argv)} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


class Slot:
    def __init__(self, number: int, lock: int) -> None:
        self.number = number
        self.lock = lock
        self.prefix = f"tl{number}"
        self.outer = f"10.81.{number}"
        self.inner = f"10.82.{number}"
        self.folder = FOLDER / str(number)
        self.disk = self.folder / "disk"

    def link(self, name: str) -> str:
        """The name of a host's network namespace, and of our end of its cable."""
        return f"{self.prefix}-{name}"

    def release(self) -> None:
        os.close(self.lock)


def _take(number: int) -> Slot | None:
    lock = os.open(FOLDER / f"{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return Slot(number, lock)


def claim() -> Slot:
    """Take a free slot, after removing what dead owners left in theirs."""
    FOLDER.mkdir(mode=0o700, exist_ok=True)
    remove_leftovers()
    for number in range(SLOTS):
        if slot := _take(number):
            clean(slot)
            return slot
    raise TestbedError(f"all {SLOTS} slots for test hosts are taken; see {FOLDER}")


def remove_leftovers() -> None:
    for folder in FOLDER.iterdir():
        if folder.name.isdigit() and (slot := _take(int(folder.name))):
            try:
                clean(slot)
            finally:
                slot.release()


def clean(slot: Slot) -> None:
    """Remove all that a slot has on this machine; nothing of it need be there."""
    namespaces = _named(NETNS, slot)
    wait_until(lambda: not _killed_in(namespaces), timeout=10)
    for link in _named(Path("/sys/class/net"), slot):
        # Gone already when its other end went with its namespace.
        with contextlib.suppress(TestbedError):
            command("ip", "link", "del", link.name)
    for namespace in namespaces:
        command("ip", "netns", "del", namespace.name)
    for network in (slot.outer, slot.inner):
        with contextlib.suppress(TestbedError):
            command("ip", "route", "del", "unreachable", f"{network}.0/24", "metric", "9999")
    if slot.disk.is_mount():
        _unmount(slot.disk)
    if slot.folder.exists():
        shutil.rmtree(slot.folder)


def _named(folder: Path, slot: Slot) -> list[Path]:
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if path.name.startswith(f"{slot.prefix}-")]


def _unmount(disk: Path) -> None:
    try:
        command("umount", str(disk))
    except TestbedError:
        # The kernel frees the mounts of a dead host a moment after its last process.
        command("umount", "--lazy", str(disk))


def processes_in(namespaces: list[Path]) -> list[int]:
    """The processes of this machine that live in one of these network namespaces."""
    wanted = {(at.st_dev, at.st_ino) for at in map(os.stat, namespaces)}
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                at = os.stat(f"/proc/{entry}/ns/net")
                if (at.st_dev, at.st_ino) in wanted:
                    found.append(int(entry))
    return found


def _killed_in(namespaces: list[Path]) -> list[int]:
    found = processes_in(namespaces) if namespaces else []
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found
