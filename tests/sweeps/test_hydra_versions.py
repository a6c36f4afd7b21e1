"""The release of Hydra that comes next: its own suites once more, and searches by Optuna."""

import contextlib
import fcntl
import os
import shutil
import site
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.tow import Tow

NEXT = "1.4.0rc3"
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="module")
def next_python() -> Path:
    """A Python with that Hydra, and everything else as it is here; made once."""
    place = Path(sys.prefix) / f"hydra-{NEXT}"
    with open(f"{place}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "ready").exists():
            shutil.rmtree(place, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
            pip = [str(place / "bin" / "python"), "-m", "pip", "install", "-q", "--pre"]
            wanted = [f"hydra-core=={NEXT}", f"hydra-optuna-sweeper=={NEXT}"]
            subprocess.run([*pip, *wanted], check=True)
            [packages] = place.glob("lib/python*/site-packages")
            # What is not there is found here, but for what is only found by way of such a file.
            (packages / "others.pth").write_text(f"{ROOT / 'src'}\n{site.getsitepackages()[0]}\n")
            (place / "ready").touch()
    return place / "bin" / "python"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_hydras_suites_hold_with_its_next_release(next_python: Path) -> None:
    told = "import hydra; print(hydra.__version__)"
    asked = subprocess.run([next_python, "-c", told], check=True, capture_output=True, text=True)
    assert asked.stdout.strip() == NEXT
    suites = str(HERE / "test_hydra_suites.py")
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [next_python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", suites],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout and "failed" not in done.stdout


def typed(
    folder: Path, env: dict[str, str], *command: str | Path
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=400)


APPLICATION = """
import hydra
from hydra.core.hydra_config import HydraConfig

@hydra.main(config_path=None)
def main(config):
    if HydraConfig.get().job.num == 4:
        raise ValueError("this does not converge")
    return (config.x - 2) ** 2

if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_search_by_optuna_of_twelve_trials_goes_on_when_one_fails(
    next_python: Path, tow: Tow
) -> None:
    (tow.folder / "search.py").write_text(APPLICATION)
    words = ["hydra/launcher=towline", "hydra.launcher.cluster=local", "hydra/sweeper=optuna"]
    words += ["hydra.launcher.parallel_runs_per_node=3", "hydra.sweeper.n_jobs=3"]
    words += ["hydra.sweeper.n_trials=12", "hydra.sweeper.max_failure_rate=0.5"]
    words += ["hydra.sweeper.storage=sqlite:///study.db", "hydra.sweeper.study_name=search"]
    command = [next_python, "search.py", "-m", "hydra.sweep.dir=out", *words]
    done = typed(tow.folder, tow.env, *command, "+x=interval(-5, 5)")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "run #4 [+x=" in done.stdout + done.stderr
    assert "this does not converge" in done.stdout + done.stderr
    told = "SELECT number, state, value, param_value FROM trials NATURAL JOIN trial_params"
    with contextlib.closing(sqlite3.connect(tow.folder / "study.db")) as study:
        rows = study.execute(f"{told} LEFT JOIN trial_values USING (trial_id)").fetchall()
    assert len(rows) == 12
    for number, state, value, x in rows:
        # Each trial has the value of its own parameters.
        assert state == ("FAIL" if number == 4 else "COMPLETE")
        assert number == 4 or abs(value - (x - 2) ** 2) < 1e-9
    assert "best_value" in (tow.folder / "out" / "optimization_results.yaml").read_text()
    # Nobody can search without the values.
    words += ["hydra.launcher.wait_for_completion=false", "+x=interval(-5, 5)"]
    refused = typed(tow.folder, tow.env, next_python, "search.py", "-m", *words)
    assert refused.returncode != 0 and "wants the values of its runs" in refused.stderr
    # The example's own search.
    example = tow.folder / "example"
    shutil.copytree(ROOT / "examples" / "hydra", example)
    few = ["hydra.sweeper.n_trials=2", "seconds=0", "hydra.sweep.dir=out"]
    search = ["train.py", "-m", "+platform=slurm_debug", "+optim=optuna", *few]
    done = typed(example, tow.env, next_python, *search)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (example / "out" / "1" / "result.json").exists()


STREAM = """
import os, time
from pathlib import Path
import hydra, towline

@hydra.main(version_base=None, config_path=None)
def main(config):
    others = Path(os.environ["OTHERS"])
    towline.report(config.x, 0)
    if config.x > 90:
        # Until it is pruned.
        time.sleep(1000)
    if config.x == 7:
        # The others begin and end one after the other while this one runs.
        while len(list(others.iterdir())) < 4:
            time.sleep(0.1)
    if config.x == 9:
        raise ValueError("this does not converge")
    (others / f"{config.x}-{time.time()}").touch()
    return config.x

if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_search_asks_for_the_next_trial_as_each_ends_and_prunes(
    next_python: Path, tow: Tow
) -> None:
    (tow.folder / "search.py").write_text(STREAM)
    others = tow.folder.parent / "others"
    others.mkdir()
    words = ["hydra/launcher=towline", "hydra.launcher.cluster=local"]
    words += ["hydra/sweeper=towline_optuna", "hydra.sweeper.storage=sqlite:///study.db"]
    words += ["hydra.sweeper.study_name=search", "hydra.sweeper.max_failure_rate=0.5"]
    grid = "{_target_: optuna.samplers.GridSampler, search_space: {+x: [7, 1, 2, 3, 4, 9, 95]}}"
    pruner = "{_target_: optuna.pruners.ThresholdPruner, upper: 90}"
    words += [f"hydra.sweeper.sampler={grid}", f"hydra.sweeper.pruner={pruner}"]
    command = [next_python, "search.py", "-m", "hydra.sweep.dir=out", *words]
    env = {**tow.env, "OTHERS": str(others)}
    done = typed(tow.folder, env, *command, "hydra.sweeper.n_trials=7", "+x=choice(7,1,2,3,4,9,95)")
    assert done.returncode == 0, done.stdout + done.stderr
    told = "SELECT state, value FROM trials LEFT JOIN trial_values USING (trial_id)"
    with contextlib.closing(sqlite3.connect(tow.folder / "study.db")) as study:
        rows = study.execute(told).fetchall()
    counts = {state: sum(one == state for one, _ in rows) for state, _ in rows}
    assert counts == {"COMPLETE": 5, "FAIL": 1, "PRUNED": 1}
    assert "best_value: 1" in (tow.folder / "out" / "optimization_results.yaml").read_text()
    # All trials are one sweep.
    table = tow.json("sweep", "table", "search")["runs"]
    assert [run["run"] for run in table] == list(range(7))
    assert sorted(run["state"] for run in table) == [*["done"] * 5, "failed", "stopped"]
    for more, said in (
        (["+x=1"], "there is nothing to search"),
        (["+x=1,2", "hydra.sweeper.n_jobs=0"], "n_jobs is a whole number from 1 on"),
        (["+x=1,2", "hydra.sweeper.direction=up"], "direction is minimize or maximize"),
    ):
        refused = typed(tow.folder, env, *command, *more)
        assert refused.returncode != 0 and said in refused.stderr, refused.stderr
        assert "Traceback" not in refused.stderr
