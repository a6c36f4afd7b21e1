"""A cluster of test hosts as a user configures it, and the questions the tests ask of jobs."""

import subprocess
from pathlib import Path
from typing import IO, Any

from testbed.tow import Tow
from testbed.waiting import wait_until

FINAL = ("done", "failed", "stopped", "lost", "skipped")
ENGINE = "[engine]\nprobe_every_s = 0.5\ngrace_s = 2\n"


def configure(tow: Tow, *hosts: str, cluster: str = "", more: str = "", cpus: int = 32) -> None:
    """Make `hosts` the cluster `lab`, with CPUs enough for all that shares this machine."""
    machines = ", ".join(f'{{ ssh = "{host}", cpus = {cpus} }}' for host in hosts)
    lab = f"[clusters.lab]\nmachines = [{machines}]\n{cluster}\n" if hosts else ""
    (tow.home / "config.toml").write_text(f"{ENGINE}{lab}{more}\n")


def submit(tow: Tow, *words: str, **how: Any) -> int:
    """Submit a job without following it; its number."""
    job: int = tow.json("run", "-d", *words, **how)["id"]
    return job


def show(tow: Tow, job: int) -> dict[str, Any]:
    found: dict[str, Any] = tow.json("show", str(job))
    return found


def wait_for(tow: Tow, job: int, *states: str, timeout: float = 30) -> dict[str, Any]:
    """The job, once it is in one of these states."""

    def reached() -> dict[str, Any] | None:
        found = show(tow, job)
        return found if found["state"] in states else None

    return wait_until(reached, timeout, on_timeout=lambda: show(tow, job), every=0.1)


def ended(tow: Tow, job: int, timeout: float = 30) -> dict[str, Any]:
    return wait_for(tow, job, *FINAL, timeout=timeout)


def read_line_with(process: "subprocess.Popen[str]", text: str) -> str:
    """The next line of its stdout that contains `text`; the test's time limit bounds the wait."""
    return _line_with(process.stdout, text)


def told(process: "subprocess.Popen[str]", text: str) -> str:
    """The next line of its notes that contains `text`; the test's time limit bounds the wait."""
    return _line_with(process.stderr, text)


def _line_with(stream: IO[str] | None, text: str) -> str:
    assert stream is not None
    # Not `for line in`: that reads ahead.
    while line := stream.readline():
        if text in line:
            return line
    raise AssertionError(f"it ended without {text!r}")


def raw(
    tow: Tow, *words: str | bytes, timeout: float = 60, folder: Path | None = None
) -> "subprocess.CompletedProcess[bytes]":
    """`tow` with arguments and output that need not be text."""
    return subprocess.run(
        [*tow.program, *words],
        cwd=folder or tow.folder,
        env=tow.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout,
    )


def complaint(done: "subprocess.CompletedProcess[str]", code: int) -> str:
    """What `tow` complained about; it must be short, for people, and with this exit code."""
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr + done.stdout, done.stderr
    assert done.stderr.startswith("tow: "), done.stderr
    assert len(done.stderr.splitlines()) <= 4, done.stderr
    return done.stderr


def engine_pid(tow: Tow) -> int:
    return int((tow.home / "engine.pid").read_text().split()[0])


def resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
