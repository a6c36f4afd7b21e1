"""A search by Optuna as a steady stream: no trial waits for others that began with it."""

from __future__ import annotations

import json
import logging
import queue
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Transformer
from hydra.core.utils import JobReturn, JobStatus, configure_log, setup_globals
from hydra.errors import CompactHydraException
from omegaconf import OmegaConf

from hydra_plugins.towline_launcher._launching import Launch
from towline.client.batches import ask_of_batch, jobs_of
from towline.client.job import Job
from towline.errors import TowlineError, UsageError
from towline.sweeps.waiting import wait

log = logging.getLogger("towline")
#: How often runs are asked for what they reported.
_LOOK_S = 1.0
_MODULES = ("optuna.samplers.", "optuna.pruners.")


def search(sweeper: Any, arguments: list[str]) -> Any:
    """Search; the best that was found is in the sweep's folder, as Hydra's own leaves it."""
    setup_globals()
    config = sweeper.config
    configure_log(config.hydra.hydra_logging, config.hydra.verbose)
    try:
        return Search(sweeper, arguments).run()
    except TowlineError as error:
        raise CompactHydraException(str(error)) from None


@dataclass
class Attempted:
    """A trial under way."""

    trial: Any
    launch: Launch
    #: How many of its reports Optuna was told.
    told: int = 0
    is_pruned: bool = False
    error: BaseException | None = None


class Search:
    """One study, and the trials of it that are under way."""

    def __init__(self, sweeper: Any, arguments: list[str]) -> None:
        try:
            import optuna
        except ImportError:
            raise UsageError(
                "hydra/sweeper=towline_optuna needs Optuna", "pip install 'optuna>=3'"
            ) from None
        self.optuna = optuna
        self.launcher, self.config = sweeper.launcher, sweeper.config
        if not hasattr(self.launcher, "leader"):
            raise UsageError(
                "hydra/sweeper=towline_optuna launches its trials one by one",
                "use it with hydra/launcher=towline",
            )
        self.fields = plain(sweeper.fields)
        self.directions = directions_of(self.fields["direction"])
        params = self.fields.get("params") or {}
        words = [*(f"{name}={value}" for name, value in params.items()), *arguments]
        self.space, self.fixed = space_of(words, optuna.distributions)
        self.count = at_least(self.fields, "n_trials", 1)
        self.at_a_time = at_least(self.fields, "n_jobs", 1)
        self.may_fail = float(self.fields["max_failure_rate"]) * self.count
        self.pruner = made(self.fields.get("pruner"), "pruner")
        self.study = optuna.create_study(
            study_name=self.fields.get("study_name"),
            storage=self.fields.get("storage"),
            sampler=made(self.fields.get("sampler"), "sampler"),
            pruner=self.pruner,
            directions=self.directions,
            load_if_exists=True,
        )
        self.over: queue.SimpleQueue[Attempted] = queue.SimpleQueue()
        self.under_way: list[Attempted] = []
        self.begun = 0
        self.failures: list[JobReturn] = []

    def run(self) -> Any:
        log.info("study %s: %d trials", self.study.study_name, self.count)
        try:
            while self.begun < self.count or self.under_way:
                while self.begun < self.count and len(self.under_way) < self.at_a_time:
                    self._begin()
                self._look()
        except BaseException as error:
            self._stop()
            if isinstance(error, KeyboardInterrupt):
                log.error("stopped: %d trials were begun", self.begun)
                raise SystemExit(130) from None
            raise
        return self._tell_best()

    def _begin(self) -> None:
        trial = self.study.ask(self.space)
        words = [*(f"{name}={value}" for name, value in trial.params.items()), *self.fixed]
        launch = Launch(self.launcher, [words], self.begun)
        attempted = Attempted(trial, launch)
        try:
            sweep = launch.begin()
        except BaseException:
            self._tell(trial, state=self.optuna.trial.TrialState.FAIL)
            raise
        log.info("\t#%d : %s · %s", self.begun, " ".join(words), sweep.name)
        self.begun += 1
        self.under_way.append(attempted)
        threading.Thread(target=self._await, args=(attempted,), daemon=True).start()

    def _await(self, attempted: Attempted) -> None:
        """In a thread of its own: until the trial is home."""
        try:
            wait(attempted.launch.session, attempted.launch.sweep)
        except BaseException as error:
            attempted.error = error
        self.over.put(attempted)

    def _look(self) -> None:
        """Take a trial that ended, or see what those under way report."""
        try:
            attempted = self.over.get(timeout=_LOOK_S if self.pruner is not None else None)
        except queue.Empty:
            for one in self.under_way:
                self._prune(one)
            return
        self.under_way.remove(attempted)
        if attempted.error is not None:
            raise attempted.error
        self._end(attempted)

    def _prune(self, attempted: Attempted) -> None:
        """Tell Optuna what a trial reports, and stop it where that is what Optuna wants."""
        if attempted.is_pruned:
            return
        self._hear(attempted)
        if attempted.told and attempted.trial.should_prune():
            attempted.is_pruned = True
            sweep = attempted.launch.sweep
            log.info("trial %d is pruned", attempted.trial.number)
            ask_of_batch(attempted.launch.session, sweep.tries[-1].batch, "stop", {"now": True})

    def _hear(self, attempted: Attempted) -> None:
        for line in reported(attempted.launch)[attempted.told :]:
            attempted.trial.report(float(line["value"]), int(line["step"]))
            attempted.told += 1

    def _end(self, attempted: Attempted) -> None:
        states, trial = self.optuna.trial.TrialState, attempted.trial
        if attempted.is_pruned:
            self._tell(trial, state=states.PRUNED)
            return
        if self.pruner is not None:
            self._hear(attempted)
        [one] = attempted.launch.finish()
        values = None
        if one.status == JobStatus.COMPLETED:
            values = values_of(one.return_value, len(self.directions))
            if values is None:
                log.error(
                    "trial %d returned %r, which is not %d numbers",
                    trial.number,
                    one.return_value,
                    len(self.directions),
                )
        if values is not None:
            self._tell(trial, values=values)
            return
        self._tell(trial, state=states.FAIL)
        self.failures.append(one)
        if len(self.failures) > self.may_fail:
            log.error("%d of %d trials failed", len(self.failures), self.count)
            # What it raised is raised here.
            _ = one.return_value
            raise UsageError("a trial returned no number", "its main function returns what counts")

    def _tell(self, trial: Any, **what: Any) -> None:
        try:
            self.study.tell(trial, **what)
        except RuntimeError:
            if not self.study.trials[trial.number].state.is_finished():
                raise
            # It is noted; a sampler that has no more to offer says so in this way.
            self.count = self.begun

    def _stop(self) -> None:
        for attempted in self.under_way:
            sweep = attempted.launch.sweep
            ask_of_batch(attempted.launch.session, sweep.tries[-1].batch, "stop", {"now": True})
            self._tell(attempted.trial, state=self.optuna.trial.TrialState.FAIL)

    def _tell_best(self) -> Any:
        if len(self.directions) > 1:
            front = [{"params": t.params, "values": t.values} for t in self.study.best_trials]
            found: dict[str, Any] = {"name": "optuna", "solutions": front}
            log.info("%d solutions of which none is better than another", len(front))
        else:
            best = self.study.best_trial
            found = {"name": "optuna", "best_params": best.params, "best_value": best.value}
            log.info("best: %s at %s", best.value, best.params)
        path = Path(self.config.hydra.sweep.dir) / "optimization_results.yaml"
        OmegaConf.save(OmegaConf.create(found), path)
        return None


def plain(fields: dict[str, Any]) -> dict[str, Any]:
    """What the sweeper was told, as plain values, but for what Hydra 1.3 has made already."""
    return {
        name: OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        for name, value in fields.items()
    }


def at_least(fields: dict[str, Any], name: str, least: int) -> int:
    try:
        number = int(fields[name])
    except (TypeError, ValueError):
        number = least - 1
    if number < least:
        raise UsageError(
            f"hydra.sweeper.{name} is a whole number from {least} on, not {fields[name]!r}"
        )
    return number


def directions_of(given: Any) -> list[str]:
    found = [str(one) for one in (given if isinstance(given, list) else [given])]
    for one in found:
        if one not in ("minimize", "maximize"):
            raise UsageError(f"hydra.sweeper.direction is minimize or maximize, not {one!r}")
    return found


def made(given: Any, what: str) -> Any:
    """A sampler or pruner of Optuna's, of its name and arguments."""
    from hydra.utils import get_class

    if given is None or not isinstance(given, dict):
        return given
    arguments = dict(given)
    target = str(arguments.pop("_target_", ""))
    if not target.startswith(_MODULES):
        raise UsageError(
            f"hydra.sweeper.{what}._target_ is one of Optuna's, not {target!r}",
            "e.g. optuna.samplers.TPESampler, optuna.pruners.MedianPruner",
        )
    try:
        return get_class(target)(**arguments)
    except Exception as error:
        raise UsageError(f"hydra.sweeper.{what}: {error}") from None


def space_of(words: list[str], kinds: Any) -> tuple[dict[str, Any], list[str]]:
    """What is searched, by key; and what is the same in every trial."""
    space: dict[str, Any] = {}
    fixed: dict[str, str] = {}
    for one in OverridesParser.create().parse_overrides(words):
        name = one.get_key_element()
        # What comes later counts, as everywhere on Hydra's command line.
        space.pop(name, None)
        fixed.pop(name, None)
        if one.is_sweep_override():
            space[name] = distribution(one, kinds)
        else:
            assert one.input_line is not None
            fixed[name] = one.input_line
    if not space:
        raise UsageError(
            "there is nothing to search",
            "give a parameter a range: 'lr=interval(0.001, 0.1)', model=a,b",
        )
    return space, list(fixed.values())


def distribution(override: Any, kinds: Any) -> Any:
    value = override.value()
    if override.is_interval_sweep():
        both = isinstance(value.start, int) and isinstance(value.end, int)
        kind = kinds.IntDistribution if both else kinds.FloatDistribution
        return kind(value.start, value.end, log="log" in value.tags)
    if override.is_range_sweep() and not value.shuffle and not value.transformers:
        numbers = sorted(value.range())
        if len(numbers) > 1 and all(isinstance(one, int) for one in numbers):
            step = numbers[1] - numbers[0]
            return kinds.IntDistribution(numbers[0], numbers[-1], step=step)
    # Every other kind is so many values.
    found = list(override.sweep_iterator(transformer=Transformer.encode))
    if not found:
        raise UsageError(f"there is no value in {override.input_line}")
    return kinds.CategoricalDistribution(found)


def values_of(returned: Any, count: int) -> list[float] | None:
    """The numbers that a run returned; None: it did not."""
    try:
        found = [float(returned)] if count == 1 else [float(one) for one in returned]
    except (TypeError, ValueError):
        return None
    return found if len(found) == count else None


def reported(launch: Launch) -> list[dict[str, Any]]:
    """What a trial reported so far: `towline.report(value, step)`."""
    sweep = launch.sweep
    try:
        data = (sweep.place / "0.reports").read_bytes()
    except OSError:
        try:
            job = jobs_of(launch.session, sweep.tries[-1].batch, limit=1)["jobs"][0]
            if not job.get("started"):
                return []
            data = Job(launch.session, job).read(sweep.path_there("0.reports"))
        except TowlineError:
            return []
    # What is half written is whole the next time.
    return [json.loads(line) for line in data.splitlines(keepends=True) if line.endswith(b"\n")]
