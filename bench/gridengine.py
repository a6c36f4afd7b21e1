"""A real Grid Engine behind its head node: arrays and single jobs, beside a plain `qsub`.

The peers are typed on the head node itself, in one shell: no ssh between one and the next.
"""

import argparse
import contextlib
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab import TOW, environment, measured_environment
from rested_disk import folder, rested_disk
from verdict import Verdict

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from testbed.gridengine import GridEngine  # noqa: E402
from testbed.leftovers import stop_all  # noqa: E402
from towline.client.session import Session  # noqa: E402

TASKS, SINGLE = 500, 200
TURNS = 2
#: At most so many times as long as the plain command.
ARRAY, ALONE = 1.3, 1.0
POLL_S = 0.05
LIMIT_S = 500


class Site:
    """The Grid Engine as the cluster `msc`, with an Engine that is connected to it."""

    def __init__(self, grid: GridEngine, home: Path) -> None:
        self.grid = grid
        self.folder = home / "empty"
        self.folder.mkdir()
        (home / "config.toml").write_text(
            '[clusters.msc]\nkind = "gridengine"\nhost = "msc"\n[engine]\nprobe_every_s = 5\n'
        )
        self.env = measured_environment() | {
            "TOWLINE_HOME": str(home),
            "TOWLINE_SSH_CONFIG": str(grid.ssh_config),
            "NO_COLOR": "1",
        }
        with environment(self.env):
            self.session = Session()

    def tow(self, *words: str) -> None:
        done = subprocess.run(
            [str(TOW), *words],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        if done.returncode:
            raise RuntimeError(f"tow {' '.join(words)} failed:\n{done.stdout}{done.stderr}")

    def head(self, text: str) -> None:
        """Typed by the user on the head node."""
        ssh = ["ssh", "-F", str(self.grid.ssh_config), "-o", "BatchMode=yes", "msc"]
        words = [*ssh, shlex.join(["bash", "-lc", text])]
        done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S)
        if done.returncode:
            raise RuntimeError(f"{text[:60]} failed:\n{done.stdout}{done.stderr}")

    def jobs(self, ids: list[int]) -> list[dict[str, Any]]:
        found = self.session.call("GET", "/v1/jobs?all=1")["jobs"]
        return [job for job in found if job["id"] in set(ids)]

    def empty(self) -> None:
        """Wait until nothing is in the queue and nothing under way."""
        self.head('until [ -z "$(qstat)" ]; do sleep 0.2; done')
        while self.session.call("GET", "/v1/engine")["jobs_active"]:
            time.sleep(POLL_S)


def our_array(site: Site, count: int, name: str) -> float:
    """Seconds from typing `tow batch` until it exits, every line with exit code 0."""
    (site.folder.parent / name).write_text("true\n" * count)
    began = time.perf_counter()
    site.tow("batch", "-c", "msc", str(site.folder.parent / name))
    took = time.perf_counter() - began
    site.empty()
    return took


def plain_array(site: Site, count: int) -> float:
    """Seconds of one `qsub -t` that waits for all of its tasks."""
    began = time.perf_counter()
    site.head(f"qsub -sync y -t 1-{count} -b y -shell n -o /dev/null -e /dev/null /bin/true >said")
    took = time.perf_counter() - began
    site.empty()
    return took


def our_jobs(site: Site, count: int) -> float:
    """Seconds until so many jobs, submitted one by one, have their numbers in the queue."""
    ask = {"argv": ["true"], "cwd": str(site.folder), "cluster": "msc"}
    began = time.perf_counter()
    ids = []
    for _ in range(count):
        answer = site.session.call("POST", "/v1/jobs", {"jobs": [ask], "environ": {}})
        ids += [job["id"] for job in answer["jobs"]]
    while not all(number_of(job) for job in site.jobs(ids)):
        time.sleep(POLL_S)
    took = time.perf_counter() - began
    site.empty()
    states = {job["state"] for job in site.jobs(ids)}
    if states != {"done"}:
        raise RuntimeError(f"jobs are {', '.join(states)}")
    return took


def number_of(job: dict[str, Any]) -> str:
    return str((job.get("queue") or {}).get("number") or "")


def plain_jobs(site: Site, count: int) -> float:
    """Seconds of so many `qsub`, one after the other."""
    began = time.perf_counter()
    site.head(
        f"for n in $(seq {count}); do"
        " qsub -b y -shell n -o /dev/null -e /dev/null /bin/true >/dev/null || exit 1; done"
    )
    took = time.perf_counter() - began
    site.empty()
    return took


@contextlib.contextmanager
def a_site() -> Iterator[Site]:
    """A Grid Engine of two hosts with four slots each, and nothing left of it afterwards."""
    with rested_disk():
        home = folder("grid-")
        with GridEngine() as grid:
            site = Site(grid, home)
            try:
                with environment(site.env):
                    site.tow("run", "-c", "msc", "true")
                    yield site
            finally:
                stop_all(home)


def main(tasks: int = TASKS, single: int = SINGLE) -> list[Verdict]:
    """Measure both in turns, in this run."""
    print(f"gridengine: an array of {tasks}, and {single} jobs; two hosts of four slots")
    with a_site() as site:
        jobs = [(our_jobs(site, single), plain_jobs(site, single)) for _ in range(TURNS)]
        arrays = [
            (our_array(site, tasks, f"array{turn}"), plain_array(site, tasks))
            for turn in range(TURNS)
        ]
    for what, turns in (("tasks", arrays), ("jobs", jobs)):
        print(
            f"  {what}:", ", ".join(f"{ours:.2f} s : qsub {theirs:.2f} s" for ours, theirs in turns)
        )
    return [
        Verdict(f"{tasks} tasks / qsub -t 1-{tasks}", ratio(arrays), "x", below=ARRAY),
        Verdict(f"{single} submissions / {single} qsub", ratio(jobs), "x", below=ALONE),
    ]


def ratio(turns: list[tuple[float, float]]) -> float:
    """The best of ours by the best of theirs."""
    ours, theirs = zip(*turns, strict=True)
    return float(min(ours) / min(theirs))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="?", type=int, default=TASKS)
    parser.add_argument("single", nargs="?", type=int, default=SINGLE)
    chosen = parser.parse_args()
    for verdict in main(chosen.tasks, chosen.single):
        print(verdict)
