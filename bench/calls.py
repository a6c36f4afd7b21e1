"""Calls of a tiny function over warm workers on four ssh hosts; beside it Dask and Ray, here.

Each has eight workers and maps `x + 1` over ten thousand numbers, in turns: with one call per
message, and in parts of a size that it chooses itself.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

from lab import Lab, a_lab, measured_environment
from verdict import Verdict

import towline

CALLS = 10_000
WORKERS = 8
TURNS = 3


def ours(lab: Lab) -> float:
    """Calls per second; workers are warm, as those of the others are."""

    def more(x: int) -> int:
        # Within a function: of a module of ours the hosts have nothing.
        return x + 1

    options = {"folder": lab.folder, "session": lab.session}
    with towline.Executor("lab", workers=WORKERS, cpus=1, **options) as executor:
        list(executor.map(time.sleep, [0.2] * WORKERS, chunksize=1))
        began = time.perf_counter()
        found = list(executor.map(more, range(CALLS)))
        took = time.perf_counter() - began
    if found != list(range(1, CALLS + 1)):
        raise RuntimeError("not what was called")
    return CALLS / took


def peer(name: str) -> float:
    """The better of its two ways."""
    program = Path(__file__).with_name("calls_peer.py")
    done = subprocess.run(
        [sys.executable, str(program), name, str(CALLS), str(WORKERS)],
        env=measured_environment(),
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stdout}{done.stderr}")
    return max(map(float, done.stdout.split()))


def main() -> list[Verdict]:
    seen: dict[str, list[float]] = {"towline": [], "dask": [], "ray": []}
    with a_lab() as lab:
        for _ in range(TURNS):
            for name, found in seen.items():
                found.append(ours(lab) if name == "towline" else peer(name))
    rates = {name: statistics.median(found) for name, found in seen.items()}
    for name, rate in rates.items():
        span = f"{min(seen[name]):,.0f} to {max(seen[name]):,.0f}"
        print(f"{name:24} {rate:9,.0f} calls/s   ({span})", flush=True)
    mine = rates.pop("towline")
    fastest = max(rates, key=lambda name: rates[name])
    return [
        Verdict(f"{CALLS:,} calls on four hosts / {fastest}", mine / rates[fastest], "x", above=1)
    ]


if __name__ == "__main__":
    print(*main(), sep="\n")
