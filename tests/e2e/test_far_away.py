"""A machine that is far away: everything arrives whole, whatever breaks on the long way."""

import contextlib
import hashlib
import os
import signal
import threading
from pathlib import Path
from random import Random

import pytest

from e2e.api import ask
from e2e.engines import kill_engine
from e2e.jobs import configure, show, submit, wait_for
from testbed.far import far_config
from testbed.hosts import Hosts
from testbed.processes import processes_on
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

ROUND_TRIP_S = 0.05
#: Makes a long file, many short ones, and as much output; then waits for a word to end.
MAKES = (
    "mkdir small; for i in $(seq 400); do echo $i > small/f$i; done; "
    "head -c 12000000 /dev/urandom > big; seq 400000; "
    'until [ -e "$HOME/end" ]; do sleep 0.1; done'
)


@pytest.fixture
def far(hosts: Hosts, tow: Tow, tmp_path: Path) -> Tow:
    """`tow`, with hosts at the end of a long way."""
    config = far_config(hosts.ssh_config, ROUND_TRIP_S, tmp_path)
    tow.env["TOWLINE_SSH_CONFIG"] = str(config)
    configure(tow, "h1")
    return tow


class Cuts:
    """Ends the connection to a host now and then, until it is told to stop."""

    def __init__(self, hosts: Hosts, seed: int) -> None:
        self.hosts = hosts
        self.random = Random(seed)
        self.count = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Cuts":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        """Each connection lives for a moment: long enough to carry something."""
        while not self._over.is_set():
            if not processes_on(self.hosts, "h1", "tow-agent"):
                self._over.wait(0.05)
                continue
            self._over.wait(self.random.uniform(0.5, 1.5))
            for pid in processes_on(self.hosts, "h1", "sshd"):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    if os.stat(f"/proc/{pid}").st_uid:
                        os.kill(pid, signal.SIGKILL)
                        self.count += 1


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def transmitted(hosts: Hosts, name: str) -> int:
    """How many bytes a host has sent so far."""
    devices = Path(f"/proc/{hosts.pid(name)}/net/dev").read_text().splitlines()[2:]
    words = [line.replace(":", " ").split() for line in devices]
    return sum(int(line[9]) for line in words if line[0] != "lo")


@pytest.mark.timeout(240)
def test_no_more_of_a_batch_run_far_away_than_may_whatever_is_killed(
    far: Tow, hosts: Hosts
) -> None:
    log = hosts.home("h1") / "log"
    line = 'echo + {} >> "$HOME/log"; sleep 0.02; echo - {} >> "$HOME/log"'
    (far.folder / "lines").write_text("".join(f"{line.format(n, n)}\n" for n in range(120)))
    assert far("batch", "-c", "lab", "--max-parallel", "2", "-d", "lines").returncode == 0

    def begun() -> int:
        return log.read_text().count("+") if log.exists() else 0

    wait_until(lambda: begun() > 20, timeout=60)
    kill_engine(far.home)
    far("status")
    known = begun()
    wait_until(lambda: begun() > known + 10, timeout=60)
    for pid in processes_on(hosts, "h1", "tow-agent"):
        os.kill(pid, signal.SIGKILL)
    assert far("wait", "lines", timeout=120).returncode == 0
    signs = [text.split() for text in log.read_text().splitlines()]
    assert sorted(signs) == sorted([sign, str(n)] for sign in "+-" for n in range(120))
    running = [sum(1 if sign == "+" else -1 for sign, _ in signs[:n]) for n in range(len(signs))]
    assert max(running) == 2
    status, events = ask(far.home, "GET", "/v1/events?since=0&batch=lines&follow=0")
    assert status == 200 and events.count(b"sent_ahead") > 10


@pytest.mark.timeout(240)
def test_results_go_on_inside_a_long_file_after_the_engine_was_killed(
    far: Tow, hosts: Hosts
) -> None:
    size = 80_000_000
    number = submit(far, "-c", "lab", "sh", "-c", f"head -c {size} /dev/urandom > big")
    home = far.folder / "job_results" / str(number)

    def long_part() -> Path | None:
        parts = [path for path in home.glob(".towline-part-*") if path.stat().st_size > 10_000_000]
        return parts[0] if parts else None

    part = wait_until(long_part, timeout=60)
    kill_engine(far.home)
    here, before = part.stat().st_size, transmitted(hosts, "h1")
    assert here < size
    far("status")
    wait_until(lambda: show(far, number)["results"].startswith("/"), timeout=60)
    assert transmitted(hosts, "h1") - before < size - here + 8_000_000
    there = next((hosts.home("h1") / ".towline/jobs").glob(f"*-{number}-1-*/src/big"))
    assert (home / "big").read_bytes() == there.read_bytes()
    assert [path.name for path in home.iterdir()] == ["big"]


@pytest.mark.timeout(600)
def test_files_output_and_results_come_whole_over_a_long_way_that_breaks(
    hosts: Hosts, far: Tow
) -> None:
    number = submit(far, "-c", "lab", "sh", "-c", MAKES)
    wait_for(far, number, "running")
    [folder] = hosts.home("h1").glob(".towline/jobs/*/src")
    printed = folder.parent / "out"
    expected = "".join(f"{n}\n" for n in range(1, 400_001))
    wait_until(lambda: printed.exists() and printed.stat().st_size == len(expected), timeout=180)
    with Cuts(hosts, seed=1) as cuts:
        pull = far("pull", str(number), ".", "pulled", timeout=180)
        assert pull.returncode == 0, pull.stderr
        push = far("push", str(number), "pulled", "pushed", timeout=180)
        assert push.returncode == 0, push.stderr
        log = far("log", str(number), timeout=180)
        assert log.returncode == 0, log.stderr
        wait_until(lambda: cuts.count > 1, timeout=180)
    # Neither pytest nor a reader has any use for the difference of two such long texts.
    assert (len(log.stdout), log.stdout == expected) == (len(expected), True)
    assert digests(far.folder / "pulled") == digests(folder / "pushed")
    there = {name: sha for name, sha in digests(folder).items() if not name.startswith("pushed/")}
    assert digests(far.folder / "pulled") == there and len(there) == 401
    with Cuts(hosts, seed=2):
        (hosts.home("h1") / "end").touch()
        home = far.folder / "job_results" / str(number)
        done = wait_for(far, number, "done", timeout=180)
        wait_until(lambda: far.json("show", str(number))["results"] != "wanted", timeout=240)
    assert done["exit_code"] == 0
    assert digests(home) == digests(folder)
    out = (far.folder / "job_results" / f"{number}.out").read_text()
    assert (len(out), out == expected) == (len(expected), True)
