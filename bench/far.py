"""A machine that is next door, 50 ms and 150 ms away, beside ssh and rsync over the same delay.

Every row checks what arrived. The peers use a connection that is as open as ours.
"""

import argparse
import contextlib
import filecmp
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from lab import TOW, environment, measured_environment
from rested_disk import folder, rested_disk
from verdict import Verdict

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from testbed.far import far_config  # noqa: E402
from testbed.hosts import Hosts  # noqa: E402
from testbed.leftovers import stop_all  # noqa: E402

HOST = "h1"
ROUND_TRIPS_S = (0.0, 0.05, 0.15)
MB = 1_000_000
LARGE = 200 * MB
FILES = 1000
#: What everybody reads: on the host, in the home of the user.
PREPARE = (
    f"head -c {LARGE} /dev/urandom > big; head -c {LARGE // 2} big > half; seq 6000000 > text; "
    f"mkdir small; for i in $(seq {FILES}); do head -c 1000 /dev/urandom > small/f$i; done"
)
#: A job that has all of it, prints the text, and stays.
JOB = "cp -r ~/big ~/half ~/small .; cat ~/text; touch ready; sleep 3600"
ROWS = 1.2
READING = 1.5


class Far:
    """One host at a distance, with an open connection for us and one for the peers."""

    def __init__(self, hosts: Hosts, home: Path, round_trip_s: float) -> None:
        self.home = home
        self.round_trip_s = round_trip_s
        self.here = home / "here"
        self.here.mkdir()
        near = hosts.ssh_config
        config = far_config(near, round_trip_s, home) if round_trip_s else near
        self.env = measured_environment() | {
            "TOWLINE_HOME": str(home),
            "TOWLINE_SSH_CONFIG": str(config),
            "NO_COLOR": "1",
        }
        (home / "config.toml").write_text(f'[clusters.lab]\nmachines = [{{ ssh = "{HOST}" }}]\n')
        self.ssh = ["ssh", "-F", str(config), "-o", f"ControlPath={home}/peer"]
        self.found: list[Verdict] = []

    def tow(self, *words: str, output: Path | None = None) -> None:
        self._run([str(TOW), *words], output)

    def peer(self, command: str, output: Path | None = None, source: Path | None = None) -> None:
        self._run([*self.ssh, HOST, command], output, source)

    def rsync(self, *words: str) -> None:
        self._run(["rsync", "-a", "-e", " ".join(self.ssh), *words])

    def _run(
        self, words: list[str], output: Path | None = None, source: Path | None = None
    ) -> None:
        with contextlib.ExitStack() as files:
            out = files.enter_context(open(output or "/dev/null", "wb"))
            given = files.enter_context(open(source or "/dev/null", "rb"))
            ran = subprocess.run(
                words,
                cwd=self.here,
                env=self.env,
                stdin=given,
                stdout=out,
                stderr=subprocess.PIPE,
                timeout=600,
            )
        if ran.returncode:
            raise RuntimeError(f"{' '.join(words[:4])} failed: {ran.stderr.decode()[-500:]}")

    def row(
        self, what: str, ours: Callable[[], None], theirs: Callable[[], None], most: float
    ) -> None:
        """Both, one after the other, and how much longer ours takes."""
        seconds = []
        for do in (theirs, ours):
            began = time.perf_counter()
            do()
            seconds.append(time.perf_counter() - began)
        where = f"{self.round_trip_s * 1000:.0f} ms"
        print(f"  {where:>6}  {what:32} peer {seconds[0]:6.2f} s  towline {seconds[1]:6.2f} s")
        self.found.append(Verdict(f"{where}: {what}", seconds[1] / seconds[0], "x", below=most))


def transfers(far: Far) -> None:
    """Long and short files in both directions, results, and a long output."""
    here = far.here
    big, small = ("pull", "1", "big"), ("pull", "1", "small")
    far.row(
        "pull of 200 MB / ssh cat",
        lambda: far.tow(*big, "ours"),
        lambda: far.peer("cat big", here / "theirs"),
        ROWS,
    )
    same(here / "ours", here / "theirs")
    far.row(
        "push of 200 MB / ssh cat",
        lambda: far.tow("push", "1", "ours", "up"),
        lambda: far.peer("cat > up", source=here / "theirs"),
        ROWS,
    )
    far.row(
        "pull of 1,000 files / rsync",
        lambda: far.tow(*small, "files"),
        lambda: far.rsync(f"{HOST}:small/", "files-theirs"),
        ROWS,
    )
    same_folder(here / "files", here / "files-theirs")
    far.row(
        "push of 1,000 files / rsync",
        lambda: far.tow("push", "1", "files", "files-up"),
        lambda: far.rsync("files-theirs/", f"{HOST}:files-up"),
        ROWS,
    )
    far.row(
        "1,000 results / rsync",
        lambda: far.tow("run", "-c", "lab", "--exclude", "*", "sh", "-c", "cp -r ~/small ."),
        lambda: far.rsync(f"{HOST}:small/", "results-theirs"),
        ROWS,
    )
    same_folder(here / "job_results/2/small", here / "files-theirs")
    far.row(
        "log of 47 MB / ssh cat",
        lambda: far.tow("log", "1", output=here / "log"),
        lambda: far.peer("cat text", here / "log-theirs"),
        ROWS,
    )
    same(here / "log", here / "log-theirs")


def reading(far: Far) -> None:
    """Programs that open files of a job as if they were here."""
    here = far.here
    program = (
        "import fsspec, shutil, sys\n"
        "with fsspec.open('tow://1/half', 'rb') as file, open(sys.argv[1], 'wb') as out:\n"
        "    shutil.copyfileobj(file, out, 1 << 20)\n"
    )
    far.row(
        "100 MB by tow:// / ssh cat",
        lambda: far._run([sys.executable, "-c", program, "read"]),
        lambda: far.peer("cat half", here / "read-theirs"),
        READING,
    )
    same(here / "read", here / "read-theirs")
    far.tow("mount", "-d", "1", "mounted")
    try:
        far.row(
            "100 MB in a mount / ssh cat",
            lambda: far._run(["cat", "mounted/half"], here / "seen"),
            lambda: far.peer("cat half", here / "seen-theirs"),
            READING,
        )
        same(here / "seen", here / "seen-theirs")
    finally:
        subprocess.run(["fusermount", "-u", str(here / "mounted")], check=True, timeout=30)


def same(one: Path, other: Path) -> None:
    if not filecmp.cmp(one, other, shallow=False):
        raise RuntimeError(f"{one} and {other} differ")


def same_folder(one: Path, other: Path) -> None:
    names = sorted(path.name for path in other.iterdir())
    if names != sorted(path.name for path in one.iterdir()) or len(names) != FILES:
        raise RuntimeError(f"{one} and {other} do not have the same files")
    for name in names:
        same(one / name, other / name)


@contextlib.contextmanager
def a_far_host(hosts: Hosts, round_trip_s: float) -> Iterator[Far]:
    """A host with the files and the job of every row."""
    home = folder("tow-far-")
    far = Far(hosts, home, round_trip_s)
    master = [*far.ssh, "-o", "ControlMaster=yes", "-o", "ControlPersist=600", HOST, "true"]
    try:
        with environment(far.env):
            subprocess.run(master, check=True, timeout=60)
            far.peer(PREPARE)
            far.tow("run", "-c", "lab", "-d", "--no-results", "--exclude", "*", "sh", "-c", JOB)
            far.peer("until ls .towline/jobs/*/src/ready; do sleep 0.1; done")
            yield far
    finally:
        subprocess.run([*far.ssh, "-O", "exit", HOST], capture_output=True, timeout=30)
        stop_all(home)
        hosts.wipe()
        shutil.rmtree(home)


def main() -> list[Verdict]:
    """Measure every row at every distance."""
    print("far away: one machine, and round trips of", end=" ")
    print(", ".join(f"{seconds * 1000:.0f} ms" for seconds in ROUND_TRIPS_S))
    found = []
    with rested_disk(), Hosts(count=1, inner=False) as hosts:
        for seconds in ROUND_TRIPS_S:
            with a_far_host(hosts, seconds) as far:
                transfers(far)
                reading(far)
                # Next door the way costs nothing: the row shows what the programs cost.
                found += far.found if seconds else []
    return found


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(*main(), sep="\n")
