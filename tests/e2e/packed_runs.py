"""Runs of a pack that write down what they were given, and what is to hold for all of them."""

import json
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

from testbed.tow import Tow

#: Writes down when and with what it ran; some of them end otherwise than others.
PROGRAM = """\
import json, os, signal, socket, sys, time
number, seconds = int(sys.argv[1]), float(sys.argv[2])
entry = os.environ.get("SLURM_JOB_ID") or os.environ.get("JOB_ID") or ""
told = {
    "number": number, "began": time.time(), "cpus": sorted(os.sched_getaffinity(0)),
    "cuda": os.environ.get("CUDA_VISIBLE_DEVICES"), "tmp": os.environ.get("TMPDIR"),
    "host": socket.gethostname(), "entry": entry, "tries": os.environ["TOWLINE_KEY"],
    "ranks": [name for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE") if name in os.environ],
    "own_tmp": os.listdir(os.environ["TMPDIR"]) == [] and os.access(os.environ["TMPDIR"], os.W_OK),
}
folder = os.path.expanduser("~/ran")
os.makedirs(folder, exist_ok=True)
path = "%s/%d.%s" % (folder, number, os.environ["TOWLINE_KEY"])
with open(path + ".new", "w") as file:
    json.dump(told, file)
os.link(path + ".new", path)  # whole at once, and never twice
os.unlink(path + ".new")
print("run", number)
with open("result", "w") as file:
    file.write("of %d" % number)
how = sys.argv[3] if len(sys.argv) > 3 else ""
if how:
    os.kill(os.getpid(), getattr(signal, how))
time.sleep(seconds)
told["ended"] = time.time()
with open(path + ".new", "w") as file:
    json.dump(told, file)
os.rename(path + ".new", path)
"""


def write_runs(tow: Tow, count: int, seconds: float = 0.2, **how: str) -> str:
    """The file of commands; `how` names the signal by which a run ends itself, as `run_7`."""
    (tow.folder / "run.py").write_text(PROGRAM)
    lines = [
        f"python3 run.py {number} {seconds} {how.get(f'run_{number}', '')}".strip()
        for number in range(1, count + 1)
    ]
    (tow.folder / "runs.txt").write_text("\n".join(lines) + "\n")
    return "runs.txt"


def runs_in(home: Path) -> list[dict[str, Any]]:
    """What ran, each time that it did."""
    folder = home / "ran"
    names = sorted(folder.iterdir()) if folder.is_dir() else []
    return [json.loads(path.read_text()) for path in names if path.suffix != ".new"]


def numbers_of(runs: Iterable[dict[str, Any]]) -> list[int]:
    return sorted(run["number"] for run in runs)


def overlapping(runs: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Pairs of runs that ran on one host at the same time."""
    whole = [run for run in runs if "ended" in run]
    return [
        (one, other)
        for one, other in combinations(whole, 2)
        if one["host"] == other["host"]
        and one["began"] < other["ended"]
        and other["began"] < one["ended"]
    ]


def most_at_a_time(runs: list[dict[str, Any]]) -> int:
    """Of one host."""
    whole = [run for run in runs if "ended" in run]
    return max(
        sum(
            other["host"] == run["host"] and other["began"] <= run["began"] < other["ended"]
            for other in whole
        )
        for run in whole
    )


def check_shares(runs: list[dict[str, Any]], cpus: bool, own_tmp: bool = True) -> None:
    """Each GPU, and where there are enough each CPU, is one run's at a time; so is TMPDIR."""
    pairs = overlapping(runs)
    assert pairs
    for one, other in pairs:
        assert one["cuda"] and not set(one["cuda"].split(",")) & set(other["cuda"].split(","))
        assert one["tmp"] != other["tmp"] or not own_tmp
        if cpus:
            assert not set(one["cpus"]) & set(other["cpus"]), (one, other)
    for run in runs:
        assert run["own_tmp"] or not own_tmp
        assert run["ranks"] == []
