"""A tool that knows only `qsub` and `qdel`, a real Snakemake, runs through the shims."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from e2e import snakemakes
from e2e.boards import python_for_hosts
from e2e.grid_jobs import shell
from testbed.gridengine import GridEngine
from testbed.tow import Tow

pytestmark = pytest.mark.timeout(600)


@pytest.mark.slow
def test_snakemake_runs_a_workflow_on_this_machine(tow: Tow, tmp_path: Path) -> None:
    snakemake = snakemakes.environment() / "bin/snakemake"
    (tow.folder / "Snakefile").write_text(snakemakes.SNAKEFILE)
    (tow.folder / "logs").mkdir()
    assert tow("shims", str(tmp_path / "bin")).returncode == 0
    submit = "qsub -terse -cwd -N '{rule}' -o logs/ -j y"
    done = subprocess.run(
        [snakemake, *snakemakes.words(submit)],
        cwd=tow.folder,
        env=tow.env | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    assert (tow.folder / "report.txt").read_text() == "total 14\n"
    jobs = tow.json("status", "--all")["jobs"]
    assert sorted(job["title"] for job in jobs) == snakemakes.RULES
    assert {job["state"] for job in jobs} == {"done"}
    assert len(list((tow.folder / "logs").iterdir())) == len(snakemakes.RULES)


@pytest.mark.real
def test_snakemake_runs_a_workflow_on_a_grid_engine(gridengine: GridEngine) -> None:
    """On the head node, whose home all hosts share: Snakemake wants one folder for all its jobs."""
    (site,) = (snakemakes.environment() / "lib").glob("python*/site-packages")
    source = Path(__file__).parents[2] / "src"
    shell(gridengine, "mkdir -p flow .towline")
    home = gridengine.home("h1")
    (home / "flow/Snakefile").write_text(snakemakes.SNAKEFILE)
    cluster = '[engine]\nidle_exit_s = 5\n[clusters.msc]\nkind = "gridengine"\n'
    (home / ".towline/config.toml").write_text(f'default_cluster = "msc"\n{cluster}')
    with python_for_hosts(site, source) as setup:
        tow = "python3 -m towline.cli.main"
        words = " ".join(
            f"'{word}'" for word in snakemakes.words("qsub -terse -cwd -V -N {rule} -q cpu")
        )
        lines = (
            setup,
            "export TOWLINE_HOME=$HOME/.towline",
            f"{tow} shims ~/bin",
            "export PATH=$HOME/bin:$PATH",
            f"cd flow; timeout -k 1 120 python3 -m snakemake {words} >log 2>&1",
            f"code=$?; cat log; {tow} status --all --json >jobs; {tow} why last",
            f"{tow} engine stop; exit $code",
        )
        done = gridengine.run("h1", ["bash", "-lc", "\n".join(lines)], timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (home / "flow/report.txt").read_text() == "total 14\n"
    jobs = json.loads((home / "flow/jobs").read_text())["jobs"]
    assert sorted(job["title"] for job in jobs) == snakemakes.RULES
    assert {(job["state"], job["cluster"]) for job in jobs} == {("done", "msc")}
    assert len({job["queue"]["number"] for job in jobs}) == len(snakemakes.RULES)
