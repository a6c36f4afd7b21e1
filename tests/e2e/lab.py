"""The cluster `lab` that the fault tests run on, and the Engine they do things to."""

import contextlib
import json
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from testbed.tow import Tow
from testbed.waiting import wait_until

#: Far more than there are: what else runs here must not hold up the jobs of a test.
CPUS = 32


def write_config(
    tow: Tow, machines: Iterable[str], engine: str = "probe_every_s = 0.5", cluster: str = ""
) -> None:
    """Make `lab` of these ssh hosts; `engine` and `cluster` are further settings, in TOML."""
    entries = ", ".join(f'{{ssh = "{name}", cpus = {CPUS}}}' for name in machines)
    text = f'[clusters.lab]\nkind = "machines"\nmachines = [{entries}]\n{cluster}\n'
    (tow.home / "config.toml").write_text(f"{text}\n[engine]\n{engine}\n")


def engine_pid(home: Path) -> int:
    """The process that holds the Engine's lock; 0 when none does."""
    try:
        file = os.stat(home / "engine.lock").st_ino
    except FileNotFoundError:
        return 0
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if "FLOCK" in words and "->" not in words and words[5].endswith(f":{file}"):
            return int(words[4])
    return 0


def serves(home: Path, pid: int) -> bool:
    """True once this Engine answers; it writes its number down last."""
    try:
        return (home / "engine.pid").read_text() == f"{pid}\n"
    except FileNotFoundError:
        return False


def kill_engine(home: Path) -> int:
    """Kill -9 the Engine once it is there; its process number."""
    pid = wait_until(lambda: engine_pid(home))
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: engine_pid(home) != pid)
    return pid


def job(tow: Tow, number: int) -> dict[str, Any]:
    """What `tow show` says of a job."""
    return dict(tow.json("show", str(number)))


def wait_for(tow: Tow, number: int, *states: str, timeout: float = 30) -> dict[str, Any]:
    """The job, as soon as it is in one of these states."""

    def there() -> dict[str, Any] | None:
        seen.append(job(tow, number))
        return seen[-1] if seen[-1]["state"] in states else None

    seen: list[dict[str, Any]] = []
    return wait_until(there, timeout, on_timeout=lambda: seen[-1], every=0.1)


def detached(tow: Tow, *words: str) -> int:
    """The number of a job submitted with `tow run -d`."""
    done = tow("run", "-d", "--json", *words)
    assert done.returncode == 0, done.stderr
    return int(json.loads(done.stdout)["id"])
