"""A `tow` of its own for a benchmark: four real ssh hosts, an Engine, nothing left afterwards."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from rested_disk import folder, rested_disk  # noqa: E402

from testbed.hosts import Hosts  # noqa: E402
from testbed.leftovers import stop_all  # noqa: E402
from towline.client.session import Session  # noqa: E402

TOW = Path(sys.executable).parent / "tow"
MACHINES = ("h1", "h2", "h3", "h4")
CPUS = 8
POLL_S = 0.05


class Lab:
    """Cluster `lab` of four ssh machines, with its Engine running and every machine online."""

    def __init__(self, hosts: Hosts, home: Path) -> None:
        self.hosts = hosts
        self.home = home
        self.folder = home / "empty"
        self.folder.mkdir()
        machines = ", ".join(f'{{ ssh = "{name}", cpus = {CPUS} }}' for name in MACHINES)
        (home / "config.toml").write_text(
            f"[clusters.lab]\nmachines = [{machines}]\n[engine]\nprobe_every_s = 5\n"
        )
        self.env = measured_environment() | {
            "TOWLINE_HOME": str(home),
            "TOWLINE_SSH_CONFIG": str(hosts.ssh_config),
            "NO_COLOR": "1",
        }
        with environment(self.env):
            self.session = Session()

    def tow(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the installed `tow` to its end; it must succeed."""
        done = subprocess.run(
            [str(TOW), *words],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        if done.returncode:
            raise RuntimeError(f"tow {' '.join(words)} failed:\n{done.stdout}{done.stderr}")
        return done

    def warm_up(self) -> None:
        """Start the Engine, open every connection, and run jobs until the caches are filled."""
        self.tow("run", "-c", "lab", "true")
        deadline = time.monotonic() + 30
        while set(self.about()["machines"].values()) != {"online"}:
            if time.monotonic() > deadline:
                raise RuntimeError(f"not every machine is online: {self.about()['machines']}")
            time.sleep(POLL_S)
        self.submit(100)
        self.await_idle()

    def about(self) -> dict[str, Any]:
        """What the Engine says of itself."""
        answer: dict[str, Any] = self.session.call("GET", "/v1/engine")
        return answer

    def submit(self, count: int) -> list[int]:
        """Submit so many jobs `true` in one request; their numbers."""
        ask = {"argv": ["true"], "cwd": str(self.folder), "cluster": "lab"}
        body = {"jobs": [ask] * count, "environ": {}}
        return [job["id"] for job in self.session.call("POST", "/v1/jobs", body)["jobs"]]

    def await_idle(self, limit_s: float = 300) -> None:
        """Wait until no job is under way."""
        deadline = time.monotonic() + limit_s
        while self.about()["jobs_active"]:
            if time.monotonic() > deadline:
                raise RuntimeError(f"jobs are still under way: {self.about()}")
            time.sleep(POLL_S)

    def peak_mb(self) -> float:
        """The most memory that the Engine had so far."""
        status = Path(f"/proc/{self.about()['pid']}/status").read_text()
        return next(
            int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM:")
        )


def measured_environment() -> dict[str, str]:
    """This environment as a user has it: bytecode caches are kept."""
    unwanted = ("PYTHONDONTWRITEBYTECODE", "PYTHONPROFILEIMPORTTIME")
    return {
        name: value
        for name, value in os.environ.items()
        if name not in unwanted and not name.startswith("TOWLINE_")
    }


@contextlib.contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """Have exactly these variables meanwhile."""
    before = dict(os.environ)
    try:
        os.environ.clear()
        os.environ.update(variables)
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def a_lab() -> Iterator[Lab]:
    """A warm lab; its hosts and its Engine are gone afterwards, its files with the disk."""
    with rested_disk():
        home = folder("lab-")
        with Hosts(count=len(MACHINES), inner=False) as hosts:
            lab = Lab(hosts, home)
            try:
                with environment(lab.env):
                    lab.warm_up()
                    yield lab
            finally:
                stop_all(home)
