"""What runs returned, as Hydra's sweepers want it."""

from __future__ import annotations

import copy
import json
import pickle
import signal
from collections.abc import Callable
from typing import Any

from hydra.core.utils import JobReturn, JobRuntime, JobStatus
from omegaconf import OmegaConf, open_dict, read_write

from towline.errors import TowlineError
from towline.functions.failures import failure
from towline.functions.remote.wire import VALUE, Frame


class RunFailed(TowlineError):
    """A run that ended without a value and without an exception."""

    code = "run_failed"


class Returned(JobReturn):
    """One whose configurations are made when somebody looks at them: hardly anybody does."""

    #: Makes the configuration of the run.
    _compose: Callable[[], Any] | None = None
    _cfg: Any = None
    _hydra_cfg: Any = None

    def _composed(self) -> None:
        make, self._compose = self._compose, None
        if make is None:
            return
        config = make()
        self._hydra_cfg = OmegaConf.masked_copy(config, "hydra")
        self._cfg = config
        with read_write(config), open_dict(config):
            del config["hydra"]

    @property
    def cfg(self) -> Any:  # type: ignore[override]
        self._composed()
        return self._cfg

    @cfg.setter
    def cfg(self, value: Any) -> None:
        self._cfg = value

    @property
    def hydra_cfg(self) -> Any:  # type: ignore[override]
        self._composed()
        return self._hydra_cfg

    @hydra_cfg.setter
    def hydra_cfg(self, value: Any) -> None:
        self._hydra_cfg = value

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Travel as one of Hydra's own: whoever loads it need not have Towline."""
        plain = JobReturn(cfg=self.cfg, hydra_cfg=self.hydra_cfg)
        plain.__dict__.update({k: v for k, v in vars(self).items() if k in vars(plain)})
        return plain.__reduce_ex__(protocol)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        made = Returned(cfg=copy.deepcopy(self.cfg), hydra_cfg=copy.deepcopy(self.hydra_cfg))
        made.__dict__.update(
            {k: v for k, v in vars(self).items() if k not in ("_cfg", "_hydra_cfg")}
        )
        return made


class Run:
    """One run of a sweep, as it was asked for."""

    def __init__(self, number: int, overrides: list[str], compose: Callable[[], Any]) -> None:
        self.number = number
        self.overrides = overrides
        self._compose = compose

    def composed(self, output_dir: str) -> Any:
        """Its configuration, as it was when it ran."""
        config = self._compose()
        with read_write(config), open_dict(config):
            config.hydra.job.id = str(self.number)
            config.hydra.job.num = self.number
            if output_dir:
                config.hydra.runtime.output_dir = output_dir
        OmegaConf.set_readonly(config.hydra, True)
        return config


def returned(run: Run, came: Frame | None, cwd: str, folder: str) -> JobReturn:
    """What became of a run."""
    made = Returned()
    made.overrides = run.overrides
    made.task_name = JobRuntime.instance().get("name")
    made.working_dir = cwd
    made.status = JobStatus.FAILED
    output_dir = ""
    if came is None:
        made.return_value = RunFailed("it left no result: its job was stopped, lost or never began")
    elif came[0] not in (VALUE, b"R"):
        made.return_value = RunFailed(_how(json.loads(came[2])))
    else:
        told = pickle.loads(came[2])
        if "working_dir" in told:
            there = told["home"]
            made.working_dir = _at_home(told["working_dir"], there, [folder, cwd])
            output_dir = _at_home(told["output_dir"], there, [folder, cwd])
        _settle(made, told)
    made._compose = lambda: run.composed(output_dir)
    return made


def _settle(made: JobReturn, told: dict[str, Any]) -> None:
    if "value" in told:
        made.return_value = pickle.loads(told["value"])
        made.status = JobStatus.COMPLETED
        return
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


def _at_home(path: str, there: list[str], here: list[str]) -> str:
    """A path on the machine as it is called here."""
    for theirs, ours in zip(there, here, strict=True):
        if path == theirs or path.startswith(theirs + "/"):
            return ours + path[len(theirs) :]
    return path


def _how(told: dict[str, Any]) -> str:
    """How a process ended that left no word."""
    number = told.get("signal")
    if told.get("oom"):
        return "killed because its machine ran out of memory"
    if number is None:
        return f"it ended with exit code {told.get('code')} and no return value"
    name = signal.strsignal(number) if number in set(signal.Signals) else None
    word = "killed by" if number == signal.SIGKILL else "ended by"
    return f"{word} signal {number}" + (f" ({name.lower()})" if name else "")
