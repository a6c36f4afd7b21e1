"""One run of a Hydra application, where its job is: it travels there with the packer.

`prepare` loads the application once; each run then forks from that, so it begins with everything
imported and sees nothing of another run. Where a fork would not be safe, or is not wanted, a run
has a Python of its own from the start (`_alone`).
"""

import json
import logging
import os
import pickle
import sys
import traceback
from pathlib import Path

import cloudpickle
from hydra.core.singleton import Singleton
from hydra.core.utils import JobStatus, run_job, setup_globals
from omegaconf import open_dict, read_write
from towline_remote.calling import packed_failure
from towline_remote.wire import RAISED, VALUE

from . import _alone, _fresh
from ._lean import Lean
from ._recipes import Recipe, apply

log = logging.getLogger("towline")
#: What `prepare` made, for every run that forks from here.
_ready = []


class Application:
    """What all runs of a sweep share, loaded."""

    def __init__(self, folder):
        self.job_folder = os.getcwd()
        self.first = settings(folder)["first"]
        with open(folder + "/shared", "rb") as file:
            self.context, self.task_function, state = pickle.load(file)
        with open(folder + "/runs", "rb") as file:
            bases, recipes = pickle.load(file)
        self.recipes = [Recipe(*recipe) for recipe in recipes]
        Singleton.set_state(state)
        setup_globals()
        if isinstance(self.task_function, tuple):
            self.task_function = imported(self.job_folder, *self.task_function)
        self.bases = [pickle.loads(base) for base in bases]
        #: Configuration -> how its runs are done with less.
        self.lean = {}


def settings(folder):
    with open(folder + "/settings", encoding="utf-8") as file:
        return json.load(file)


def prepare(folder, runs):
    """Load the application before the first run; what there is to say about it."""
    if settings(folder)["isolation"] == "process":
        return []
    try:
        application = Application(folder)
    except BaseException as error:
        # It is every run's own failure.
        _ready.append(broken(error))
        return []
    if reason := _fresh.unsafe():
        return [f"each run has a Python of its own: {reason}"]
    if len(runs) > 1:
        for base in {application.recipes[run].base for run in runs}:
            application.lean[base] = Lean(application.bases[base])
    _ready.append(application)
    _fresh.before_forks()
    return []


def run(folder, number, plan, root, share):
    """Do it as Hydra's own launcher would; whether it has a value, that packed, and why not."""
    if not _ready:
        return _alone.run(folder, number, plan, root, share)
    [application] = _ready
    if isinstance(application, tuple):
        return application
    _fresh.begin()
    try:
        return done(application, number, plan, root, share)
    finally:
        _fresh.end()


def broken(error):
    """The application cannot even be loaded."""
    traceback.print_exception(error)
    return RAISED, pickle.dumps({"failure": packed_failure(error)}), in_a_line(error)


def in_a_line(error):
    """What a table says of it."""
    if isinstance(error, SystemExit):
        return f"left with exit code {error.code}"[:200]
    words = f"{type(error).__name__}: {error}".strip().split("\n")[0]
    return words.removesuffix(":")[:200]


def done(application, number, plan, root, share):
    """In the process of the run."""
    if root == plan["sweep"] and os.path.isdir(plan["cwd"]):
        # Paths mean what they mean at home.
        os.chdir(plan["cwd"])
    recipe = application.recipes[number]
    if lean := application.lean.get(recipe.base):
        lean.install()
    config = application.bases[recipe.base]
    apply(config, recipe)
    with open_dict(config), read_write(config):
        config.hydra.job.id = str(application.first + number)
        config.hydra.job.num = application.first + number
        config.hydra.sweep.dir = root
        if root != plan["sweep"]:
            config.hydra.runtime.cwd = application.job_folder
    task_function = application.task_function
    try:
        returned = run_job(
            hydra_context=application.context,
            task_function=with_share(task_function, share) if share else task_function,
            config=config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )
    except BaseException as error:
        logged(error)
        return RAISED, pickle.dumps({"failure": packed_failure(error)}), in_a_line(error)
    ended = {"working_dir": returned.working_dir, "home": [root, application.job_folder]}
    ended["output_dir"] = config.hydra.runtime.output_dir
    if returned.status == JobStatus.FAILED:
        error = returned._return_value
        logged(error)
        # From 1.4 on Hydra has ways of its own to tell where it was raised.
        ended["raised"] = {name: getattr(returned, name, None) for name in plan["raised"]}
        ended["failure"] = packed_failure(error)
        return RAISED, pickle.dumps(ended), in_a_line(error)
    try:
        ended["value"] = cloudpickle.dumps(returned.return_value)
    except Exception as error:
        what = f"the return value, of type {type(returned.return_value).__name__}, cannot travel"
        log.error("run failed: %s: %s", what, error)
        ended["failure"] = packed_failure(TypeError(f"{what}: {error}"))
        return RAISED, pickle.dumps(ended), what
    return VALUE, pickle.dumps(ended), ""


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
