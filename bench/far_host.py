"""One ssh host at a distance, with an Engine of its own, and the peers' connection to it."""

import contextlib
import filecmp
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from lab import TOW, environment, measured_environment
from rested_disk import folder
from verdict import Verdict

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from testbed.far import far_config  # noqa: E402
from testbed.hosts import Hosts  # noqa: E402
from testbed.leftovers import stop_all  # noqa: E402
from testbed.waiting import wait_until  # noqa: E402

HOST = "h1"
#: More than there are: what others do on this machine is not to keep jobs from starting.
CPUS = 8
LIMIT_S = 300

#: Does it for the so-manieth time: every time has places of its own.
Deed = Callable[[int], None]


class Far:
    """`here` is where everybody works, `there` the home of the user over there."""

    def __init__(self, hosts: Hosts, home: Path, round_trip_s: float) -> None:
        self.home = home
        self.round_trip_s = round_trip_s
        self.here, self.empty = home / "here", home / "empty"
        for place in (self.here, self.empty):
            place.mkdir()
        self.there = hosts.home(HOST)
        near = hosts.ssh_config
        config = far_config(near, round_trip_s, home) if round_trip_s else near
        self.env = measured_environment() | {
            "TOWLINE_HOME": str(home),
            "TOWLINE_SSH_CONFIG": str(config),
            "NO_COLOR": "1",
        }
        (home / "config.toml").write_text(
            f'[clusters.lab]\nmachines = [{{ ssh = "{HOST}", cpus = {CPUS} }}]\n'
        )
        #: Without and with a connection that is open already.
        self.cold_ssh = ["ssh", "-F", str(config)]
        self.ssh = [*self.cold_ssh, "-o", f"ControlPath={home}/peer"]
        #: The job that everything is asked of.
        self.job = ""
        self.found: list[Verdict] = []

    @property
    def job_folder(self) -> Path:
        """Where the job runs, as seen from here."""
        (place,) = self.there.glob(f".towline/jobs/*-{self.job}-1-*/src")
        return place

    def tow(self, *words: str, output: Path | None = None, where: Path | None = None) -> None:
        self.run([str(TOW), *words], output, where=where)

    def peer(self, command: str, output: Path | None = None, source: Path | None = None) -> None:
        self.run([*self.ssh, HOST, command], output, source)

    def rsync(self, *words: str) -> None:
        self.run(["rsync", "-a", "-e", " ".join(self.ssh), *words])

    def tar_down(self, source: str, target: Path) -> None:
        target.mkdir()
        self.pipe([*self.ssh, HOST, f"tar c -C {source} ."], ["tar", "x", "-C", str(target)])

    def tar_up(self, source: Path, target: str) -> None:
        there = [*self.ssh, HOST, f"mkdir {target}; tar x -C {target}"]
        self.pipe(["tar", "c", "-C", str(source), "."], there)

    def run(
        self,
        words: list[str],
        output: Path | None = None,
        source: Path | None = None,
        where: Path | None = None,
    ) -> None:
        with contextlib.ExitStack() as files:
            out = files.enter_context(open(output or os.devnull, "wb"))
            given = files.enter_context(open(source or os.devnull, "rb"))
            ran = subprocess.run(
                words,
                cwd=where or self.here,
                env=self.env,
                stdin=given,
                stdout=out,
                stderr=subprocess.PIPE,
                timeout=LIMIT_S,
            )
        if ran.returncode:
            raise RuntimeError(f"{' '.join(words[:4])} failed: {ran.stderr.decode()[-500:]}")

    def pipe(self, source: list[str], sink: list[str]) -> None:
        how = {"cwd": self.here, "env": self.env}
        with subprocess.Popen(source, stdout=subprocess.PIPE, **how) as first:  # type: ignore[call-overload]
            ran = subprocess.run(
                sink, stdin=first.stdout, stdout=subprocess.DEVNULL, timeout=LIMIT_S, **how
            )
        if first.returncode or ran.returncode:
            raise RuntimeError(f"{' '.join(source[:4])} | {' '.join(sink[:4])} failed")

    # --- measuring ---------------------------------------------------------------------------

    def row(self, what: str, ours: Deed, theirs: dict[str, Deed], most: float, times: int) -> None:
        """The best of some times, in turns, beside the quickest of the others."""
        deeds = {**theirs, "towline": ours}
        best = dict.fromkeys(deeds, float("inf"))
        for number in range(times):
            for name, deed in deeds.items():
                best[name] = min(best[name], elapsed(deed, number))
        peer = min(theirs, key=best.__getitem__)
        self.say(what, "  ".join(f"{name} {best[name]:.2f} s" for name in deeds))
        # Next door the way costs nothing: the row shows what the programs cost.
        if self.round_trip_s:
            ratio = best["towline"] / best[peer]
            self.found.append(Verdict(self.named(f"{what} / {peer}"), ratio, "x", below=most))

    def named(self, what: str) -> str:
        return f"{self.round_trip_s * 1000:.0f} ms: {what}"

    def say(self, what: str, measured: str) -> None:
        print(f"  {self.named(what):38} {measured}", flush=True)


def elapsed(deed: Deed, number: int) -> float:
    began = time.perf_counter()
    deed(number)
    return time.perf_counter() - began


def same(one: Path, other: Path) -> None:
    if not filecmp.cmp(one, other, shallow=False):
        raise RuntimeError(f"{one} and {other} differ")


def same_folder(one: Path, other: Path, count: int) -> None:
    names = sorted(path.name for path in other.iterdir())
    if names != sorted(path.name for path in one.iterdir()) or len(names) != count:
        raise RuntimeError(f"{one} and {other} do not have the same files")
    for name in names:
        same(one / name, other / name)


@contextlib.contextmanager
def a_far_host(hosts: Hosts, round_trip_s: float) -> Iterator[Far]:
    """A host with a connection for the peers; nothing of it remains."""
    home = folder("tow-far-")
    far = Far(hosts, home, round_trip_s)
    # Detached, so that it does not keep a pipe open.
    master = [*far.ssh, "-o", "ControlMaster=yes", "-o", "ControlPersist=yes", "-fN", HOST]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    try:
        with environment(far.env):
            subprocess.run(master, check=True, timeout=60, stderr=subprocess.DEVNULL, **quiet)
            yield far
    finally:
        subprocess.run([*far.ssh, "-O", "exit", HOST], capture_output=True, timeout=30)
        stop_all(home)
        hosts.wipe()
        shutil.rmtree(home)


def end_engine(far: Far) -> None:
    """Until nothing of it is left."""
    pid = int((far.home / "engine.pid").read_text())
    far.tow("engine", "stop")
    wait_until(lambda: not os.path.exists(f"/proc/{pid}/cwd"))
