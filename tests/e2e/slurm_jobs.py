"""A Slurm as a user configures it, and the questions the tests ask of it."""

from e2e.jobs import ENGINE
from testbed.slurm import Slurm
from testbed.tow import Tow


def configure(tow: Tow, more: str = "") -> None:
    """Make the test Slurm the cluster `cedar`."""
    cluster = f'[clusters.cedar]\nkind = "slurm"\nhost = "cedar"\n{more}\n'
    (tow.home / "config.toml").write_text(f"{ENGINE}{cluster}")


def queue_lines(slurm: Slurm) -> list[str]:
    """What is in Slurm's queue, as number, state and comment."""
    shown = slurm.worker("squeue", "-h", "-o", "%i %T %k")
    return shown.splitlines()


def slurm_number(slurm: Slurm) -> str:
    """Of the only job in the queue."""
    (line,) = queue_lines(slurm)
    return line.split()[0]


def submitted(slurm: Slurm) -> dict[str, str]:
    """Number and comment of every job that Slurm knows of, ended ones too."""
    lines = slurm.worker("squeue", "-h", "-t", "all", "-o", "%i %k").splitlines()
    pairs = (line.split(" ", 1) for line in lines if "towline:" in line)
    return {number.partition("+")[0]: comment for number, comment in pairs}
