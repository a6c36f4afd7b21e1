"""From a sweep of Hydra to jobs of Towline, and back to what its runs returned."""

from __future__ import annotations

import copy
import inspect
import json
import logging
import os
import pickle
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields as fields_of
from pathlib import Path
from typing import Any

import cloudpickle
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, configure_log, filter_overrides, setup_globals
from hydra.errors import CompactHydraException
from omegaconf import MissingMandatoryValue, OmegaConf, open_dict, read_write

from towline.client.batches import ask_of_batch
from towline.client.session import Session
from towline.errors import TowlineError, UsageError
from towline.functions.failures import failure
from towline.functions.remote.wire import VALUE, Frame
from towline.sweeps.fields import job_options, packs_of, resources_of, unused
from towline.sweeps.home import leave_behind
from towline.sweeps.sweep import Plan, Sweep, submit, wait

log = logging.getLogger("towline")
BASIC = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"
#: The module that runs a run, as it is called where that is.
PROGRAM = "towline_hydra"


class RunFailed(TowlineError):
    """A run that ended without a value and without an exception."""

    code = "run_failed"


def launch(launcher: Any, overrides: list[list[str]], first: int) -> Sequence[JobReturn]:
    """Run them on the launcher's cluster; what they returned, in the order of the overrides."""
    setup_globals()
    config = launcher.config
    configure_log(config.hydra.hydra_logging, config.hydra.verbose)
    if not overrides:
        log.info("nothing to run")
        return []
    try:
        return Launch(launcher, overrides, first).run()
    except TowlineError as error:
        # In Hydra's way: the words, without a traceback.
        raise CompactHydraException(str(error)) from None


class Launch:
    """One call of the launcher."""

    def __init__(self, launcher: Any, overrides: list[list[str]], first: int) -> None:
        self.launcher = launcher
        self.config = launcher.config
        self.fields = plain_fields(launcher.fields)
        self.overrides = overrides
        self.first = first
        self.session = Session()

    def run(self) -> Sequence[JobReturn]:
        fields = self.fields
        waits = bool(fields.get("wait_for_completion"))
        if not waits and self.config.hydra.sweeper._target_ != BASIC:
            raise UsageError(
                "this sweeper wants the values of its runs, and wait_for_completion is false",
                "set hydra.launcher.wait_for_completion=true",
            )
        packs, parallel = packs_of(len(self.overrides), fields)
        resources, options = resources_of(fields), job_options(fields)
        options["cluster"] = self._cluster(options.get("cluster"))
        cwd = self.config.hydra.runtime.cwd
        folder = Path(self.config.hydra.sweep.dir).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        configs = self._composed()
        plan = Plan(
            folder=str(cwd),
            sweep=str(folder),
            packs=packs,
            parallel=parallel,
            titles=[filter_overrides(one) for one in self.overrides],
            program=PROGRAM,
            resources=resources,
            verbose=bool(fields.get("verbose")),
            raised=[one.name for one in fields_of(JobReturn) if one.name.startswith("_remote_")],
            sys_path=[path for path in sys.path if path and os.path.isabs(path)],
        )
        sweep = submit(
            self.session,
            plan,
            name=str(fields.get("name") or "sweep"),
            files=self._files(configs),
            packages={PROGRAM: Path(__file__).with_name("_run.py")},
            options={name: value for name, value in options.items() if value is not None},
            python=str(fields.get("python") or ""),
            max_parallel=int(fields.get("array_parallelism") or 0) if len(packs) > 1 else 0,
        )
        self._tell(sweep, plan)
        if not waits:
            if options["cluster"] != "local":
                leave_behind(sweep.name)
            return []
        self._wait(sweep)
        returns = [
            returned(config, sweep.result(number), str(cwd), str(folder))
            for number, config in enumerate(configs)
        ]
        self._tell_failures(sweep, returns)
        sweep.tidy()
        return returns

    def _cluster(self, named: str | None) -> str | None:
        """The cluster that is meant where none is named."""
        kind = self.launcher.queue
        if named or not kind:
            return named
        listed = self.session.call("GET", "/v1/clusters")["clusters"]
        found = [one["name"] for one in listed if one["kind"] == kind]
        if len(found) != 1:
            which = f"there are {', '.join(found)}" if found else "none is configured"
            raise UsageError(
                f"which {kind.title()} is meant? {which}",
                "name it: hydra.launcher.cluster=NAME; add one: tow clusters add NAME --slurm HOST",
            )
        return str(found[0])

    def _composed(self) -> list[Any]:
        """The configuration of every run, as it is now and here."""
        loader, found = self.launcher.hydra_context.config_loader, []
        for place, overrides in enumerate(self.overrides):
            config = loader.load_sweep_config(self.config, overrides)
            with open_dict(config):
                config.hydra.job.id = str(self.first + place)
                config.hydra.job.num = self.first + place
            found.append(config)
        return found

    def _files(self, configs: list[Any]) -> dict[str, bytes]:
        # What plugins define may not be installed over there.
        for name in {
            ".".join(name.split(".")[:2]) for name in sys.modules if "hydra_plugins." in name
        }:
            cloudpickle.register_pickle_by_value(sys.modules[name])
        launcher = self.launcher
        state = Singleton.get_state()
        try:
            function = launcher.task_function
            shared = cloudpickle.dumps((launcher.hydra_context, function, state))
        except Exception as error:
            function = of_script(launcher.task_function, Path(self.config.hydra.runtime.cwd), error)
            shared = cloudpickle.dumps((launcher.hydra_context, function, state))
        runs = {f"run-{place}": cloudpickle.dumps(one) for place, one in enumerate(configs)}
        return {"shared": shared, **runs}

    def _tell(self, sweep: Sweep, plan: Plan) -> None:
        jobs = len(plan.packs)
        log.info(
            "sweep %s: %d runs in %d jobs · %s", sweep.name, len(plan.titles), jobs, plan.sweep
        )
        for number, title in enumerate(plan.titles):
            log.info("\t#%d : %s", self.first + number, " ".join(title))
        if left := unused(self.fields):
            log.warning("these fields of hydra.launcher do nothing here: %s", ", ".join(left))
        log.info("follow it: tow batch show -f %s", sweep.name)

    def _wait(self, sweep: Sweep) -> None:
        try:
            wait(self.session, sweep, lambda event: None)
        except KeyboardInterrupt:
            log.error("stopping sweep %s", sweep.name)
            ask_of_batch(self.session, sweep.name, "stop", {"now": True})
            wait(self.session, sweep, lambda event: None)
            raise

    def _tell_failures(self, sweep: Sweep, returns: list[JobReturn]) -> None:
        failed = [one for one in returns if one.status == JobStatus.FAILED]
        if not failed:
            return
        for one in failed:
            error = one._return_value
            words = str(error.__cause__ or "").strip().strip('"').strip()
            log.error(
                "run %s failed: %s: %s%s",
                f"#{one.hydra_cfg.hydra.job.num} [{' '.join(one.overrides)}]",
                type(error).__name__,
                error,
                f"\n{words}" if words else "",
            )
        log.error("%d of %d runs failed · tow batch log %s", len(failed), len(returns), sweep.name)


def plain_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """What the launcher was told, as plain values; what is still missing is named."""
    made = OmegaConf.create(fields)
    try:
        found = OmegaConf.to_container(made, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        name = getattr(error, "full_key", None) or "a field"
        raise UsageError(
            f"hydra.launcher.{name} has no value", "it is ??? in the configuration"
        ) from None
    assert isinstance(found, dict)
    return {str(name): value for name, value in found.items()}


def of_script(function: Callable[..., Any], folder: Path, error: Exception) -> tuple[str, str]:
    """The script and name of a function that cannot travel by itself: both are found over there."""
    try:
        path = Path(inspect.getfile(inspect.unwrap(function))).absolute()
        name = function.__qualname__
    except (TypeError, AttributeError):
        path, name = Path(), "<"
    if "<" in name or not path.is_file():
        raise UsageError(f"the task function cannot travel: {error}") from error
    inside = path.relative_to(folder) if path.is_relative_to(folder) else path
    return str(inside), name


def returned(config: Any, came: Frame | None, cwd: str, folder: str) -> JobReturn:
    """What a run returned, as Hydra's sweepers want it."""
    made = JobReturn()
    task = copy.deepcopy(config)
    with read_write(task), open_dict(task):
        del task["hydra"]
    made.cfg = task
    subdir = str(OmegaConf.select(config, "hydra.sweep.subdir"))
    with read_write(config), open_dict(config):
        config.hydra.runtime.output_dir = os.path.join(folder, subdir)
    made.hydra_cfg = OmegaConf.masked_copy(config, "hydra")
    made.overrides = OmegaConf.to_container(config.hydra.overrides.task)  # type: ignore[assignment]
    made.task_name = config.hydra.job.name
    made.working_dir = cwd
    made.status = JobStatus.FAILED
    if came is None:
        made.return_value = RunFailed("it left no result: its job was stopped, lost or never began")
        return made
    kind, _, payload = came
    if kind not in (VALUE, b"R"):
        made.return_value = RunFailed(_how(json.loads(payload)))
        return made
    told = pickle.loads(payload)
    if "working_dir" in told:
        made.working_dir = _at_home(told["working_dir"], told["home"], [folder, cwd])
    if "value" in told:
        made.return_value = pickle.loads(told["value"])
        made.status = JobStatus.COMPLETED
        return made
    for name, value in told.get("raised", {}).items():
        setattr(made, name, value)
    error = failure(told["failure"])
    if not isinstance(error, Exception):
        # It would end the whole sweep here.
        cause, words = error.__cause__, f"{type(error).__name__}: {error}"
        if isinstance(error, SystemExit):
            words = f"it left with exit code {error.code}"
        error = RunFailed(words)
        error.__cause__ = cause
    made.return_value = error
    return made


def _at_home(path: str, there: list[str], here: list[str]) -> str:
    """A path on the machine as it is called here."""
    for theirs, ours in zip(there, here, strict=True):
        if path == theirs or path.startswith(theirs + "/"):
            return ours + path[len(theirs) :]
    return path


def _how(told: dict[str, Any]) -> str:
    """How a process ended that left no word."""
    number = told.get("signal")
    if number is None:
        return f"it ended with exit code {told.get('code')} and no return value"
    name = signal.strsignal(number) if number in set(signal.Signals) else None
    word = "killed by" if number == signal.SIGKILL else "ended by"
    return f"{word} signal {number}" + (f" ({name.lower()})" if name else "")
