"""The launchers of clusterduck under the names that configurations have for them."""

from hydra_plugins.towline_launcher.launcher import TowlineLauncher


class ClusterDuckSlurmLauncher(TowlineLauncher):
    """Runs packs of runs on a Slurm, by default the one that is configured."""

    queue = "slurm"


class ClusterDuckLauncher(ClusterDuckSlurmLauncher):
    """The same, as configurations of its second version call it."""


class ClusterDuckLocalLauncher(TowlineLauncher):
    """Runs packs of runs on this machine; it is for trying, so what needs GPUs runs without."""

    needs_gpus = False
