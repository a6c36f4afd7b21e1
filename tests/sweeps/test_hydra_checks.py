"""What users of other launchers try first: odd ends, odd values, folders, fields, shares."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sweeps.test_hydra_launcher import DUCK, HERE, App
from testbed.tow import Tow
from testbed.waiting import wait_until

TWO = (*DUCK, "hydra.launcher.parallel_runs_per_node=2")
ENDS = """
import os, signal, sys
import hydra

@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(config):
    how = config.how
    if how == "exit0":
        sys.exit(0)
    if how == "hard_exit":
        os._exit(3)
    if how == "abort":
        os.abort()
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "chain":
        try:
            raise OSError("the disk is away")
        except OSError as error:
            raise RuntimeError("no data") from error
    if how == "flood":
        for number in range(20000):
            print("line", number)
    values = {"lambda": lambda: 7, "pair": (1, 2), "big": b"x" * 50_000_000}
    return values.get(how)

if __name__ == "__main__":
    main()
"""
#: Fields of hydra-submitit-launcher and of both clusterducks, with their defaults.
FIELDS = {
    "timeout_min": 60,
    "cpus_per_task": None,
    "gpus_per_node": None,
    "tasks_per_node": 1,
    "mem_gb": None,
    "nodes": 1,
    "name": "train",
    "stderr_to_stdout": False,
    "total_runs_per_node": None,
    "resources_config": {},
    "verbose": False,
}
OF_SLURM = {
    "signal_delay_s": 120,
    "max_num_timeout": 0,
    "additional_parameters": {},
    "array_parallelism": 256,
    "setup": None,
    "srun_args": None,
    **dict.fromkeys(("partition", "qos", "comment", "constraint", "exclude", "gres", "account")),
    **dict.fromkeys(("cpus_per_gpu", "gpus_per_task", "mem_per_gpu", "mem_per_cpu")),
}


@pytest.fixture
def app(tow: Tow) -> App:
    return App(tow)


def test_every_odd_end_and_value_is_its_own_runs_alone(app: App, tow: Tow) -> None:
    (app.folder / "train.py").write_text(ENDS)
    bad = {
        "exit0": "left with exit code 0",
        "hard_exit": "exit code 3, no return value",
        "abort": "ended by signal 6 (SIGABRT)",
        "interrupt": "KeyboardInterrupt",
        "chain": "RuntimeError: no data",
    }
    good = ["well", "flood", "lambda", "pair", "big"]
    done = app(*TWO, f"how={','.join([*bad, *good])}")
    said = done.stdout + done.stderr
    assert done.returncode == 1 and "5 of 10 runs failed" in said, said
    assert "OSError: the disk is away" in said
    table = tow.json("sweep", "table", "train")["runs"]
    assert {run["values"].removeprefix("how="): run["reason"] for run in table[:5]} == bad
    assert [run["state"] for run in table] == [*["failed"] * 5, *["done"] * 5]
    printed = tow("sweep", "log", "train", "6").stdout
    assert printed.splitlines() == [f"line {number}" for number in range(20000)]
    assert tow("sweep", "log", "train", "5").stdout == ""


@pytest.mark.parametrize(
    "name, expected",
    [
        ("towline", {**FIELDS, **OF_SLURM, "wait_for_completion": True, "use_srun": True}),
        ("clusterduck_local", {**FIELDS, "wait_for_completion": False}),
        (
            "clusterduck_slurm",
            {
                **{**FIELDS, **OF_SLURM, "wait_for_completion": False},
                **{"parallel_runs_per_node": 1, "tmpdir_vars": ["TMP", "TMPDIR"]},
            },
        ),
    ],
)
def test_every_field_is_there_with_its_default(
    app: App, name: str, expected: dict[str, object]
) -> None:
    asked = ["--cfg", "hydra", "-p", "hydra.launcher", "--resolve", f"hydra/launcher={name}"]
    done = subprocess.run(
        [sys.executable, "train.py", *asked, "hydra.sweep.dir=out"],
        cwd=app.folder,
        env=app.env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found = yaml.safe_load(done.stdout)
    assert {field: found.get(field, "not there") for field in expected} == expected


def test_shares_that_do_not_come_out_even_are_told_and_each_log_has_its_own(app: App) -> None:
    config = app.folder / "conf" / "config.yaml"
    duck = "hydra_plugins.clusterduck_launcher.clusterduck_launcher.ClusterDuckLocalLauncher"
    config.write_text(
        config.read_text() + "hydra:\n  launcher:\n"
        # As configurations have it that name the class themselves.
        f"    _target_: {duck}\n    verbose: true\n    gpus_per_node: 1\n"
        "    parallel_runs_per_node: 3\n"
    )
    words = [
        *DUCK,
        "+hydra.launcher.resources_config={cpu: null, cuda: null}",
        "seconds=0.1,0.2,0.3",
    ]
    done = app(*words, CUDA_VISIBLE_DEVICES="GPU-1b,MIG-2,3,4")
    assert done.returncode == 0, done.stderr
    assert "there is no GPU on this machine: runs get none" in done.stdout + done.stderr
    said = (app.folder / "out" / ".towline" / "job-0.out").read_text()
    assert "4 GPUs among 3 runs at a time: not all have as many" in said
    assert re.search(r"slot 2: CPUs \[.*\], CUDA_VISIBLE_DEVICES=MIG-2,3|3,4", said)
    assert [app.saw(number)["gpus"] for number in range(3)] == ["GPU-1b", "MIG-2", "3,4"]
    for number in range(3):
        log = (app.folder / "out" / str(number) / "train.log").read_text()
        assert log.count("\n") == 2 and "CUDA_VISIBLE_DEVICES=" in log


def test_fields_of_the_second_clusterduck_work_or_are_named(app: App) -> None:
    words = ["hydra/launcher=clusterduck_slurm", "hydra.launcher.cluster=local"]
    words += ["hydra.launcher.wait_for_completion=true", "hydra.launcher.log_folder=logs"]
    words += ["hydra.launcher.teardown=[date]", "+hydra.launcher.srun_kwargs.mpi=none"]
    done = app(*words, "seconds=0.1")
    assert done.returncode == 0, done.stderr
    assert "these fields of hydra.launcher do nothing here: srun_kwargs, teardown" in done.stdout
    refused = app(*words, "+hydra.launcher.sbatch_kwargs.reservation=r", "seconds=0.1")
    assert refused.returncode != 0 and "is for clusters with a queue" in refused.stderr


def names(folder: Path) -> list[str]:
    found = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    ours = [path for path in found if ".towline" not in path.parts]
    return [str(path) for path in ours if path.name != "multirun.yaml"]


def test_folders_are_those_of_hydra_itself(app: App) -> None:
    for place, words in {
        "a b": ["hydra.sweep.subdir='${hydra.job.override_dirname}'", "hydra.job.chdir=true"],
        "c": ["hydra.output_subdir=null", "hydra.job.name='x y'", "+hydra.sweep.mode=0o700"],
    }.items():
        for kind, launcher in (("plain", []), ("ours", TWO)):
            where = app.folder.parent / kind / place
            done = app(*launcher, *words, f"hydra.sweep.dir='{where}'", "tag=one,two")
            assert done.returncode == 0, done.stderr
        plain, ours = (app.folder.parent / kind / place for kind in ("plain", "ours"))
        assert names(plain) == names(ours)
        assert plain.stat().st_mode == ours.stat().st_mode


def test_nothing_to_run_is_said_and_every_run_calls_back_once(app: App, tow: Tow) -> None:
    done = app(*HERE, "tag=glob(*)")
    assert done.returncode == 0 and "nothing to run" in done.stdout
    assert tow.json("batch", "list")["batches"] == []
    (app.folder / "mine.py").write_text(
        "import os\nfrom pathlib import Path\n"
        "from hydra.experimental.callback import Callback\n"
        "class Mine(Callback):\n"
        "    def on_job_end(self, config, job_return, **_):\n"
        "        with open(os.environ['RAN_IN'] + '/ended', 'a') as file:\n"
        "            file.write(f'{config.tag} {job_return.status.name}\\n')\n"
    )
    called = "+hydra.callbacks.mine._target_=mine.Mine"
    later = "hydra.launcher.wait_for_completion=false"
    assert app(*TWO, called, later, "tag=a,b", PYTHONPATH=str(app.folder)).returncode == 0
    ended = app.folder.parent / "ended"
    wait_until(lambda: ended.exists() and len(ended.read_text().splitlines()) == 2, 60)
    assert tow("wait", "train").returncode == 0
    assert sorted(ended.read_text().splitlines()) == ["a COMPLETED", "b COMPLETED"]
