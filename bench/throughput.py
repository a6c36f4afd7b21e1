"""Many jobs `true` at once: Towline over four ssh hosts, beside HyperQueue and a bare loop."""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from lab import CPUS, MACHINES, Lab, a_lab, measured_environment
from rested_disk import folder, rested_disk
from verdict import Verdict

JOBS = 10_000
BARE_JOBS = 2_000
PARALLEL_JOBS = 200
MEMORY_MB = 200
HERE = Path(__file__).resolve().parent


def towline(lab: Lab, count: int) -> float:
    """Jobs per second from the submission until the last has ended, all of them right."""
    began = time.perf_counter()
    ids = lab.submit(count)
    acknowledged = time.perf_counter()
    lab.await_idle()
    took = time.perf_counter() - began
    check_all_done(lab, ids)
    print(f"  towline: {count:,} jobs acknowledged after {acknowledged - began:.2f} s")
    return count / took


def check_all_done(lab: Lab, ids: list[int]) -> None:
    """Raise unless each of these jobs is recorded as done with exit code 0."""
    found = lab.session.call("GET", "/v1/jobs?all=1")["jobs"]
    done = {job["id"] for job in found if job["state"] == "done" and job["exit_code"] == 0}
    if wrong := [number for number in ids if number not in done]:
        raise RuntimeError(f"{len(wrong)} of {len(ids)} jobs are not done, such as job {wrong[0]}")


def hyperqueue(count: int, output: Path | None = None, shell: bool = True) -> float:
    """Jobs per second of HyperQueue's local cluster, with as many workers as we have machines.

    With `output`, they are `echo`, by way of a shell or not, and what they print is kept there.
    """
    words = [str(HERE / "hyperqueue_peer.py"), str(count), str(len(MACHINES)), str(CPUS)]
    words += [str(output)] if output else []
    words += [] if shell else ["--no-shell"]
    ran = subprocess.run(
        [sys.executable, *words],
        # Its workers leave folders behind.
        env=measured_environment() | {"TMPDIR": str(folder("hq-"))},
        capture_output=True,
        text=True,
        timeout=300,
    )
    if ran.returncode:
        raise RuntimeError(f"HyperQueue failed:\n{ran.stdout}{ran.stderr}")
    return float(ran.stdout.split()[-1])


def bare_loop(count: int) -> float:
    """Programs per second, started and waited for one after the other."""
    began = time.perf_counter()
    for _ in range(count):
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
    return count / (time.perf_counter() - began)


def gnu_parallel(lab: Lab, count: int) -> float | None:
    """Jobs per second of GNU parallel over open connections; None where it is not installed."""
    program = shutil.which("parallel")
    if program is None:
        return None
    place = folder("par-")
    ssh = f"ssh -F {lab.hosts.ssh_config} -o ControlMaster=auto -o ControlPath={place}/%n"
    logins = [f"--sshlogin={CPUS}/{ssh} {name}" for name in MACHINES]
    words = [program, *logins, "true", ":::"]
    env = measured_environment() | {"HOME": str(place), "PARALLEL_HOME": str(place)}
    try:
        for name in MACHINES:
            master = [*ssh.split(), "-o", "ControlPersist=60", name, "true"]
            subprocess.run(master, check=True, timeout=30)
        began = time.perf_counter()
        numbers = [str(number) for number in range(count)]
        subprocess.run([*words, *numbers], env=env, check=True, timeout=60, capture_output=True)
        return count / (time.perf_counter() - began)
    finally:
        for name in MACHINES:
            subprocess.run([*ssh.split(), "-O", "exit", name], capture_output=True)


def main(count: int = JOBS) -> list[Verdict]:
    """Measure all on the same work, one after the other, in this run."""
    print(f"throughput: {count:,} jobs `true`, {len(MACHINES)} machines of {CPUS} CPUs")
    with rested_disk():
        with a_lab() as lab:
            before = lab.peak_mb()
            bare = [bare_loop(BARE_JOBS)]
            ours = towline(lab, count)
            memory = lab.peak_mb()
            parallel = gnu_parallel(lab, PARALLEL_JOBS)
        bare.append(bare_loop(BARE_JOBS))
        theirs = hyperqueue(count)
    bare.append(bare_loop(BARE_JOBS))
    loop = sorted(bare)[1]
    rates = {"towline": ours, "HyperQueue": theirs, "bare loop": loop, "GNU parallel": parallel}
    for name, rate in rates.items():
        print(f"  {name:12} {rate:>8,.0f} jobs/s" if rate else f"  {name:12} not installed")
    print(f"  Engine: {memory:.0f} MB at most ({before:.0f} MB before)")
    return [
        Verdict("throughput / HyperQueue", ours / theirs, "x", above=1.0),
        Verdict("throughput / bare loop", ours / loop, "x", above=1 / 3),
        Verdict("Engine's peak memory", memory, "MB", below=MEMORY_MB),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="?", type=int, default=JOBS)
    for verdict in main(parser.parse_args().jobs):
        print(verdict)
