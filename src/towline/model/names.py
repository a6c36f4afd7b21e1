"""Clusters as people see them. Import-light: commands use it at start."""

from __future__ import annotations

#: What clusters of machines that no configuration names are called inside; a hash follows.
AD_HOC = "ad-hoc:"
#: The same for Slurms; their access node follows.
AD_HOC_SLURM = "slurm:"


def shown_cluster(name: str) -> str:
    """The name of a cluster, without what only the Engine needs of it."""
    if name.startswith(AD_HOC):
        return "ad hoc"
    return name.removeprefix(AD_HOC_SLURM)
