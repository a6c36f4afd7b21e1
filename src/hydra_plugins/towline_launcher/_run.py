"""One run of a Hydra application, where its job is: it travels there as a module of the packer."""

import logging
import os
import pickle
import traceback
from pathlib import Path

import cloudpickle
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobStatus, run_job, setup_globals
from omegaconf import open_dict, read_write
from towline_remote.calling import packed_failure
from towline_remote.wire import RAISED, VALUE

log = logging.getLogger("towline")


def run(folder, number, plan, root, share):
    """Do it as Hydra's own launcher would; whether it has a value or raised, and that, packed."""
    job_folder = os.getcwd()
    if root == plan["sweep"] and os.path.isdir(plan["cwd"]):
        # Paths mean what they mean at home.
        os.chdir(plan["cwd"])
    with open(folder + "/shared", "rb") as file:
        context, task_function, state = pickle.load(file)
    with open(f"{folder}/run-{number}", "rb") as file:
        config = pickle.load(file)
    Singleton.set_state(state)
    setup_globals()
    if isinstance(task_function, tuple):
        task_function = imported(job_folder, *task_function)
    with open_dict(config), read_write(config):
        config.hydra.sweep.dir = root
        if root != plan["sweep"]:
            config.hydra.runtime.cwd = job_folder
    HydraConfig.instance().set_config(config)
    ended = {}
    told = with_share(task_function, share) if share else task_function
    try:
        returned = run_job(
            hydra_context=context,
            task_function=told,
            config=config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )
    except BaseException as error:
        logged(error)
        return RAISED, pickle.dumps({"failure": packed_failure(error)})
    ended["working_dir"] = returned.working_dir
    ended["output_dir"] = config.hydra.runtime.output_dir
    ended["home"] = [root, job_folder]
    if returned.status == JobStatus.FAILED:
        error = returned._return_value
        logged(error)
        # From 1.4 on Hydra has ways of its own to tell where it was raised.
        ended["raised"] = {name: getattr(returned, name, None) for name in plan["raised"]}
        ended["failure"] = packed_failure(error)
        return RAISED, pickle.dumps(ended)
    try:
        ended["value"] = cloudpickle.dumps(returned.return_value)
    except Exception as error:
        what = f"the return value, of type {type(returned.return_value).__name__}, cannot travel"
        ended["failure"] = packed_failure(TypeError(f"{what}: {error}"))
        return RAISED, pickle.dumps(ended)
    return VALUE, pickle.dumps(ended)


def logged(error):
    """Its own log says how it ended, too."""
    words = "".join(traceback.format_exception(error))
    log.error("run failed\n%s", words)
    for handler in logging.getLogger().handlers:
        handler.flush()


def with_share(task_function, share):
    def told(config):
        log.info("%s", share)
        return task_function(config)

    return told


def imported(job_folder, path, name):
    """The function of a script that cannot travel by itself: the script is loaded again."""
    import importlib.util
    import inspect
    import sys

    there = path if os.path.isabs(path) else os.path.join(job_folder, path)
    sys.path.insert(0, str(Path(there).parent))
    spec = importlib.util.spec_from_file_location("__towline_main__", there)
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = sys.modules["__main__"] = module
    spec.loader.exec_module(module)
    for value in vars(module).values():
        if isinstance(value, logging.Logger) and value.name == module.__name__:
            # As it is called in the log of a script.
            value.name = "__main__"
    found = module
    for part in name.split("."):
        found = getattr(found, part)
    return inspect.unwrap(found)
