"""Batches: a thousand `echo` whose output comes home, and a hundred thousand `true`.

Beside the thousand, on the same work: GNU parallel over open connections, and HyperQueue's local
cluster that writes to files.
"""

import argparse
import shutil
import subprocess
import time
from statistics import median
from typing import Any

from lab import CPUS, MACHINES, Lab, a_lab, measured_environment
from rested_disk import folder
from throughput import hyperqueue
from verdict import Verdict

ECHOES = 1_000
#: GNU parallel starts some tens per second: so many are enough to know its rate.
PARALLEL_ECHOES = 300
MANY = 100_000
TURNS = 3
ACKNOWLEDGED_S = 5.0
#: How much the Engine's memory may grow, and the last thousand take longer than the first.
MEMORY_MB = 200
SLOWER = 1.5


def towline(lab: Lab, count: int, name: str) -> float:
    """Jobs per second from typing the command until all output is in `job_results`."""
    lines = "".join(f"echo {number}\n" for number in range(count))
    # Beside the folder, so that jobs have as few files as those of the others: none.
    (lab.home / name).write_text(lines)
    began = time.perf_counter()
    lab.tow("batch", "-c", "lab", str(lab.home / name))
    took = time.perf_counter() - began
    for number in range(count):
        printed = (lab.folder / "job_results" / f"{name}.{number + 1}.out").read_text()
        if printed != f"{number}\n":
            raise RuntimeError(f"line {number + 1} printed {printed!r}")
    return count / took


def gnu_parallel(lab: Lab, count: int) -> float:
    """Echoes per second of GNU parallel over open connections, output in files."""
    program = shutil.which("parallel")
    if program is None:
        raise SystemExit("batch: there is no GNU parallel to compare with; install it")
    place = folder("par-")
    ssh = f"ssh -F {lab.hosts.ssh_config} -o ControlMaster=auto -o ControlPath={place}/%n"
    logins = [f"--sshlogin={CPUS}/{ssh} {name}" for name in MACHINES]
    words = [program, *logins, f"--results={place}/results", "echo", ":::"]
    env = measured_environment() | {"HOME": str(place), "PARALLEL_HOME": str(place)}
    try:
        for name in MACHINES:
            master = [*ssh.split(), "-o", "ControlPersist=60", name, "true"]
            subprocess.run(master, check=True, timeout=30)
        numbers = [str(number) for number in range(count)]
        began = time.perf_counter()
        subprocess.run([*words, *numbers], env=env, check=True, timeout=90, capture_output=True)
        return count / (time.perf_counter() - began)
    finally:
        for name in MACHINES:
            subprocess.run([*ssh.split(), "-O", "exit", name], capture_output=True)


def many(lab: Lab, count: int) -> list[Verdict]:
    """So many lines `true`: how soon they are acknowledged, memory, and whether they slow down."""
    base = {"argv": [], "cwd": str(lab.folder), "cluster": "lab", "results": False}
    body = {"name": "many", "base": base, "lines": [{"argv": ["true"]}] * count}
    before = lab.peak_mb()
    began = time.perf_counter()
    batch = lab.session.call("POST", "/v1/batches", body)["batch"]
    acknowledged = time.perf_counter() - began
    after_submission = lab.peak_mb()
    ends = watch(lab, batch)
    part = count // 20
    first, last = ends[part], ends[count] - ends[count - part]
    print(
        f"  {count:,} lines: acknowledged after {acknowledged:.2f} s, {count / ends[count]:.0f}/s"
    )
    print(f"  first {part:,} in {first:.1f} s, last in {last:.1f} s")
    peak = lab.peak_mb()
    print(f"  Engine: {before:.0f} MB before, {after_submission:.0f} accepted, {peak:.0f} at most")
    return [
        Verdict(f"{count:,} lines acknowledged", acknowledged, "s", below=ACKNOWLEDGED_S),
        Verdict("Engine's peak memory, whole batch", peak, "MB", below=MEMORY_MB),
        Verdict(f"last {part:,} / first {part:,}", last / first, "x", below=SLOWER),
    ]


def watch(lab: Lab, batch: dict[str, Any]) -> dict[int, float]:
    """Seconds until so many jobs had ended, for twentieths of the whole."""
    began = time.perf_counter()
    part, count = batch["count"] // 20, batch["count"]
    ends: dict[int, float] = {}
    while count not in ends:
        time.sleep(0.2)
        view = lab.session.call("GET", f"/v1/batches/{batch['name']}?limit=1")["batch"]
        if wrong := sum(view["counts"][state] for state in ("failed", "lost", "stopped")):
            raise RuntimeError(f"{wrong} jobs did not succeed")
        done = view["counts"]["done"]
        for reached in range(part, done + 1, part):
            ends.setdefault(reached, time.perf_counter() - began)
    return ends


def main(echoes: int = ECHOES, lines: int = MANY) -> list[Verdict]:
    """Measure all on the same work, one after the other, in this run."""
    print(f"batch: {echoes:,} `echo`, {len(MACHINES)} machines of {CPUS} CPUs, output to files")
    with a_lab() as lab:
        towline(lab, 100, "warm")
        # In turns, so that noise hits both alike.
        turns = [
            (towline(lab, echoes, f"echoes{turn}"), hyperqueue(echoes, folder("hq-out-")))
            for turn in range(TURNS)
        ]
        ours, theirs = (median(rates) for rates in zip(*turns, strict=True))
        parallel = gnu_parallel(lab, PARALLEL_ECHOES)
        bare = hyperqueue(echoes, folder("hq-out-"), shell=False)
        peak = lab.peak_mb()
        print(f"  towline {ours:.0f}/s, HyperQueue {theirs:.0f}/s, GNU parallel {parallel:.0f}/s")
        print(f"  HyperQueue, if it is given the programs and not the lines: {bare:.0f}/s")
        print("  each:", ", ".join(f"{mine:.0f} : {other:.0f}" for mine, other in turns))
        print(f"  Engine {peak:.0f} MB")
        found = many(lab, lines) if lines else []
    return [
        Verdict("1,000 echo / GNU parallel", ours / parallel, "x", above=8.0),
        Verdict("1,000 echo / HyperQueue", ours / theirs, "x", above=1.1),
        *found,
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("echoes", nargs="?", type=int, default=ECHOES)
    parser.add_argument("lines", nargs="?", type=int, default=MANY)
    chosen = parser.parse_args()
    for verdict in main(chosen.echoes, chosen.lines):
        print(verdict)
