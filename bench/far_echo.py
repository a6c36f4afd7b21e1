"""Short jobs on one machine of two CPUs: how many end per second next door, 50 and 150 ms away."""

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from lab import TOW, measured_environment
from rested_disk import folder, rested_disk
from verdict import Verdict

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from testbed.far import far_config  # noqa: E402
from testbed.hosts import Hosts  # noqa: E402
from testbed.leftovers import stop_all  # noqa: E402

HOST = "h1"
CPUS = 2
ECHOES = 200
TURNS = 3
ROUND_TRIPS_S = (0.0, 0.05, 0.15)
#: Away as far as that, at least so much of the rate next door.
SHARE = {0.05: 0.5}


def echo_rate(hosts: Hosts, round_trip_s: float, count: int = ECHOES, turns: int = TURNS) -> float:
    """Jobs per second from typing the command until all output is here: the median of some turns.

    The machine is connected to before, and has the agent.
    """
    with _connected(hosts, round_trip_s) as (home, env):
        _batch(home, env, 20, "warm")
        return median(_batch(home, env, count, f"echoes{turn}") for turn in range(turns))


@contextlib.contextmanager
def _connected(hosts: Hosts, round_trip_s: float) -> Iterator[tuple[Path, dict[str, str]]]:
    """An Engine of its own, with one machine at a distance."""
    home = folder("tow-far-echo-")
    (home / "empty").mkdir()
    near = hosts.ssh_config
    config = far_config(near, round_trip_s, home) if round_trip_s else near
    env = measured_environment() | {
        "TOWLINE_HOME": str(home),
        "TOWLINE_SSH_CONFIG": str(config),
        "NO_COLOR": "1",
    }
    machine = f'{{ ssh = "{HOST}", cpus = {CPUS} }}'
    (home / "config.toml").write_text(f"[clusters.lab]\nmachines = [{machine}]\n")
    try:
        yield home, env
    finally:
        stop_all(home)
        hosts.wipe()
        shutil.rmtree(home)


def _batch(home: Path, env: dict[str, str], count: int, name: str) -> float:
    lines = home / name
    lines.write_text("".join(f"echo {number}\n" for number in range(count)))
    words = [str(TOW), "batch", "-c", "lab", str(lines)]
    began = time.perf_counter()
    ran = subprocess.run(
        words, cwd=home / "empty", env=env, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=120,
    )  # fmt: skip
    took = time.perf_counter() - began
    if ran.returncode:
        raise RuntimeError(f"tow batch failed:\n{ran.stdout}{ran.stderr}")
    for number in range(count):
        printed = (home / "empty/job_results" / f"{name}.{number + 1}.out").read_text()
        if printed != f"{number}\n":
            raise RuntimeError(f"line {number + 1} printed {printed!r}")
    return count / took


def verdicts(rates: dict[float, float]) -> list[Verdict]:
    """What the rates, by round trip in seconds, have to be."""
    return [
        Verdict(
            f"{ECHOES} echo, {seconds * 1000:.0f} ms away / next door",
            rates[seconds] / rates[0.0],
            "x",
            above=share,
        )
        for seconds, share in SHARE.items()
    ]


def main(count: int = ECHOES, turns: int = TURNS) -> list[Verdict]:
    """Measure at every distance."""
    print(f"far away: {count} `echo` on one machine of {CPUS} CPUs")
    rates = {}
    with rested_disk(), Hosts(count=1, inner=False) as hosts:
        for seconds in ROUND_TRIPS_S:
            rates[seconds] = echo_rate(hosts, seconds, count, turns)
            print(f"  {seconds * 1000:6.0f} ms: {rates[seconds]:.0f} jobs/s", flush=True)
    return verdicts(rates)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=ECHOES)
    parser.add_argument("turns", nargs="?", type=int, default=TURNS)
    chosen = parser.parse_args()
    os.chdir(ROOT)
    for verdict in main(chosen.count, chosen.turns):
        print(verdict)
