"""How long a user waits: `tow status`, and `tow run true` beside `ssh host true`."""

import argparse
import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from lab import TOW, Lab, a_lab
from rested_disk import folder
from verdict import Verdict

ROUNDS = 30
STATUS_MS = 150
TIMES = 3
HOST = "h1"


def elapsed_ms(lab: Lab, argv: Sequence[str]) -> float:
    """From the start of a program to its end; it must succeed."""
    began = time.perf_counter()
    subprocess.run(
        argv,
        cwd=lab.folder,
        env=lab.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=True,
    )
    return 1000 * (time.perf_counter() - began)


def first_output_ms(lab: Lab, argv: Sequence[str]) -> float:
    """From the start of a program to the first byte that it prints."""
    began = time.perf_counter()
    with subprocess.Popen(
        argv,
        cwd=lab.folder,
        env=lab.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        if not process.stdout.read(1):
            raise RuntimeError(f"{' '.join(argv)} printed nothing")
        took = 1000 * (time.perf_counter() - began)
        process.stdout.read()
    return took


@contextlib.contextmanager
def open_connection(lab: Lab) -> Iterator[list[str]]:
    """The words that run a command on the host over a connection that is open already."""
    place = folder("mux-")
    ssh = ["ssh", "-F", str(lab.hosts.ssh_config), "-o", f"ControlPath={place}/%n"]
    master = [*ssh, "-o", "ControlMaster=yes", "-o", "ControlPersist=yes", "-fN", HOST]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    # It stays in the background and would hold a pipe open.
    subprocess.run(master, check=True, timeout=30, stderr=subprocess.DEVNULL, **quiet)
    try:
        yield [*ssh, HOST]
    finally:
        subprocess.run([*ssh, "-O", "exit", HOST], capture_output=True, timeout=30)


def interleaved(measures: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The median of each, taken in turns, so that noise hits all alike."""
    for measure in measures.values():
        measure()
    found: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            found[name].append(measure())
    for name, values in found.items():
        low, high = min(values), max(values)
        print(f"  {name:34} {statistics.median(values):7.1f} ms  ({low:.1f} to {high:.1f})")
    return {name: statistics.median(values) for name, values in found.items()}


def main(rounds: int = ROUNDS) -> list[Verdict]:
    """Measure all on one warm Engine with open connections."""
    print(f"latency: medians of {rounds}, in turns")
    run = [str(TOW), "run", "-c", "lab"]
    with a_lab() as lab, open_connection(lab) as ssh:
        medians = interleaved(
            {
                "tow status": lambda: elapsed_ms(lab, [str(TOW), "status"]),
                "tow run true": lambda: elapsed_ms(lab, [*run, "true"]),
                "ssh true, connection open": lambda: elapsed_ms(lab, [*ssh, "true"]),
                "python -c pass": lambda: elapsed_ms(lab, [sys.executable, "-c", "pass"]),
                "tow run echo, first output": lambda: first_output_ms(lab, [*run, "echo", "a"]),
                "ssh echo, first output": lambda: first_output_ms(lab, [*ssh, "echo", "a"]),
            },
            rounds,
        )
    ran, ssh_ms = medians["tow run true"], medians["ssh true, connection open"]
    python_ms = medians["python -c pass"]
    strict, lenient = TIMES * ssh_ms + python_ms, TIMES * (ssh_ms + python_ms)
    return [
        Verdict("tow status", medians["tow status"], "ms", below=STATUS_MS),
        Verdict("tow run true / (3 ssh + python)", ran / strict, "x", below=1),
        Verdict("tow run true / 3 (ssh + python)", ran / lenient, "x", below=1),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", nargs="?", type=int, default=ROUNDS)
    for verdict in main(parser.parse_args().rounds):
        print(verdict)
