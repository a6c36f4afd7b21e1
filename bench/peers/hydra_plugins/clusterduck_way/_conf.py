"""What it is told: of a module that Hydra does not load again."""

from dataclasses import dataclass


@dataclass
class ClusterduckWayConf:
    _target_: str = "hydra_plugins.clusterduck_way.launcher.ClusterduckWay"
    parallel_runs_per_node: int = 2
