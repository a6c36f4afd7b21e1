"""What logging in gives is there for jobs: over ssh, on a real Slurm, and as ssh schedulers do."""

import stat
from pathlib import Path

import pytest

from e2e.jobs import complaint, configure, show
from e2e.slurm_jobs import configure as configure_slurm
from testbed.hosts import Hosts
from testbed.slurm import Slurm
from testbed.tow import Tow

pytestmark = pytest.mark.real

#: What Lmod does, for shells that log in only, and for all that they start.
MODULE = 'module() { echo "[module $*]"; export LOADED=$2; }\n'
EXPORTED = f"{MODULE}export -f module\n"


def _give(home: Path, name: str, text: str) -> None:
    (home / name).write_text(f"echo welcome\n{text}")


def test_module_load_works_in_a_set_up_on_a_slurm(tow: Tow, slurm: Slurm) -> None:
    _give(slurm.home("h1"), ".bash_profile", MODULE)
    configure_slurm(tow, 'setup = "module load python"')
    done = tow("run", "-c", "cedar", "sh", "-c", "echo with $LOADED")
    assert (done.returncode, done.stdout) == (0, "[module load python]\nwith python\n"), done


def test_functions_that_a_login_exports_are_there_on_the_nodes(tow: Tow, slurm: Slurm) -> None:
    _give(slurm.home("h1"), ".bash_profile", f"{EXPORTED}export SBATCH_PARTITION=gpu\n")
    configure_slurm(tow)
    (tow.folder / "job.sh").write_text("module load python; echo $LOADED $SLURM_JOB_PARTITION\n")
    done = tow("run", "-c", "cedar", "bash", "job.sh")
    assert done.stdout == "[module load python]\npython gpu\n", done.stderr
    done = tow("run", "-c", "cedar", "-r", "2:[]", "bash", "job.sh")
    assert done.stdout.count("python gpu") == 2, done.stderr


def test_functions_that_bashrc_exports_are_there_as_with_an_sbatch_typed_there(
    tow: Tow, slurm: Slurm
) -> None:
    _give(slurm.home("h1"), ".bashrc", EXPORTED)
    configure_slurm(tow)
    done = tow("run", "-c", "cedar", "--setup", "module load python", "sh", "-c", "echo $LOADED")
    assert done.stdout == "[module load python]\npython\n", done.stderr


def test_what_a_profile_sets_up_is_there_over_ssh(tow: Tow, hosts: Hosts) -> None:
    home = hosts.home("h1")
    _give(home, ".bash_profile", f"{MODULE}export PATH=~/env/bin:$PATH\n")
    program = home / "env/bin/trainer"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho trained with $LOADED\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    configure(tow, "h1")
    assert tow("run", "-c", "lab", "trainer").stdout == "trained with\n"
    done = tow("run", "-c", "lab", "--setup", "module load cuda", "trainer")
    assert done.stdout == "[module load cuda]\ntrained with cuda\n"


def test_a_profile_that_hangs_costs_time_and_nothing_else(tow: Tow, hosts: Hosts) -> None:
    _give(hosts.home("h1"), ".bash_profile", "sleep 600\n")
    configure(tow, "h1")
    done = tow("run", "-c", "lab", "echo", "runs")
    assert done.stdout == "runs\n", done.stderr
    ill = tow("doctor", "-c", "lab")
    assert ill.returncode == 1
    assert "login shell" in ill.stdout


def test_a_command_below_the_guard_of_bashrc_is_told_with_its_place(tow: Tow, hosts: Hosts) -> None:
    home = hosts.home("h1")
    program = home / "miniconda3/bin/trainer"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho trained\n")
    program.chmod(0o755)
    guard = "case $- in *i*) ;; *) return;; esac\n"
    (home / ".bashrc").write_text(f"{guard}export PATH=~/miniconda3/bin:$PATH\n")
    (home / ".profile").write_text(". ~/.bashrc\n")
    configure(tow, "h1")
    assert tow("run", "-c", "lab", "trainer").returncode == 127
    assert "miniconda3/bin/trainer" in show(tow, 1)["reason"]
    done = tow("run", "-c", "lab", "bash", "-i", "-c", "trainer")
    assert (done.stdout, done.returncode) == ("trained\n", 0), complaint(done, 0)
