"""What a sweep is told, in the words of other launchers -> what a job of Towline is asked for.

The words are those of hydra-submitit-launcher and of clusterduck, so that their configurations
work as they stand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from towline.errors import UsageError

RESOURCES = ("cpu", "cuda", "rendering", "stagger")
#: Options of a queue that have a field of their own.
_OF_QUEUE = (
    *("partition", "qos", "constraint", "exclude", "gres", "account"),
    *("cpus_per_gpu", "gpus_per_task", "mem_per_gpu", "mem_per_cpu"),
)
#: A job of a sweep is one process.
_ONE = ("nodes", "tasks_per_node")
#: What is accepted and does nothing here, with the values that ask for nothing.
_UNUSED: dict[str, tuple[Any, ...]] = {
    "comment": (None,),
    "signal_delay_s": (120, None),
    "srun_args": (None, []),
    "srun_kwargs": (None, {}),
    "teardown": (None, []),
    "do_submit": (True, None),
    "local_debug": (False, None),
}
#: Fields that say nothing about the jobs.
_ELSEWHERE = (
    *("cluster", "request", "name", "python", "folder", "wait_for_completion", "verbose"),
    *("parallel_runs_per_node", "total_runs_per_node", "resources_config", "isolation"),
    *("submitit_folder", "stderr_to_stdout", "use_srun", "array_parallelism", "max_num_timeout"),
    *("log_folder", "sbatch_kwargs", "tmpdir_vars"),
    *("timeout_min", "cpus_per_task", "gpus_per_node", "mem_gb", "setup", "additional_parameters"),
)


def job_options(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the submission of each job of the sweep."""
    for name in _ONE:
        if fields.get(name) not in (1, None):
            raise UsageError(
                f"hydra.launcher.{name}={fields[name]} cannot be done here",
                "each job of a sweep is one process; total_runs_per_node says how many runs it has",
            )
    minutes = fields.get("timeout_min")
    found = {
        "cluster": fields.get("cluster"),
        "request": fields.get("request"),
        "cpus": fields.get("cpus_per_task"),
        "gpus": fields.get("gpus_per_node"),
        "mem": None if fields.get("mem_gb") is None else f"{fields['mem_gb']}G",
        "time": None if not minutes else _time_limit(minutes),
        "setup": "\n".join(fields.get("setup") or ()) or None,
        "options": queue_options(fields) or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def carries_of(fields: Mapping[str, Any]) -> int:
    """How often what a job had no time for goes into another one."""
    return _number("max_num_timeout", fields.get("max_num_timeout") or 0, 0)


def unused(fields: Mapping[str, Any]) -> list[str]:
    """Fields that were set and do nothing here."""
    return [name for name, plain in _UNUSED.items() if fields.get(name) not in plain]


def queue_options(fields: Mapping[str, Any]) -> dict[str, str]:
    """What is said to the queue: its own fields, those that were added, and then the rest."""
    known = {*_OF_QUEUE, *_ONE, *_UNUSED, *_ELSEWHERE}
    given = {name: fields.get(name) for name in _OF_QUEUE}
    given |= {name: value for name, value in fields.items() if name not in known}
    for more in ("additional_parameters", "sbatch_kwargs"):
        given |= dict(fields.get(more) or {})
    # One process per job is what it is anyway.
    if str(given.get("ntasks")) == "1":
        del given["ntasks"]
    named = {name.replace("_", "-"): value for name, value in given.items()}
    return {name: str(value) for name, value in named.items() if value is not None}


def packs_of(count: int, fields: Mapping[str, Any]) -> tuple[list[list[int]], int]:
    """The runs of each job, and how many of them run at a time.

    Where nothing is said of runs per node, each run has a job of its own.
    """
    parallel, total = fields.get("parallel_runs_per_node"), fields.get("total_runs_per_node")
    if total is not None:
        total = _number("total_runs_per_node", total, 0)
    if parallel is None:
        parallel, total = 1, total if total is not None else 1
    parallel = _number("parallel_runs_per_node", parallel, 1)
    size = min(total or count, count) or 1
    numbers = list(range(count))
    return [numbers[place : place + size] for place in range(0, count, size)], parallel


def resources_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What is divided among the runs of a job; a mapping, or a mere list of names."""
    given = fields.get("resources_config") or {}
    found = dict(given) if isinstance(given, Mapping) else dict.fromkeys(given)
    for kind in found:
        if kind not in RESOURCES:
            raise UsageError(
                f"hydra.launcher.resources_config has no {kind!r}",
                f"it has: {', '.join(RESOURCES)}",
            )
    return found


def _time_limit(minutes: Any) -> str:
    try:
        seconds = float(minutes) * 60
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise UsageError(f"hydra.launcher.timeout_min is a number of minutes, not {minutes!r}")
    return f"{seconds:g}s" if seconds % 60 else f"{int(seconds) // 60}min"


def _number(name: str, value: Any, least: int) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = least - 1
    if number < least or number != float(value):
        raise UsageError(f"hydra.launcher.{name} is a whole number from {least} on, not {value!r}")
    return number
