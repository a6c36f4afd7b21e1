"""Hydra sweeps of trivial runs, two at a time on this machine, beside other launchers.

Every launcher is typed as its users type it, in turns; what counts is from the start of the
program to its end. Towline's Engine runs already, as it does for whoever used it lately.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lab import environment, measured_environment
from rested_disk import folder, rested_disk
from verdict import Verdict

from testbed.leftovers import stop_all

RUNS = 200
TURNS = 3
LEAST = 5.0
APPLICATION = """\
import hydra


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(config):
    return config.x


if __name__ == "__main__":
    main()
"""
TOWLINE = ["hydra/launcher=towline", "hydra.launcher.cluster=local"]
LAUNCHERS = {
    "towline": [*TOWLINE, "hydra.launcher.parallel_runs_per_node=2"],
    "basic": [],
    "joblib": ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"],
    "clusterduck's way": ["hydra/launcher=clusterduck_way"],
    # It has no number of runs at a time: all begin at once.
    "submitit, all at once": ["hydra/launcher=submitit_local"],
}
#: What takes this long per run needs no second look.
ONCE = ("submitit, all at once",)


def swept(place: Path, words: list[str], runs: int) -> float:
    """The seconds of one sweep; all of its runs must have left their files."""
    out = Path(tempfile.mkdtemp(dir=place.parent, prefix="out-"))
    command = [sys.executable, "app.py", "-m", f"x=range({runs})", f"hydra.sweep.dir={out}"]
    began = time.perf_counter()
    done = subprocess.run([*command, *words], cwd=place, capture_output=True, text=True)
    took = time.perf_counter() - began
    left = len(list(out.glob("*/.hydra/hydra.yaml")))
    if done.returncode or left != runs:
        raise RuntimeError(f"{words}: {left} of {runs} runs\n{done.stdout}{done.stderr}")
    shutil.rmtree(out)
    return took


def main(runs: int = RUNS) -> list[Verdict]:
    with rested_disk():
        home = folder("sweeps-")
        place = home / "project"
        (place / "conf").mkdir(parents=True)
        (place / "conf" / "config.yaml").write_text("x: 1\n")
        (place / "app.py").write_text(APPLICATION)
        variables = measured_environment() | {"TOWLINE_HOME": str(home / "tow")}
        (home / "tow").mkdir()
        variables["PYTHONPATH"] = str(Path(__file__).parent / "peers")
        try:
            with environment(variables):
                return compared(place, runs)
        finally:
            stop_all(home / "tow")


def compared(place: Path, runs: int) -> list[Verdict]:
    for words in LAUNCHERS.values():
        # Bytecode is written, and the Engine is started.
        swept(place, words, 2)
    seen: dict[str, list[float]] = {name: [] for name in LAUNCHERS}
    for turn in range(TURNS):
        for name, words in LAUNCHERS.items():
            if not (turn and name in ONCE):
                seen[name].append(runs / swept(place, words, runs))
    rates = {name: statistics.median(found) for name, found in seen.items()}
    for name, rate in rates.items():
        span = f"{min(seen[name]):.1f} to {max(seen[name]):.1f}"
        print(f"{name:24} {rate:7.1f} runs/s   ({span})", flush=True)
    ours = rates.pop("towline")
    fastest = max(rates, key=lambda name: rates[name])
    return [Verdict(f"{runs} runs of a sweep / {fastest}", ours / rates[fastest], "x", above=LEAST)]


if __name__ == "__main__":
    print(*main(int(os.environ.get("RUNS", RUNS))), sep="\n")
