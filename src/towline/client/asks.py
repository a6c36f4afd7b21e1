"""What a program asks for, as the Engine is asked: the options of `towline.submit`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypedDict

from towline.client.submission import own_environment, this_folder, umask
from towline.errors import UsageError
from towline.model.lines import SHELL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Options(TypedDict, total=False):
    """The options of a submission; each means what the option of `tow run` means."""

    #: Where to run it; by default the configured cluster.
    cluster: str
    #: What it needs, e.g. "2:[gtx1070]"; or, for one process:
    request: str
    cpus: str | float
    #: Memory, e.g. "10G".
    mem: str
    #: How many, e.g. 2 or "2:gtx1070".
    gpus: str | int
    #: No other job on its machines.
    exclusive: bool
    sandbox: bool
    title: str
    #: Variables for it.
    env: Mapping[str, str]
    #: Stop it after this long: seconds, or text such as "2h".
    time: str | float
    retries: int
    priority: int
    #: Shell text to run first.
    setup: str
    #: Patterns of what travels although git ignores it, and of what does not travel.
    include: Sequence[str]
    exclude: Sequence[str]
    #: Bring only these paths home, not all that it makes.
    back: Sequence[str]
    #: False: bring nothing home when it ends.
    results: bool
    #: Run it in the very folder (this machine only).
    in_place: bool
    #: What runs beside it: "tensorboard", or shell text that serves on $PORT.
    services: Sequence[str]
    #: What TensorBoard shows.
    logdir: str
    #: The number of a job: start with what it left in its $KEEP_DIR.
    continued: int
    #: Jobs (or their numbers, titles, batches) that must have ended before it begins: well, in
    #: whatever way, or not well.
    after: Sequence[Any]
    after_any: Sequence[Any]
    after_failed: Sequence[Any]
    #: Slurm: options of sbatch; start it again by itself; a signal before its limit; what then.
    options: Mapping[str, str]
    requeue: bool
    signal: str
    on_timeout: str


_CHAINS = ("after", "after_any", "after_failed")


def ask_for(
    command: str | Sequence[str], folder: str | os.PathLike[str] | None, options: Options
) -> dict[str, Any]:
    """The ask that goes to the Engine; text is a line for a shell, a list is taken as it is."""
    if unknown := options.keys() - Options.__annotations__.keys():
        raise TypeError(_unknown(sorted(unknown)[0]))
    values: dict[str, Any] = {
        name: _named(value) if name in _CHAINS else _plain(value) for name, value in options.items()
    }
    if isinstance(command, str):
        argv = [*SHELL, command]
        values.setdefault("title", command)
    else:
        argv = [os.fspath(word) for word in command]
    if not command or not command[0]:
        raise UsageError("there is no command to run", "give one: towline.submit('python x.py')")
    for name in ("cpus", "gpus"):
        if name in values:
            values[name] = str(values[name])
    if isinstance(values.get("time"), int | float):
        values["time"] = f"{values['time']}s"
    whole = os.path.abspath(os.fspath(folder)) if folder is not None else this_folder()
    return {
        "argv": argv,
        "cwd": whole,
        **own_environment(values.get("cluster"), whole),
        "umask": umask(),
        **{name: value for name, value in values.items() if value is not None},
    }


def _named(jobs: Any) -> list[str]:
    """Jobs as the Engine is told of them: one, or several."""
    several = [jobs] if isinstance(jobs, str | int) or hasattr(jobs, "id") else jobs
    return [str(getattr(job, "id", job)) for job in several]


def _plain(value: Any) -> Any:
    """A mapping or a sequence of any kind as JSON has it."""
    if value is None or isinstance(value, str | int | float):
        return value
    if hasattr(value, "items"):
        return {str(name): str(one) for name, one in value.items()}
    return [os.fspath(one) for one in value]


def _unknown(name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, Options.__annotations__, n=1)
    meant = f"; did you mean {close[0]!r}?" if close else ""
    return f"submit() got an unexpected keyword argument {name!r}{meant}"
