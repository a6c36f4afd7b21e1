"""The launchers, and what each can be told.

Hydra loads this file at every start of every application, and on 1.3 again before every run: what
takes time, and what must stay the same object, is in `_launching`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.plugins.launcher import Launcher


@dataclass
class BaseConf:
    """What hydra-submitit-launcher and clusterduck can be told of jobs anywhere."""

    #: Where its jobs run: a cluster of Towline; by default the configured one.
    cluster: Any = None
    #: What each job needs, in Towline's words, e.g. "[gpus=1]"; or the fields below.
    request: Any = None
    #: The Python over there; by default the path of this one where that exists, else python3.
    python: Any = None
    submitit_folder: str = "${hydra.sweep.dir}/.submitit/%j"
    timeout_min: Any = 60
    cpus_per_task: Any = None
    gpus_per_node: Any = None
    tasks_per_node: Any = 1
    mem_gb: Any = None
    nodes: Any = 1
    name: str = "${hydra.job.name}"
    stderr_to_stdout: bool = False
    setup: Any = None
    #: Runs of one job at a time, and in all; null: as many jobs as runs.
    parallel_runs_per_node: Any = None
    total_runs_per_node: Any = None
    wait_for_completion: bool = True
    #: What is divided among the runs of a job: cpu, cuda, rendering, stagger.
    resources_config: Any = field(default_factory=dict)
    verbose: bool = False
    #: "fork": runs of a job begin from the application as it was imported once, each in a process
    #: of its own; "process": each imports it anew.
    isolation: str = "fork"


@dataclass
class TowlineConf(BaseConf):
    """`hydra/launcher=towline`."""

    _target_: str = "hydra_plugins.towline_launcher.launcher.TowlineLauncher"
    partition: Any = None
    qos: Any = None
    comment: Any = None
    constraint: Any = None
    exclude: Any = None
    gres: Any = None
    cpus_per_gpu: Any = None
    gpus_per_task: Any = None
    mem_per_gpu: Any = None
    mem_per_cpu: Any = None
    account: Any = None
    signal_delay_s: Any = 120
    max_num_timeout: Any = 0
    additional_parameters: Any = field(default_factory=dict)
    array_parallelism: Any = 256
    srun_args: Any = None
    use_srun: bool = True


@dataclass
class ClusterDuckSlurmConf(TowlineConf):
    """`hydra/launcher=clusterduck_slurm`, with the ancestor's own defaults."""

    _target_: str = (
        "hydra_plugins.clusterduck_launcher.clusterduck_launcher.ClusterDuckSlurmLauncher"
    )
    parallel_runs_per_node: Any = 1
    wait_for_completion: bool = False
    # Those of its second version.
    log_folder: Any = "${hydra.sweep.dir}/slurm"
    sbatch_kwargs: Any = field(default_factory=dict)
    srun_kwargs: Any = field(default_factory=dict)
    teardown: Any = None
    tmpdir_vars: Any = field(default_factory=lambda: ["TMP", "TMPDIR"])
    do_submit: bool = True
    local_debug: bool = False


@dataclass
class ClusterDuckLocalConf(BaseConf):
    """`hydra/launcher=clusterduck_local`, with the ancestor's own defaults."""

    _target_: str = (
        "hydra_plugins.clusterduck_launcher.clusterduck_launcher.ClusterDuckLocalLauncher"
    )
    cluster: Any = "local"
    parallel_runs_per_node: Any = 1
    wait_for_completion: bool = False


class TowlineLauncher(Launcher):
    """Runs the runs of a sweep as jobs of Towline, wherever its cluster is."""

    #: The kind of queue that is meant where no cluster is named.
    queue = ""
    #: GPUs that are asked for where there are none are done without.
    needs_gpus = True

    def __init__(self, **fields: Any) -> None:
        self.fields = fields
        self.config: Any = None
        self.task_function: Any = None
        self.hydra_context: Any = None
        #: The sweep of its first call: some sweepers call it several times.
        self.leader = ""

    def setup(self, *, hydra_context: Any, task_function: Any, config: Any) -> None:
        self.config = config
        from hydra_plugins.towline_launcher._remembering import remember

        # The sweeper has the very same, and composes every run before it calls `launch`.
        remember(hydra_context)
        self.hydra_context = hydra_context
        self.task_function = task_function

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[Any]:
        from hydra_plugins.towline_launcher._launching import launch

        return launch(self, [list(one) for one in job_overrides], initial_job_idx)


for _name, _conf in (
    ("towline", TowlineConf),
    ("clusterduck_slurm", ClusterDuckSlurmConf),
    ("clusterduck_local", ClusterDuckLocalConf),
):
    ConfigStore.instance().store(group="hydra/launcher", name=_name, node=_conf, provider="towline")
