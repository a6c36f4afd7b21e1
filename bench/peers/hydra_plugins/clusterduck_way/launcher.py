"""A launcher that runs a sweep as clusterduck 1.0 does, which is not on PyPI.

One job of submitit is a manager that forks a process for each run, so many at a time; each loads
the pickled function, composes its configuration and runs.
"""

import multiprocessing
import multiprocessing.connection
import pickle

from hydra.core.config_store import ConfigStore
from hydra.plugins.launcher import Launcher
from hydra_plugins.clusterduck_way._conf import ClusterduckWayConf


class ClusterduckWay(Launcher):
    def __init__(self, parallel_runs_per_node: int) -> None:
        self.parallel = parallel_runs_per_node

    def setup(self, *, hydra_context, task_function, config) -> None:
        self.hydra_context, self.task_function = hydra_context, task_function
        self.config = config

    def launch(self, job_overrides, initial_job_idx):
        import cloudpickle
        import submitit
        from hydra.core.singleton import Singleton

        executor = submitit.LocalExecutor(folder=f"{self.config.hydra.sweep.dir}/.submitit/%j")
        executor.update_parameters(timeout_min=60)
        function = cloudpickle.dumps(self.task_function)
        runs = [(list(one), initial_job_idx + n) for n, one in enumerate(job_overrides)]
        shared = (self.hydra_context, function, self.config, Singleton.get_state())
        return executor.submit(manage, shared, runs, self.parallel).result()


def manage(shared, runs, parallel):
    """In the job: a process for each run, so many at a time."""
    context = multiprocessing.get_context("fork")
    waiting, under_way, made = list(enumerate(runs)), {}, {}
    while waiting or under_way:
        while waiting and len(under_way) < parallel:
            place, run = waiting.pop(0)
            mine, its = context.Pipe(duplex=False)
            process = context.Process(target=work, args=(its, shared, run))
            process.start()
            under_way[mine] = place, process
        for mine in multiprocessing.connection.wait(list(under_way)):
            place, process = under_way.pop(mine)
            made[place] = pickle.loads(mine.recv_bytes())
            process.join()
    return [made[place] for place in sorted(made)]


def work(its, shared, run):
    import cloudpickle
    from hydra.core.hydra_config import HydraConfig
    from hydra.core.singleton import Singleton
    from hydra.core.utils import run_job, setup_globals
    from omegaconf import open_dict

    hydra_context, function, config, state = shared
    overrides, number = run
    Singleton.set_state(state)
    setup_globals()
    sweep_config = hydra_context.config_loader.load_sweep_config(config, overrides)
    with open_dict(sweep_config):
        sweep_config.hydra.job.id = str(number)
        sweep_config.hydra.job.num = number
    HydraConfig.instance().set_config(sweep_config)
    returned = run_job(
        hydra_context=hydra_context,
        task_function=pickle.loads(function),
        config=sweep_config,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )
    its.send_bytes(cloudpickle.dumps(returned))


ConfigStore.instance().store(
    group="hydra/launcher", name="clusterduck_way", node=ClusterduckWayConf, provider="bench"
)
