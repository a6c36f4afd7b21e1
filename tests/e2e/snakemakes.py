"""A real Snakemake with its cluster-generic executor, in an environment of its own."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from testbed.own_home import persons_home

#: It is large, and has nothing to do with what the other tests need: so it is kept apart.
PARTS = ("snakemake>=9,<10", "snakemake-executor-plugin-cluster-generic>=1,<2")
CACHE = persons_home() / ".cache" / "towline-tests"

#: Five rules, six jobs; each takes a moment only.
SNAKEFILE = """\
rule all:
    input: "report.txt"

rule numbers:
    output: "numbers.txt"
    shell: "seq 1 4 > {output}"

rule square:
    input: "numbers.txt"
    output: "square_{n}.txt"
    shell: "awk 'NR=={wildcards.n} {{print $1*$1}}' {input} > {output}"

rule total:
    input: expand("square_{n}.txt", n=range(1, 4))
    output: "total.txt"
    shell: "awk '{{s+=$1}} END {{print s}}' {input} > {output}"

rule report:
    input: "total.txt"
    output: "report.txt"
    shell: "echo total $(cat {input}) > {output}"
"""
RULES = ["numbers", "report", "square", "square", "square", "total"]


def words(submit: str) -> list[str]:
    """What follows `snakemake`, with what it is to submit its jobs by."""
    generic = ["--executor", "cluster-generic", "--cluster-generic-submit-cmd", submit]
    quick = ["--seconds-between-status-checks", "1", "--latency-wait", "30"]
    return [*generic, "--cluster-generic-cancel-cmd", "qdel", "-j", "3", *quick]


def environment() -> Path:
    """The folder of the virtual environment that has it; made once, from the package index."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = CACHE / f"snakemake-9-python{version}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
            pip = [str(folder / "bin/pip"), "install", "-q", *PARTS]
            # The person's home says which package index is to be used.
            env = {**os.environ, "HOME": str(persons_home())}
            done = subprocess.run(pip, env=env, capture_output=True, text=True, timeout=400)
            assert done.returncode == 0, f"Snakemake cannot be installed:\n{done.stderr}"
            (folder / "ready").touch()
    return folder
