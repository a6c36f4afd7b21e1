"""The quick rows of this checkout and of another one, in turns: bench/compare.py OLD_CHECKOUT

Both run on this machine alone, each in a home of its own, with this interpreter and what is
installed for it: what differs is the code.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from run import BUSY, used_by_others
from verdict import Verdict

#: New code may take this much of what the old code took.
MOST = 1.05
CONFIG = """
[engine]
idle_exit_s = 3600
[clusters.lab]
machines = [{ ssh = "this", cpus = 8 }]
"""
#: A job that makes many files, and one that has a large file and stays.
MAKES = "mkdir made; seq 1000 | split -l 1 -a 4 - made/f"
STAYS = "head -c 100000000 /dev/urandom > big; touch ready; exec sleep 3600"
#: One of these is one measurement, in seconds or modules.
Row = Callable[["Checkout"], float]


class Checkout:
    """One version of Towline, with an Engine that is warm."""

    def __init__(self, folder: Path) -> None:
        if not (folder / "src" / "towline").is_dir():
            raise SystemExit(f"{folder} is no checkout of Towline")
        self.folder = folder
        self.home = Path(tempfile.mkdtemp(prefix="tow-", dir="/tmp"))
        (self.home / "config.toml").write_text(CONFIG)
        self.work = self.home / "work"
        self.work.mkdir()
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("TOWLINE_")}
        self.env = inherited | {
            "PYTHONPATH": str(folder / "src"),
            "TOWLINE_HOME": str(self.home),
            "TOWLINE_SSH_CONFIG": "/dev/null",
        }
        self.batches = 0
        self.tow("run", "-c", "lab", "true")
        self.tow("run", "-c", "lab", "-d", "--title", "stays", "--no-results", "sh", "-c", STAYS)
        while not list(self.home.glob("machine/jobs/*/src/ready")):
            time.sleep(0.05)

    def tow(self, *words: str, interpreter: tuple[str, ...] = ()) -> str:
        """What it says on its error stream; it must succeed."""
        done = subprocess.run(
            [sys.executable, *interpreter, "-m", "towline.cli.main", *words],
            cwd=self.work,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=600,
        )
        if done.returncode:
            raise SystemExit(f"{self.folder}: tow {' '.join(words)}: {done.stderr}")
        return done.stderr

    def batch(self, line: str, count: int) -> str:
        """Run a line so often, to the end; the name of the batch."""
        self.batches += 1
        name = f"b{self.batches}"
        (self.work / "lines").write_text(f"{line}\n" * count)
        self.tow("batch", "-c", "lab", "--name", name, "lines")
        return name

    def close(self) -> None:
        self.tow("stop", "stays")
        self.tow("engine", "stop")
        shutil.rmtree(self.home)


def timed(do: Callable[["Checkout"], object]) -> Row:
    def measure(checkout: Checkout) -> float:
        began = time.perf_counter()
        do(checkout)
        return time.perf_counter() - began

    return measure


def echoes(checkout: Checkout, count: int) -> None:
    """Until what all of them printed is home."""
    name = checkout.batch("echo hello", count)
    checkout.tow("batch", "results", name)


def results(checkout: Checkout) -> None:
    """Until a thousand files are home."""
    checkout.tow("run", "-c", "lab", "sh", "-c", MAKES)
    (made,) = checkout.work.glob("job_results/*/made")
    if len(list(made.iterdir())) != 1000:
        raise SystemExit(f"{checkout.folder}: not all results are home")
    shutil.rmtree(made.parent)


def pulled(checkout: Checkout) -> None:
    checkout.tow("pull", "stays", "big", "pulled", "--force")


def pushed(checkout: Checkout) -> None:
    checkout.tow("push", "stays", "pulled", "pushed")


def imported(checkout: Checkout) -> float:
    """How many modules `tow status` imports."""
    said = checkout.tow("status", interpreter=("-X", "importtime"))
    return sum(line.startswith("import time:") for line in said.splitlines()) - 1


def rows(jobs: int) -> list[tuple[str, int, Row]]:
    """What is measured, how often in a round, and how."""
    return [
        ("tow status", 10, timed(lambda checkout: checkout.tow("status"))),
        ("tow run true, warm", 10, timed(lambda checkout: checkout.tow("run", "true"))),
        (f"{jobs:,} true", 1, timed(lambda checkout: checkout.batch("true", jobs))),
        (f"{jobs // 10:,} echo, home", 1, timed(lambda checkout: echoes(checkout, jobs // 10))),
        ("1,000 results", 3, timed(results)),
        ("pull of 100 MB", 3, timed(pulled)),
        ("push of 100 MB", 3, timed(pushed)),
        ("modules of tow status", 1, imported),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", metavar="OLD_CHECKOUT", type=Path)
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="each N times, in turns")
    parser.add_argument("--jobs", type=int, default=10_000, metavar="N", help="how many `true`")
    chosen = parser.parse_args()
    others = used_by_others()
    new = Path(__file__).resolve().parent.parent
    both = [Checkout(folder) for folder in (chosen.old.resolve(), new)]
    try:
        found = [compared(row, both, chosen.rounds) for row in rows(chosen.jobs)]
    finally:
        for checkout in both:
            checkout.close()
    print(f"{os.cpu_count()} CPUs, of which other programs used {others:.0%} before the start")
    if others > BUSY:
        print("NOT a fair comparison: run it again on a quiet machine")
    print(*found, sep="\n")
    return 0 if all(verdict.holds for verdict in found) else 1


def compared(row: tuple[str, int, Row], both: list[Checkout], rounds: int) -> Verdict:
    """The median of the new code by that of the old, which take turns in going first."""
    what, often, measure = row
    seen: list[list[float]] = [[], []]
    for turn in range(rounds * often):
        for which in (0, 1) if turn % 2 else (1, 0):
            seen[which].append(measure(both[which]))
    old, new = map(statistics.median, seen)
    print(f"{what:28} old {old:10.3f}   new {new:10.3f}   {new / old:5.3f} x", flush=True)
    return Verdict(f"{what}, new / old", new / old, "x", below=MOST)


if __name__ == "__main__":
    sys.exit(main())
