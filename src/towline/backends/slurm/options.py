"""From what a job needs to the options of `sbatch`. Pure.

Slurm has one set of options per component of a job. Processes that need the same are one component;
groups of different shape make a heterogeneous job.
"""

import math
import re
import signal
from collections.abc import Iterable, Mapping

from msgspec import Struct

from towline.backends.queue.dialect import Value
from towline.errors import UsageError
from towline.model.request import Need, Request
from towline.model.sbatch_words import LETTERS

#: What Towline itself says to sbatch, and why nobody else can.
OURS = {
    "array": "batches become arrays by themselves",
    "chdir": "the job runs in its own folder",
    "comment": "the job is found again by it",
    "error": "`tow log` shows the output",
    "export-file": "variables are set with -e",
    "get-user-env": "variables are set with -e",
    "hold": "a held job would never start",
    "input": "a job has no standard input",
    "ntasks": "the request says how many processes there are: -r '4:[]'",
    "open-mode": "`tow log` shows the output",
    "output": "`tow log` shows the output",
    "parsable": "Towline reads sbatch's answer",
    "quiet": "Towline reads sbatch's answer",
    "requeue": "use --requeue",
    "no-requeue": "it is the default",
    "signal": "use --signal",
    "test-only": "use --dry-run",
    "verbose": "Towline reads sbatch's answer",
    "wait": "`tow run` waits by itself",
    "wrap": "the command comes after the options",
}
_NAME = re.compile(r"[a-z][a-z0-9-]*\Z")
_SIGNAL = re.compile(r"([A-Z][A-Z0-9+-]*|\d+)(@\d+)?\Z")
#: Given like this, an option is a mere word without a value.
_MERE = frozenset({"", "true", "yes"})
#: They count for the whole job; repeating them in each component is an error or means more.
_WHOLE = frozenset(
    {"begin", "dependency", "deadline", "job-name", "mail-type", "mail-user", "nice"}
)


class Component(Struct, frozen=True):
    """Equal processes that Slurm starts as the tasks of one step."""

    #: The rank of the first of them.
    first: int
    count: int
    need: Need
    #: Processes per node; 0: as Slurm likes.
    per_node: int = 0


def components(request: Request, given: Mapping[str, str]) -> tuple[Component, ...]:
    """Neighbouring groups of the same shape are one component; the choosiest is the first.

    Slurm finds nodes for one after the other: one that fits anywhere must not take what only
    another can use.
    """
    found: list[tuple[int, int, Need]] = []
    first = 0
    for group in request.groups:
        if found and found[-1][2] == group.need:
            found[-1] = (found[-1][0], found[-1][1] + group.count, group.need)
        else:
            found.append((first, group.count, group.need))
        first += group.count
    parts = [Component(at, n, need, _per_node(n, need, given)) for at, n, need in found]
    return tuple(sorted(parts, key=_choosiness, reverse=True))


def _choosiness(part: Component) -> tuple[bool, bool, int, int, float]:
    need = part.need
    named = any(gpu.name for gpu in need.gpus)
    return need.exclusive, named, need.gpu_count, part.count, need.cpus


def _per_node(count: int, need: Need, given: Mapping[str, str]) -> int:
    if "ntasks-per-node" in given:
        return _number("ntasks-per-node", given["ntasks-per-node"])
    if "nodes" in given:
        return math.ceil(count / _number("nodes", given["nodes"]))
    # GPUs are asked for by node, so the number of processes on it must be known.
    return 1 if need.gpus else 0


def _number(name: str, text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise UsageError(f"-o {name} takes a number here, not {text!r}")
    return int(text)


def option_names(options: Mapping[str, Value]) -> dict[str, str | None]:
    """Options by their long names, as text; None leaves one out that was given elsewhere."""
    found: dict[str, str | None] = {}
    for typed, value in options.items():
        name = typed.lstrip("-").replace("_", "-")
        name = LETTERS.get(name, name) if len(name) == 1 else name
        if not _NAME.match(name):
            raise UsageError(
                f"{typed!r} is not the name of an sbatch option", hint="write it like -o mem=16G"
            )
        if name in OURS:
            raise UsageError(f"the sbatch option {name!r} is Towline's own: {OURS[name]}")
        left_out = str(value).lower() in ("false", "no")
        found[name] = None if left_out else "" if value is True else str(value)
        if "\n" in str(value) or "\0" in str(value):
            raise UsageError(f"the value of the sbatch option {name!r} has more than one line")
    return found


def sbatch_options(
    request: Request, time_s: float, cluster: Mapping[str, Value], given: Mapping[str, Value]
) -> list[list[str]]:
    """The words for sbatch, one list per component; what is given with -o wins over all else."""
    defaults, chosen = option_names(cluster), option_names(given)
    if request.process_count == 1:
        _check_for_one(chosen)
    parts = components(request, _present({**defaults, **chosen}))
    found = []
    for index, part in enumerate(parts):
        needs = _needs(part, _present(defaults))
        options = _present({**defaults, **needs, **_time(time_s), **chosen})
        if index:
            options = {name: value for name, value in options.items() if name not in _WHOLE}
        words = [_word(name, value) for name, value in options.items()]
        found.append([f"--ntasks={part.count}", *words])
    return found


def _check_for_one(chosen: Mapping[str, str | None]) -> None:
    """Several nodes for a job of one process: it would run on one, in silence."""
    for name in ("nodes", "ntasks-per-node"):
        count = chosen.get(name) or "1"
        if count != "1":
            raise UsageError(
                f"-o {name}={count} is for several processes, and this job is one",
                hint=f"to run the command {count} times at once: -r '{count}:[]'",
            )


def _present(options: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in options.items() if value is not None}


def _word(name: str, value: str) -> str:
    return f"--{name}" if value.lower() in _MERE else f"--{name}={value}"


def _time(time_s: float) -> dict[str, str]:
    if not time_s:
        return {}
    minutes, seconds = divmod(math.ceil(time_s), 60)
    hours, minutes = divmod(minutes, 60)
    return {"time": f"{hours}:{minutes:02d}:{seconds:02d}"}


def _needs(part: Component, defaults: Mapping[str, str]) -> dict[str, str]:
    need = part.need
    _check(need)
    cpus = max(1, math.ceil(need.cpus))
    found = {}
    if cpus > 1 or "cpus-per-task" not in defaults:
        found["cpus-per-task"] = str(cpus)
    if part.per_node:
        found["nodes"] = str(math.ceil(part.count / part.per_node))
        found["ntasks-per-node"] = str(part.per_node)
    elif part.count == 1:
        found["nodes"] = "1"
    found |= _memory(part, cpus, defaults)
    if need.gpus:
        per_node = max(1, part.per_node)
        kinds = (f"gpu:{gpu.name}:" if gpu.name else "gpu:" for gpu in need.gpus)
        counts = (gpu.count * per_node for gpu in need.gpus)
        words = (f"{kind}{count}" for kind, count in zip(kinds, counts, strict=True))
        found["gres"] = ",".join(words)
    if need.exclusive:
        found["exclusive"] = ""
    return found


def _memory(part: Component, cpus: int, defaults: Mapping[str, str]) -> dict[str, str]:
    """Of all processes on a node together where their number is known, else by CPU."""
    if not part.need.mem_mb:
        return {}
    if part.per_node or part.count == 1:
        return {"mem": f"{part.need.mem_mb * max(1, part.per_node)}M"}
    return {"mem-per-cpu": f"{math.ceil(part.need.mem_mb / cpus)}M"}


def _check(need: Need) -> None:
    if need.gpu_mem_mb or need.gpu_util or (need.gpus and not need.gpu_reserved):
        raise UsageError(
            "Slurm gives out whole GPUs: a share of one, by memory or use, cannot be asked for",
            hint="leave it out, or choose the kind of GPU: -r '[2:a100]'",
        )
    if any(not re.fullmatch(r"[A-Za-z0-9_.-]*", gpu.name) for gpu in need.gpus):
        names = ", ".join(gpu.name for gpu in need.gpus)
        raise UsageError(
            f"Slurm cannot be asked for a GPU called {names}",
            hint="use the site's name for it: `sinfo -o %G` lists them",
        )


def followed(words: list[str], numbers: Iterable[str]) -> list[str]:
    """A submission that begins once all of these have ended, in whatever way: whether it may run
    then is decided on its node. What the user makes it depend on stays so."""
    after = f"afterany:{':'.join(numbers)}"
    for at, word in enumerate(words):
        name, _, given = word.partition("=")
        if name == "--dependency":
            # With a `?` one of them would be enough.
            both = given if "?" in given else f"{given},{after}"
            return [*words[:at], f"{name}={both}", *words[at + 1 :]]
    return [words[0], f"--dependency={after}", *words[1:]]


def check_unit(time: str) -> None:
    """To sbatch a bare number is minutes, elsewhere it is seconds: better ask than kill a job."""
    number = time.strip()
    if number.isdecimal():
        raise UsageError(
            f"--time {number} could mean seconds or minutes",
            hint=f"write {number}m for what sbatch would take it for, or {number}s",
        )


def checked_signal(text: str) -> str:
    """`USR1@120`: the signal, and how many seconds before the end of the time it comes."""
    found = _SIGNAL.match(text.upper().removeprefix("SIG"))
    if found is None:
        raise UsageError(f"--signal {text!r} is not understood", hint="write it like USR1@120")
    if not found[1].isdigit() and f"SIG{found[1]}" not in signal.Signals.__members__:
        raise UsageError(f"--signal: there is no signal {found[1]}", hint="write it like USR1@120")
    return found[0]
