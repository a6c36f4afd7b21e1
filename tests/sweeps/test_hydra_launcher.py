"""`hydra/launcher=towline`, as it is typed: sweeps on this machine and ssh machines."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import hydra
import pytest
import yaml

from testbed.hosts import Hosts
from testbed.tow import Tow
from testbed.waiting import wait_until

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "hydra"
HERE = ("hydra/launcher=towline", "hydra.launcher.cluster=local")
DUCK = ("hydra/launcher=clusterduck_local", "hydra.launcher.wait_for_completion=true")


class App:
    """An application in a folder of its own."""

    def __init__(self, tow: Tow) -> None:
        self.tow = tow
        self.folder = tow.folder
        shutil.copy(Path(__file__).with_name("application.py"), self.folder / "train.py")
        (self.folder / "conf").mkdir()
        (self.folder / "conf" / "config.yaml").write_text("how: well\nseconds: 0.0\ntag: none\n")
        (self.folder / "helper.py").write_text("VERSION = 1\n")

    def __call__(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "train.py", "--multirun", "hydra.sweep.dir=out", *words],
            cwd=self.folder,
            env={**self.env, **env},
            capture_output=True,
            text=True,
            timeout=110,
        )

    @property
    def env(self) -> dict[str, str]:
        return {**self.tow.env, "RAN_IN": str(self.folder.parent)}

    def popen(self, *words: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "train.py", "--multirun", "hydra.sweep.dir=out", *words],
            cwd=self.folder,
            env={**self.env, **env},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ran(self) -> list[str]:
        """Every time that a run began on this machine."""
        return sorted((self.folder.parent / "ran").read_text().splitlines())

    def saw(self, run: object, sweep: str = "out") -> Any:
        return json.loads((self.folder / sweep / str(run) / "result.json").read_text())

    def with_hydra(self) -> dict[str, str]:
        """Have Hydra travel with the folder, to machines that do not have it."""
        packages = Path(hydra.__file__).parents[1]
        for name in ("hydra", "omegaconf", "antlr4", "yaml", "packaging"):
            shutil.copytree(packages / name, self.folder / "packages" / name)
        return {"PYTHONPATH": str(self.folder / "packages")}


@pytest.fixture
def app(tow: Tow) -> App:
    return App(tow)


def test_every_run_is_a_job_with_its_files_where_hydra_puts_them(app: App, tow: Tow) -> None:
    done = app(*HERE, "how=one,two", "hydra.job.env_copy=[COPIED]", COPIED="yes")
    assert done.returncode == 0, done.stderr
    for number, how in enumerate(("one", "two")):
        saw = app.saw(number)
        assert (saw["how"], saw["helper"], saw["copied"], saw["seen"]) == (how, 1, "yes", [how])
        assert saw["cwd"] == saw["original"] == str(app.folder)
        log = (app.folder / "out" / str(number) / "train.log").read_text()
        assert f"[__main__][INFO] - run {how}\n" in log and log.count("\n") == 1
        overrides = app.folder / "out" / str(number) / ".hydra" / "overrides.yaml"
        assert yaml.safe_load(overrides.read_text()) == [f"how={how}"]
    assert "sweep train: 2 runs in 2 jobs" in done.stdout
    assert tow.json("batch", "list")["batches"][0]["counts"]["done"] == 2
    # Nothing of ours stays beside the project's own files.
    assert not (app.folder / ".towline").exists()


def test_a_pack_divides_cpus_and_gpus_among_its_runs(app: App) -> None:
    resources = "{cpu: null, cuda: {gpus: [GPU-1b2c, MIG-3d]}, rendering: {gpus: [4, 5]},"
    done = app(
        *DUCK,
        "hydra.launcher.parallel_runs_per_node=2",
        f"+hydra.launcher.resources_config={resources} stagger: {{delay: 0.2}}}}",
        # The first still runs when the second slot may begin.
        "seconds=2,0.31,0.32,0.33",
    )
    assert done.returncode == 0, done.stderr
    saw = [app.saw(number) for number in range(4)]
    first, second = saw[0], saw[1]
    assert (first["gpus"], second["gpus"]) == ("GPU-1b2c", "MIG-3d")
    assert (first["egl"], second["egl"]) == ("4", "5")
    for one in saw[2:]:
        # A slot keeps its share.
        [like] = [other for other in (first, second) if other["gpus"] == one["gpus"]]
        assert one["cpus"] == like["cpus"] and one["egl"] == like["egl"]
    if (os.cpu_count() or 1) > 1:
        assert not set(first["cpus"]) & set(second["cpus"])
    assert len({one["tmp"] for one in saw}) == 4
    assert [one["seen"] for one in saw] == [["well"]] * 4


def test_runs_that_crash_fail_alone_and_all_of_them_are_listed(app: App) -> None:
    done = app(
        *DUCK,
        "hydra.launcher.parallel_runs_per_node=2",
        "how=well,raise,odd,exit,segfault,kill,again",
    )
    assert done.returncode == 1
    assert app.saw(0)["how"] == "well" and app.saw(6)["how"] == "again"
    said = done.stdout + done.stderr
    for words in (
        "run #1 [how=raise] failed: ValueError: this does not converge",
        "in misbehave",
        "Odd: this and that",
        "run #3 [how=exit] failed: RunFailed: it left with exit code 7",
        "ended by signal 11 (segmentation fault)",
        "killed by signal 9 (killed)",
        "5 of 7 runs failed",
    ):
        assert words in said, said
    assert "in misbehave" in (app.folder / "out" / "1" / "train.log").read_text()


def test_who_does_not_wait_has_the_prompt_back_and_old_code_and_configuration_run(
    app: App, tow: Tow
) -> None:
    tow(
        "run",
        "-d",
        "--exclusive",
        "sh",
        "-c",
        f"while [ ! -e {app.folder}/go ]; do sleep 0.1; done",
    )
    wait_until(lambda: tow.json("status")["jobs"][0]["state"] == "running", 60)
    done = app(*HERE, "hydra.launcher.wait_for_completion=false", "seconds=0.01,0.02")
    assert done.returncode == 0, done.stderr
    assert "follow it: tow sweep status -f train" in done.stdout
    (app.folder / "helper.py").write_text("VERSION = 2\n")
    (app.folder / "conf" / "config.yaml").write_text("how: changed\nseconds: 0.0\ntag: none\n")
    (app.folder / "go").touch()
    assert tow("wait", "train").returncode == 0
    assert [(app.saw(n)["how"], app.saw(n)["helper"]) for n in (0, 1)] == [("well", 1)] * 2


@pytest.mark.parametrize(
    "words, said",
    [
        (["hydra.launcher.parallel_runs_per_node=0"], "is a whole number from 1 on, not 0"),
        (["hydra.launcher.parallel_runs_per_node=abc"], "is a whole number from 1 on, not 'abc'"),
        (["hydra.launcher.total_runs_per_node=-1"], "is a whole number from 0 on, not -1"),
        (["+hydra.launcher.resources_config.tpu=null"], "it has: cpu, cuda, rendering, stagger"),
        (["hydra.launcher.cluster=nosuch"], "there is no cluster 'nosuch'"),
        (["hydra.launcher.nodes=2"], "each job of a sweep is one process"),
        (["+hydra.launcher.nodelist=h2"], "is for clusters with a queue"),
        (["hydra.launcher.paralel_runs=2"], "Key 'paralel_runs' not in"),
        (
            ["hydra/launcher=clusterduck_slurm", "hydra.launcher.cluster=null"],
            "which Slurm is meant? none is configured",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_words_before_anything_is_submitted(
    app: App, words: list[str], said: str
) -> None:
    done = app(*HERE, *words, "seconds=0.01,0.02")
    assert done.returncode != 0
    assert said in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    left = sorted(path.name for path in (app.folder / "out").glob("**/*"))
    assert left in ([], ["multirun.yaml"])


def test_a_field_that_is_still_to_be_filled_in_is_named(app: App) -> None:
    done = app(*HERE, "hydra.launcher.timeout_min=???", "seconds=0.01,0.02")
    assert done.returncode != 0 and "hydra.launcher.timeout_min" in done.stderr


def test_odd_overrides_arrive_as_with_hydra_itself(app: App) -> None:
    tags = ["'a b c'", '"it\'s"', '"a,b"', "[1,2]", "--flag", "'100%'", "'%j'", "'ünï 🦆'"]
    words = [
        f"tag={','.join([*tags, chr(34) + 'semi;colon && $HOME | cat' + chr(34)])}",
        "+extra.k=null,1e-3",
        "hydra.sweep.subdir='run ${hydra.job.num}'",
    ]
    plain = app("hydra.sweep.dir=plain", *words)
    assert plain.returncode == 0, plain.stderr
    done = app(*HERE, "hydra.launcher.parallel_runs_per_node=2", *words)
    assert done.returncode == 0, done.stderr
    folders = sorted(path.name for path in (app.folder / "plain").glob("run *"))
    assert len(folders) == 18
    for name in folders:
        for file in ("overrides.yaml", "config.yaml"):
            here, there = (app.folder / kind / name / ".hydra" / file for kind in ("out", "plain"))
            assert here.read_bytes() == there.read_bytes()


def test_an_interrupt_stops_the_sweep_and_keeps_what_is_done(app: App, tow: Tow) -> None:
    running = app.popen(*HERE, "hydra.launcher.parallel_runs_per_node=1", "seconds=0.0,1000")
    wait_until((app.folder / "out" / "1" / "train.log").exists, 60)
    running.send_signal(2)
    assert running.wait(60) == 130
    assert app.saw(0)["how"] == "well"
    assert tow.json("batch", "list")["batches"][0]["counts"]["stopped"] == 1


def test_two_sweeps_do_not_write_into_one_folder_at_a_time(app: App) -> None:
    (app.folder / "out").mkdir()
    place = os.open(app.folder / "out", os.O_RDONLY)
    try:
        fcntl.flock(place, fcntl.LOCK_EX)
        done = app(*HERE, "seconds=0.01,0.02")
    finally:
        os.close(place)
    assert done.returncode != 0
    assert f"another sweep writes into {app.folder}/out" in done.stderr + done.stdout
    assert not (app.folder / "out" / "0").exists()


def test_an_application_of_a_package_runs_with_warnings_as_errors(app: App, tow: Tow) -> None:
    package = app.folder / "lib" / "pkg"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (app.folder / "conf").rename(package / "conf")
    (app.folder / "train.py").rename(package / "app.py")
    words = ["hydra.sweep.dir=out", *HERE, "hydra.launcher.parallel_runs_per_node=1", "how=a,b"]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pkg.app", "--multirun", *words],
        cwd=app.folder,
        env={**app.env, "PYTHONPATH": str(app.folder / "lib")},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert [app.saw(number)["how"] for number in (0, 1)] == ["a", "b"]


def test_the_three_commands_of_the_example(tow: Tow) -> None:
    shutil.copytree(EXAMPLE, tow.folder, dirs_exist_ok=True)
    command = [sys.executable, "train.py", "--multirun", "model=convnet,transformer"]
    command += ["+iteration=range(2)", "seconds=0"]
    how: dict[str, Any] = {
        "cwd": tow.folder,
        "env": tow.env,
        "capture_output": True,
        "timeout": 110,
    }
    for sweep, words in (("plain", []), ("debug", ["+platform=slurm_debug"])):
        done = subprocess.run([*command, f"hydra.sweep.dir={sweep}", *words], text=True, **how)
        assert done.returncode == 0, done.stderr
        found = [
            json.loads((tow.folder / sweep / str(number) / "result.json").read_text())["model"]
            for number in range(4)
        ]
        assert found == ["convnet", "convnet", "transformer", "transformer"]
    # The third is for a Slurm: without one it says so.
    done = subprocess.run([*command, "+platform=horeka"], text=True, **how)
    assert done.returncode != 0 and "which Slurm is meant?" in done.stderr + done.stdout


@pytest.mark.real
def test_results_of_ssh_machines_come_home_into_the_sweeps_folder(
    app: App, tow: Tow, hosts: Hosts
) -> None:
    (tow.home / "config.toml").write_text('[clusters.lab]\nmachines = ["h1", "h2"]\n')
    words = ["hydra/launcher=towline", "hydra.launcher.cluster=lab"]
    words += ["hydra.launcher.parallel_runs_per_node=2", "hydra.launcher.total_runs_per_node=2"]
    env = app.with_hydra()
    done = app(*words, "how=one,two,raise,three", **env)
    assert done.returncode == 1
    assert "run #2 [how=raise] failed: ValueError" in done.stdout + done.stderr
    assert {app.saw(number)["host"] for number in (0, 1, 3)} <= {"h1", "h2"}
    for number in range(4):
        assert (app.folder / "out" / str(number) / ".hydra" / "config.yaml").exists()
    assert "in misbehave" in (app.folder / "out" / "2" / "train.log").read_text()
    # Nobody waits: they come home all the same.
    words += ["hydra.launcher.wait_for_completion=false", "hydra.sweep.dir=later"]
    # So do odd overrides, as Hydra itself writes them.
    odd = """tag='ünï 日本 🦆',"it's; rm -rf $HOME | cat",'100%'"""
    assert app(odd, "hydra.sweep.dir=plain").returncode == 0
    assert app(*words, odd, **env).returncode == 0
    wait_until((app.folder / "later" / "2" / "result.json").exists, 60)
    for number in range(3):
        here, there = (
            app.folder / sweep / str(number) / ".hydra" / "overrides.yaml"
            for sweep in ("plain", "later")
        )
        wait_until(there.exists, 30)
        assert here.read_bytes() == there.read_bytes()
