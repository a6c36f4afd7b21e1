"""A student's way through a Grid Engine, from here in one command, with a real training script."""

from pathlib import Path

import pytest

from e2e.boards import python_for_hosts, shows
from e2e.grid_jobs import become, configure, on_every_site, shell
from e2e.jobs import ended, submit
from e2e.test_services import service
from testbed.gridengine import GridEngine
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(500)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "gridengine" / "train.py"
#: As the guide writes it; on a plain Grid Engine it makes a folder that is called $HOME.
OUTPUT = "OUTPUT_DIR=$HOME/experiments"


@on_every_site
def test_training_writes_below_the_home_over_there_is_watched_and_comes_home(
    tow: Tow, gridengine: GridEngine, site: tuple[str, bool]
) -> None:
    become(gridengine, site)
    configure(tow, 'options = { q = "cpu" }\nenv = { MLP_DATA_DIR = "~/data" }')
    shell(gridengine, "mkdir data experiments; seq 9 | sed 's/.*/&,&/' >data/points.csv")
    shell(gridengine, "mkdir experiments/older; touch experiments/older/theirs")
    (tow.folder / "train.py").write_text(EXAMPLE.read_text().replace('"loss"', '"loss of mine"'))
    with python_for_hosts() as setup:
        watched = ("--service", "tensorboard", "--logdir", "OUTPUT_DIR", "--back", "$OUTPUT_DIR")
        words = ("-c", "msc", "--setup", setup, "-e", OUTPUT, *watched)
        job = submit(tow, *words, "python3", "train.py", "600", "0.2")
        board = service(tow, job)
        shows(f"{board['url']}/data/plugin/scalars/tags", "loss of mine", timeout=150)
        tow("stop", str(job))
        assert ended(tow, job, timeout=90)["state"] == "stopped"
        wait_until(
            lambda: list((tow.folder / f"job_results/{job}/OUTPUT_DIR").glob("*/*.npz")), timeout=90
        )
        (made,) = (tow.folder / f"job_results/{job}/OUTPUT_DIR").iterdir()
        done = tow("run", *words[:6], "--back", "$OUTPUT_DIR", "python3", "train.py", "2", "0")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in made.iterdir()} >= {"checkpoint.npz"}
    assert any("tfevents" in path.name for path in made.iterdir())
    (second,) = (tow.folder / f"job_results/{job + 1}/OUTPUT_DIR").iterdir()
    assert (second / "statistics.npz").exists()
    over_there = shell(gridengine, "ls; ls experiments").split()
    assert "$HOME" not in over_there and made.name in over_there
