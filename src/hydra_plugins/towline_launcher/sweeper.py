"""`hydra/sweeper=towline_optuna`: a search by Optuna that asks for the next trial as each ends.

Hydra loads this file at every start of every application, so it imports nothing that takes time.
"""

from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.plugins.sweeper import Sweeper


@dataclass
class TowlineOptunaConf:
    """What it can be told: the fields of hydra-optuna-sweeper, and a pruner."""

    _target_: str = "hydra_plugins.towline_launcher.sweeper.TowlineOptunaSweeper"
    #: Optuna's: `_target_` and its arguments; null: what Optuna chooses, and no pruner.
    sampler: Any = None
    pruner: Any = None
    #: `minimize` or `maximize`; a list: one of each value that a run returns.
    direction: Any = "minimize"
    storage: Any = None
    study_name: Any = None
    n_trials: int = 20
    #: Trials at a time.
    n_jobs: int = 2
    #: The search ends once more than this part of all trials has failed.
    max_failure_rate: float = 0.0
    #: What is searched: key -> override; the command line adds to it.
    params: Any = None


class TowlineOptunaSweeper(Sweeper):
    """Has as many trials under way as it may, until there were enough."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields
        self.config: Any = None
        self.hydra_context: Any = None
        self.launcher: Any = None

    def setup(self, *, hydra_context: Any, task_function: Any, config: Any) -> None:
        from hydra.core.plugins import Plugins

        self.config = config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )
        self.hydra_context = hydra_context

    def sweep(self, arguments: list[str]) -> Any:
        from hydra_plugins.towline_launcher._searching import search

        return search(self, arguments)


ConfigStore.instance().store(
    group="hydra/sweeper", name="towline_optuna", node=TowlineOptunaConf, provider="towline"
)
