"""An agent per test, and the certainty that nothing of it is left running."""

import fcntl
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.waiting import wait_until
from towline.agent.remote.share import grants

from .driver import Driver

NewAgent = Callable[..., Driver]


@pytest.fixture(autouse=True)
def _one_at_a_time() -> Iterator[None]:
    """Where tests run side by side: jobs have the same short keys here, and an agent finds what
    belongs to a job by its key."""
    with open(f"{tempfile.gettempdir()}/towline-agent-tests", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def new_agent(root: Path) -> Iterator[NewAgent]:
    """Starts agents on the same root, as reconnecting does."""
    drivers: list[Driver] = []

    def start(**options: str) -> Driver:
        drivers.append(Driver(root, **options))
        return drivers[-1]

    try:
        yield start
        for driver in drivers:
            driver.leave()
        wait_until(lambda: not processes_of(root), on_timeout=lambda: processes_of(root))
    finally:
        for pid in processes_of(root):
            os.kill(pid, signal.SIGKILL)
        for driver in drivers:
            driver.kill()


@pytest.fixture
def agent(new_agent: NewAgent) -> Driver:
    return new_agent()


def processes_of(root: Path) -> dict[int, bytes]:
    """Agents, supervisors and jobs that belong to this root, with their command lines."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            command = Path("/proc", name, "cmdline").read_bytes()
            environ = Path("/proc", name, "environ").read_bytes()
        except OSError:
            continue
        ours = b"JOB_DIR=" + bytes(root)
        if command and (bytes(root) in command or ours in environ):
            found[int(name)] = command
    return found


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What /tmp is to the agents of a test."""
    # Not below tmp_path, which other users may not enter.
    base = Path(tempfile.mkdtemp(prefix="tow-claims-", dir="/tmp"))
    base.chmod(0o1777)
    monkeypatch.setattr(grants, "BASE", str(base))
    yield base
    shutil.rmtree(base)
