"""From a sweep of Hydra to jobs of Towline, and back to what its runs returned."""

from __future__ import annotations

import copy
import fcntl
import inspect
import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields as fields_of
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, configure_log, filter_overrides, setup_globals
from hydra.errors import CompactHydraException
from omegaconf import MissingMandatoryValue, OmegaConf

from hydra_plugins.towline_launcher._remembering import recipes_for
from hydra_plugins.towline_launcher._returns import Run, returned
from hydra_plugins.towline_launcher._there._recipes import Recipe, apply
from hydra_plugins.towline_launcher._waiting import wait_for
from towline.client.session import Session
from towline.client.transport import with_query
from towline.errors import TowlineError, UsageError
from towline.sweeps.fields import carries_of, job_options, packs_of, resources_of, unused
from towline.sweeps.home import leave_behind
from towline.sweeps.records import SweepRecords
from towline.sweeps.sweep import Plan, Sweep, submit

log = logging.getLogger("towline")
BASIC = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"
#: Folders of sweeps of this process, which are locked.
_TAKEN: dict[Path, int] = {}
ISOLATIONS = ("fork", "process")
#: The package that runs a run, as it is called where that is.
PROGRAM = "towline_hydra"


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
        self.records = SweepRecords(self.session)
        self.isolation = str(self.fields.get("isolation") or ISOLATIONS[0])
        if self.isolation not in ISOLATIONS:
            raise UsageError(f"hydra.launcher.isolation is one of {', '.join(ISOLATIONS)}")

    def run(self) -> Sequence[JobReturn]:
        waits = bool(self.fields.get("wait_for_completion"))
        if not waits and self.config.hydra.sweeper._target_ != BASIC:
            raise UsageError(
                "this sweeper wants the values of its runs, and wait_for_completion is false",
                "set hydra.launcher.wait_for_completion=true",
            )
        sweep = self.begin()
        self._tell(sweep)
        if not waits:
            self.leave()
            return []
        wait_for(self.session, sweep, self.leave)
        return self.finish()

    def begin(self) -> Sweep:
        """Submit it."""
        fields = self.fields
        packs, parallel = packs_of(len(self.overrides), fields)
        resources, options = resources_of(fields), job_options(fields)
        options["cluster"] = self.cluster = self._cluster(options.get("cluster"))
        if "gpus" in options and not self.launcher.needs_gpus and not self._has_gpus():
            log.warning("there is no GPU on this machine: runs get none")
            del options["gpus"]
        folder = self._folder()
        self.runs = self._runs()
        plan = Plan(
            folder=str(self.config.hydra.runtime.cwd),
            sweep=str(folder),
            packs=packs,
            parallel=parallel,
            titles=[filter_overrides(one) for one in self.overrides],
            program=f"{PROGRAM}._run",
            first=self.first,
            resources=resources,
            tmpdir_vars=sorted({"TMPDIR", *(fields.get("tmpdir_vars") or ())}),
            verbose=bool(fields.get("verbose")),
            raised=[one.name for one in fields_of(JobReturn) if one.name.startswith("_remote_")],
            sys_path=[path for path in sys.path if path and os.path.isabs(path)],
        )
        self.sweep = submit(
            self.session,
            self.records,
            plan,
            name=str(fields.get("name") or "sweep"),
            files=self._files(),
            packages={PROGRAM: Path(__file__).with_name("_there")},
            options={name: value for name, value in options.items() if value is not None},
            python=str(fields.get("python") or ""),
            max_parallel=int(fields.get("array_parallelism") or 0) if len(packs) > 1 else 0,
            carries=carries_of(fields),
            leader=self.launcher.leader,
        )
        if self.launcher.leader:
            self.records.follow_up(self.launcher.leader, self.sweep)
        else:
            self.launcher.leader = self.sweep.token
        return self.sweep

    def finish(self) -> list[JobReturn]:
        """What its runs returned, once it has ended and is home."""
        sweep = self.sweep
        returns = [
            returned(run, sweep.result(place), sweep.folder, sweep.sweep)
            for place, run in enumerate(self.runs)
        ]
        self._tell_failures(sweep, returns)
        if all(one.status == JobStatus.COMPLETED for one in returns):
            sweep.tidy()
        return returns

    def _folder(self) -> Path:
        folder = Path(self.config.hydra.sweep.dir).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        take(folder)
        return folder

    def leave(self) -> None:
        """Have it come home without us."""
        if self.cluster != "local" or self.sweep.carries:
            leave_behind(self.sweep.token)

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

    def _has_gpus(self) -> bool:
        query = with_query("/v1/machines", cluster=self.cluster)
        return any(one.get("gpus") for one in self.session.call("GET", query)["machines"])

    def _runs(self) -> list[Run]:
        """Every run, with what makes its configuration as it is now and here."""
        loader = self.launcher.hydra_context.config_loader
        self.bases, self.recipes = recipes_for(loader, self.config, self.overrides)
        found = []
        for place, recipe in enumerate(self.recipes):
            base = self.bases[recipe.base]
            task = recipe.task or list(base.hydra.overrides.task)
            found.append(Run(self.first + place, task, partial(composed, base, recipe)))
        return found

    def _files(self) -> dict[str, bytes]:
        # What plugins define may not be installed over there.
        for name in {
            ".".join(name.split(".")[:2]) for name in sys.modules if "hydra_plugins." in name
        }:
            cloudpickle.register_pickle_by_value(sys.modules[name])
        launcher = self.launcher
        context = copy.copy(launcher.hydra_context)
        context.config_loader = getattr(context.config_loader, "stock", context.config_loader)
        state = Singleton.get_state()
        try:
            function = launcher.task_function
            shared = cloudpickle.dumps((context, function, state))
        except Exception as error:
            function = of_script(launcher.task_function, Path(self.config.hydra.runtime.cwd), error)
            shared = cloudpickle.dumps((context, function, state))
        recipes = [(one.base, one.values, one.task, one.dirname) for one in self.recipes]
        runs = ([cloudpickle.dumps(base) for base in self.bases], recipes)
        settings = {"first": self.first, "isolation": self.isolation}
        return {
            "shared": shared,
            "runs": cloudpickle.dumps(runs),
            "settings": json.dumps(settings).encode(),
        }

    def _tell(self, sweep: Sweep) -> None:
        runs, jobs = len(sweep.titles), len(sweep.tries[0].packs)
        log.info("sweep %s: %d runs in %d jobs · %s", sweep.name, runs, jobs, sweep.sweep)
        for number, title in enumerate(sweep.titles):
            log.info("\t#%d : %s", self.first + number, " ".join(title))
        if left := unused(self.fields):
            log.warning("these fields of hydra.launcher do nothing here: %s", ", ".join(left))
        log.info("follow it: tow sweep status -f %s", sweep.name)

    def _tell_failures(self, sweep: Sweep, returns: list[JobReturn]) -> None:
        failed = [one for one in returns if one.status == JobStatus.FAILED]
        if not failed:
            return
        for place, one in enumerate(returns):
            if one.status != JobStatus.FAILED:
                continue
            error = one._return_value
            words = str(error.__cause__ or "").strip().strip('"').strip()
            log.error(
                "run %s failed: %s: %s%s",
                f"#{self.first + place} [{' '.join(one.overrides)}]",
                type(error).__name__,
                error,
                f"\n{words}" if words else "",
            )
        log.error(
            "%d of %d runs failed · tow sweep retry %s", len(failed), len(returns), sweep.name
        )


def take(folder: Path) -> None:
    """Have the sweep's folder for ourselves: two sweeps of the same second have the same one."""
    if folder in _TAKEN:
        return
    place = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(place)
        raise UsageError(
            f"another sweep writes into {folder}", "start this one again, or set hydra.sweep.dir"
        ) from None
    except OSError:
        pass  # A disk without locks.
    _TAKEN[folder] = place


def composed(base: Any, recipe: Recipe) -> Any:
    """The configuration of a run."""
    config = copy.deepcopy(base)
    apply(config, recipe)
    return config


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
