"""Runs that fork from an application that was imported once: as fresh, and as Hydra writes them."""

import re
import shutil
from pathlib import Path

import pytest

from sweeps.test_hydra_launcher import DUCK, App
from testbed.tow import Tow

TWO = (*DUCK, "hydra.launcher.parallel_runs_per_node=2")
NASTY = """
import atexit, random, sys, threading
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from omegaconf import MISSING, OmegaConf

import lively

class Color(Enum):
    RED = 1
    BLUE = 2

@dataclass
class Net:
    color: Color = Color.RED
    sizes: list[int] = field(default_factory=lambda: [1, 2])
    name: str = MISSING

ConfigStore.instance().store(group="net", name="deep", node=Net(name="deep"))
ConfigStore.instance().store(group="net", name="wide", node=Net(name="wide", sizes=[9]))
OmegaConf.register_new_resolver("twice", lambda x: 2 * x)

@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(config):
    lively.RUNS.append(1)
    out = Path(HydraConfig.get().runtime.output_dir)
    atexit.register(lambda: (out / "ended").write_text("yes"))
    drawn = str(lively.drawn())
    about = f"{config.net.color} {config.net.sizes} {config.doubled} {lively.RUNS}"
    (out / "saw").write_text(about)
    (Path.cwd() / "drawn").open("a").write(f"{drawn}\\n")
    return config.x

if __name__ == "__main__":
    main()
"""
LIVELY = """
import numpy
RUNS = []
numpy.random.rand()
def drawn():
    return numpy.random.rand()
"""
CONFIG = """
defaults:
  - net: deep
  - _self_
x: 1
doubled: ${twice:${x}}
long: a sentence that is so long that it has to be broken where YAML breaks its lines, at eighty
extra: {}
"""


@pytest.fixture
def app(tow: Tow) -> App:
    made = App(tow)
    (made.folder / "train.py").write_text(NASTY)
    (made.folder / "lively.py").write_text(LIVELY)
    (made.folder / "conf" / "config.yaml").write_text(CONFIG)
    return made


def files(folder: Path) -> dict[str, str]:
    """What a sweep left, by its place; times and the launcher's own lines aside."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and ".towline" not in path.parts and path.name != "multirun.yaml":
            text = path.read_text()
            if path.name == "hydra.yaml":
                text = text.replace(str(folder), "OUT")
                text = re.sub(r"  launcher:\n(    .*\n)+", "  launcher:\n", text)
                text = re.sub(r"( *- )?hydra[./](launcher|sweep).*\n", "", text)
                text = re.sub(r"( id|dir): .*", r"\1:", text)
            found[str(path.relative_to(folder))] = text
    return found


def test_every_file_is_as_hydras_own_launcher_writes_it(app: App) -> None:
    words = ["net=deep,wide", "x=1,2", "+extra.k=null,'ü 🦆',{a: [1, b]}", "++net.color=BLUE"]
    words += ["hydra.job.chdir=false", "+hydra.job.env_set.SET=v", "net.sizes=[3,4]"]
    plain = app("hydra.sweep.dir=plain", *words)
    assert plain.returncode == 0, plain.stderr
    for name, more in (("forked", []), ("alone", ["hydra.launcher.isolation=process", "x=1"])):
        done = app(*TWO, f"hydra.sweep.dir={name}", *words, *more)
        assert done.returncode == 0, done.stderr
    theirs, ours = files(app.folder / "plain"), files(app.folder / "forked")
    del theirs["11/ended"], ours["11/ended"]
    # There, all runs are of one process: each sees the ones before it, and only the last one ends.
    for number in range(12):
        theirs[f"{number}/saw"] = re.sub(r" \[1[1, ]*\]$", " [1]", theirs[f"{number}/saw"])
        if number < 11:
            assert ours.pop(f"{number}/ended") == "yes"
    theirs = {name: text for name, text in theirs.items() if not name.endswith("/ended")}
    assert ours == theirs
    assert (app.folder / "alone" / "5" / "ended").exists()
    drawn = (app.folder / "drawn").read_text().split()
    assert len(set(drawn)) == len(drawn)


def test_where_a_fork_is_not_safe_each_run_has_a_python_of_its_own(app: App) -> None:
    with (app.folder / "lively.py").open("a") as module:
        module.write("import threading, time\n")
        module.write("threading.Thread(target=time.sleep, args=(9,), daemon=True).start()\n")
    done = app(*TWO, "x=1,2,3")
    assert done.returncode == 0, done.stderr
    assert [(app.folder / "out" / str(n) / "saw").read_text()[-3:] for n in range(3)] == ["[1]"] * 3
    said = (app.folder / "out" / ".towline" / "job-0.out").read_text()
    assert "each run has a Python of its own: importing the application starts a thread" in said


@pytest.mark.parametrize("isolation", ["fork", "process"])
def test_an_application_that_cannot_be_loaded_over_there_fails_in_its_own_words(
    app: App, isolation: str
) -> None:
    with (app.folder / "lively.py").open("a") as module:
        module.write(
            "import os\nif not os.path.exists('train.py.home'): raise OSError('not here')\n"
        )
    (app.folder / "train.py.home").touch()
    (app.folder / ".towignore").write_text("*.home\n")
    done = app(*TWO, "x=1,2", f"hydra.launcher.isolation={isolation}")
    assert done.returncode == 1
    assert "2 of 2 runs failed" in done.stdout + done.stderr
    assert "OSError: not here" in done.stdout + done.stderr


def test_an_isolation_that_is_not_there_is_refused(app: App) -> None:
    done = app(*TWO, "x=1,2", "hydra.launcher.isolation=none")
    assert done.returncode != 0 and "is one of fork, process" in done.stderr
    shutil.rmtree(app.folder / "out")
