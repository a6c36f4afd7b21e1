"""All benchmarks, or the named ones, and a table at the end: bench/run.py [NAME...] [--repeat N]"""

import argparse
import importlib
import os
import time
from collections.abc import Sequence

from verdict import Verdict

NAMES = (
    "latency", "throughput", "scheduler", "batch", "transfer", "far", "far_echo", "gridengine",
    "sweeps", "calls", "team_server",
)  # fmt: skip
#: From the shortest to the longest queue, a decision may become this much dearer: noise of a
#: shared machine and of memory caches, where a scan would make it a thousand times.
FLAT = 3.0
#: With more of the machine in use by others, ratios say little.
BUSY = 0.2


def verdicts(name: str) -> list[Verdict]:
    """Run one benchmark; what it measured beside its targets."""
    found = importlib.import_module(name).main()
    return flatness(found) if name == "scheduler" else found


def flatness(rows: list) -> list[Verdict]:  # type: ignore[type-arg]
    first, last = rows[0], rows[-1]
    what = f"decision, {last.queued:,} / {first.queued:,} queued"
    return [Verdict(what, last.decision_us / first.decision_us, "x", below=FLAT)]


def used_by_others(seconds: float = 1.0) -> float:
    """The share of this machine's CPUs that other programs use."""
    before = cpu_ticks()
    time.sleep(seconds)
    busy, everything = (now - then for now, then in zip(cpu_ticks(), before, strict=True))
    return busy / max(1, everything)


def cpu_ticks() -> tuple[int, int]:
    """Busy ticks of all CPUs so far, and all ticks."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="all of it N times")
    chosen = parser.parse_args()
    names = chosen.names or NAMES
    if unknown := set(names) - set(NAMES):
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(NAMES)}")
    rounds = [run(names) for _ in range(chosen.repeat)]
    if chosen.repeat > 1:
        for place, verdict in enumerate(rounds[0]):
            values = sorted(found[place].value for found in rounds)
            held = sum(found[place].holds for found in rounds)
            span = f"{values[0]:.2f} to {values[-1]:.2f} {verdict.unit}"
            print(
                f"{verdict.what:44} {span:>20} {verdict.target:>14}  {held} of {len(rounds)} hold"
            )
    return 0 if all(verdict.holds for found in rounds for verdict in found) else 1


def run(names: Sequence[str]) -> list[Verdict]:
    """Run these benchmarks once, and print what came of it."""
    others = used_by_others()
    found = []
    for name in names:
        found += verdicts(name)
        print()
    print(f"{os.cpu_count()} CPUs, of which other programs used {others:.0%} before the start")
    if others > BUSY:
        # A program of many processes gets more of a busy machine than one of a single process.
        print("NOT a fair comparison: run it again on a quiet machine")
    print(*found, sep="\n", end="\n\n")
    return found


if __name__ == "__main__":
    raise SystemExit(main())
