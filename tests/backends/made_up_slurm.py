"""The commands of a Slurm, made up: jobs are programs of this machine, on one node called `n1`.

`install(folder)` puts sbatch, squeue, scancel, scontrol, sacct and srun into a folder for the PATH.
Each is this file; what the controller knows is in files beside them, one folder for each job.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = ("sbatch", "squeue", "scancel", "scontrol", "sacct", "srun")
_NODE = "NodeName=n1 CPUTot=8 CPUAlloc=0 RealMemory=16000 AllocMem=0 State=IDLE Partitions=main"


def install(folder: Path) -> Path:
    """Make the commands; the folder that they are in."""
    place = folder / "slurm"
    (place / "jobs").mkdir(parents=True)
    for name in COMMANDS:
        (place / name).write_text(f"#!{sys.executable} -I\n{Path(__file__).read_text()}")
        (place / name).chmod(0o755)
    return place


def stop_jobs(folder: Path) -> None:
    """End whatever still runs."""
    for job in Jobs(folder / "slurm" / "jobs").all():
        job.end("CANCELLED", signal.SIGKILL)


class Entry:
    """One job: a folder with what it is and how it stands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.number = folder.name

    def fact(self, name: str) -> str:
        try:
            return (self.folder / name).read_text()
        except OSError:
            return ""

    def note(self, name: str, text: str) -> None:
        beside = self.folder / f".{name}.{os.getpid()}"
        beside.write_text(text)
        beside.rename(self.folder / name)

    def state(self) -> str:
        return self.fact("state") or "RUNNING"

    def end(self, state: str, number: int = signal.SIGTERM) -> None:
        """The whole group gets the signal, as the step daemons of nodes would give it."""
        if self.state() != "RUNNING":
            return
        self.note("state", state)
        for one in self.fact("group").split():
            try:
                os.killpg(int(one), number)
            except ProcessLookupError:
                pass


class Jobs:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def all(self) -> list[Entry]:
        places = [one for one in self.folder.glob("*") if one.name.isdigit()]
        return [Entry(one) for one in sorted(places, key=lambda place: int(place.name))]

    def new(self) -> Entry:
        """Numbers are given out by whoever makes the folder first."""
        number = 1
        while True:
            try:
                (self.folder / str(number)).mkdir()
                return Entry(self.folder / str(number))
            except FileExistsError:
                number += 1


def option(words: list[str], name: str) -> str:
    return next((w.split("=", 1)[1] for w in words if w.startswith(f"--{name}=")), "")


def sbatch(jobs: Jobs, words: list[str]) -> int:
    if "--version" in words:
        print("slurm 23.02.0")
        return 0
    if "--test-only" in words:
        return 0
    at = next(i for i, word in enumerate(words) if not word.startswith("-"))
    entry = jobs.new()
    entry.note("comment", option(words, "comment"))
    entry.note("chdir", option(words, "chdir"))
    keeper = [sys.executable, "-I", __file__, "keep", str(entry.folder), *words[at:]]
    output = open(Path(option(words, "chdir")) / option(words, "output"), "ab")
    subprocess.Popen(
        keeper, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
    )
    print(entry.number)
    return 0


def keep(folder: str, words: list[str]) -> int:
    """Run the script of a job and note how it ended, as the daemon of a node does."""
    entry = Entry(Path(folder))
    environ = dict(os.environ, SLURM_JOB_ID=entry.number, SLURMD_NODENAME="n1")
    run = subprocess.Popen(
        ["/bin/sh", *words], cwd=entry.fact("chdir"), env=environ, start_new_session=True
    )
    entry.note("group", str(run.pid))
    if entry.state() != "RUNNING":
        os.killpg(run.pid, signal.SIGTERM)
    code = run.wait()
    if entry.state() == "RUNNING":
        entry.note("state", "COMPLETED" if code == 0 else "FAILED")
    return 0


def squeue(jobs: Jobs, words: list[str]) -> int:
    for job in jobs.all():
        if comment := job.fact("comment"):
            place = job.fact("chdir")
            print(f"{job.number}|{job.state()}|None|N/A|n1|main|(null)|UNLIMITED|{place}|{comment}")
    return 0


def scancel(jobs: Jobs, words: list[str]) -> int:
    numbers = {one for word in words for one in word.split(",")}
    for job in jobs.all():
        if job.number in numbers:
            job.end("CANCELLED")
    return 0


def scontrol(jobs: Jobs, words: list[str]) -> int:
    if "node" in words:
        print(_NODE)
    elif "config" in words:
        now = time.strftime("%Y-%m-%dT%H:%M:%S")
        print(f"Configuration data as of {now}\nBOOT_TIME = 2020-01-01T00:00:00")
        print("MinJobAge = 300 sec\nMaxArraySize = 1001")
    elif "job" in words:
        [job] = [one for one in jobs.all() if one.number == words[-1]]
        print(f"JobId={job.number} JobState={job.state()} ExitCode=0:0 NodeList=n1")
    return 0


def srun(jobs: Jobs, words: list[str]) -> int:
    """So many processes with their numbers, all on the one node."""
    count = int(option(words, "ntasks") or 1)
    command = words[next(i for i, word in enumerate(words) if not word.startswith("-")) :]
    ranks = [
        subprocess.Popen(command, env=dict(os.environ, SLURM_PROCID=str(n), SLURM_LOCALID=str(n)))
        for n in range(count)
    ]
    return max(abs(one.wait()) for one in ranks)


def main() -> int:
    name, words = Path(sys.argv[0]).name, sys.argv[1:]
    if words[:1] == ["keep"]:
        return keep(words[1], words[2:])
    if name == "sacct":
        print("Slurm accounting storage is disabled", file=sys.stderr)
        return 1
    jobs = Jobs(Path(__file__).resolve().parent / "jobs")
    commands = {"sbatch": sbatch, "squeue": squeue, "scancel": scancel}
    commands |= {"scontrol": scontrol, "srun": srun}
    return commands[name](jobs, words)


if __name__ == "__main__":
    sys.exit(main())
