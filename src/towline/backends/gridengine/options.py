"""From what a job needs to the options of `qsub`. Pure.

What a site calls its memory, its GPUs and its parallel environments is known only once it was
asked. So a job carries what it needs in words of our own (`--cpus=4`, `--mem=4096M`), which no
option of qsub looks like, and `fitting.py` puts the site's words in their place.
"""

import math
import re
from collections.abc import Iterable, Mapping

from towline.backends.queue.dialect import Value
from towline.errors import UsageError
from towline.model.grammar import format_request
from towline.model.request import Need, Request

#: What Towline itself says to qsub, and why nobody else can.
OURS = {
    "A": "the job is found again by it",
    "C": "the command comes after the options",
    "N": "the title is given with -t",
    "S": "the script is Towline's own",
    "V": "variables are set with -e",
    "b": "the command comes after the options",
    "cwd": "the job runs in its own folder",
    "e": "`tow log` shows the output",
    "h": "a held job would never start",
    "i": "a job has no standard input",
    "j": "`tow log` shows the output",
    "now": "`tow run` waits by itself",
    "o": "`tow log` shows the output",
    "r": "use --requeue",
    "shell": "the script is Towline's own",
    "sync": "`tow run` waits by itself",
    "t": "batches become arrays by themselves",
    "tc": "use --max-parallel with a batch",
    "terse": "Towline reads qsub's answer",
    "v": "variables are set with -e",
    "verify": "use --dry-run",
    "w": "use --dry-run",
    "wd": "the job runs in its own folder",
}
_NAME = re.compile(r"[A-Za-z][A-Za-z_]*\Z")
#: Their value is more than one word.
_SEVERAL_WORDS = frozenset({"pe", "binding"})
#: Those that have no value.
_MERE = frozenset({"clear", "hard", "notify", "soft"})
#: So much later than the job's own limit the queue's comes, which kills without a word.
_SPARE_S = 60.0


def option_names(options: Mapping[str, Value]) -> dict[str, str | None]:
    """Options by their names, as text; None leaves one out that was given elsewhere."""
    found: dict[str, str | None] = {}
    for typed, value in options.items():
        name = typed.lstrip("-")
        if not _NAME.match(name):
            raise UsageError(
                f"{typed!r} is not the name of a qsub option", hint="write it like -o q=cpu"
            )
        if name in OURS:
            raise UsageError(f"the qsub option -{name} is Towline's own: {OURS[name]}")
        if "\n" in str(value) or "\0" in str(value):
            raise UsageError(f"the value of the qsub option -{name} has more than one line")
        text = "" if value is True else str(value)
        if not text and name not in _MERE:
            raise UsageError(
                f"the qsub option -{name} needs a value", hint=f"write it like -o {name}=VALUE"
            )
        found[name] = None if text.lower() in ("false", "no") else text
    return found


def qsub_options(
    request: Request, time_s: float, cluster: Mapping[str, Value], given: Mapping[str, Value]
) -> list[list[str]]:
    """The words for qsub, and what only the site can put into its own; `-o` wins over all else.

    Of the cluster there may also be what the site calls things: `--pe`, `--memory`, `--gpus`.
    """
    names = {name[2:]: str(value) for name, value in cluster.items() if name.startswith("--")}
    plain = {name: value for name, value in cluster.items() if not name.startswith("--")}
    defaults, chosen = option_names(plain), option_names(given)
    resources = {**_resources(defaults), **_time(time_s), **_resources(chosen)}
    options = {**defaults, **chosen}
    found = [word for name, value in options.items() for word in _words(name, value)]
    if resources:
        found += ["-l", ",".join(f"{n}={v}" if v else n for n, v in resources.items())]
    asks = _asks(request, options, resources)
    found += [f"--{name}={value}" for name, value in asks.items()]
    used = {"pe": "cpus" in asks or "processes" in asks, "memory": "mem" in asks}
    used["gpus"] = "gpus" in asks
    found += [f"--{name}-is={value}" for name, value in names.items() if value and used.get(name)]
    return [found]


def _words(name: str, value: str | None) -> list[str]:
    if name == "l" or value is None:
        return []
    if name in _MERE:
        return [f"-{name}"]
    return [f"-{name}", *(value.split() if name in _SEVERAL_WORDS else [value])]


def _resources(options: Mapping[str, str | None]) -> dict[str, str]:
    """`h_vmem=4G,gpu=1` by name."""
    parts = (part.strip() for part in (options.get("l") or "").split(","))
    return {name: value for name, _, value in (part.partition("=") for part in parts) if name}


def _time(time_s: float) -> dict[str, str]:
    """The job ends itself at its limit, gently; the queue, which is not gentle, comes after."""
    return {"h_rt": str(math.ceil(time_s + _SPARE_S))} if time_s else {}


def _asks(
    request: Request, options: Mapping[str, str | None], resources: Mapping[str, str]
) -> dict[str, str]:
    """What the site's own words are still to be found for."""
    need = _only_need(request)
    _check(need)
    cpus, count = max(1, math.ceil(need.cpus)), request.process_count
    found: dict[str, str] = {}
    if (chosen := options.get("pe")) is not None:
        slots = _checked_slots(chosen, cpus, count)
        if need.mem_mb or need.gpus:
            found["shape"] = f"{max(cpus, slots // count)}x{count}"
    else:
        found |= {"cpus": str(cpus)} if cpus > 1 else {}
        found |= {"processes": str(count)} if count > 1 else {}
    if need.mem_mb:
        found["mem"] = f"{need.mem_mb}M"
    if need.gpus:
        found["gpus"] = str(need.gpu_count)
    if need.exclusive:
        found["exclusive"] = "yes"
    return {name: value for name, value in found.items() if name not in resources}


def _checked_slots(chosen: str, cpus: int, count: int) -> int:
    """The slots of a parallel environment that was named, with as many as the processes need."""
    words = chosen.split()
    number = words[1].partition("-")[0] if len(words) > 1 else ""
    slots = int(number) if number.isdecimal() else 0
    if count > 1 and slots < cpus * count:
        raise UsageError(
            f"{count} processes of {cpus} CPU{'s' * (cpus != 1)} each need {cpus * count} slots,"
            f" and -o pe={chosen!r} does not say so",
            hint=f"-o pe='NAME {cpus * count}', or leave it to Towline to choose one",
        )
    return slots


def _only_need(request: Request) -> Need:
    needs = {repr(group.need): group.need for group in request.groups}
    if len(needs) > 1:
        raise UsageError(
            "Grid Engine gives every slot of a job the same, and the processes of this one need"
            f" different things: {format_request(request)}",
            hint="ask for the same for all of them, or submit each kind as a job of its own; on"
            " machines and on a Slurm they can differ",
        )
    return next(iter(needs.values()))


def _check(need: Need) -> None:
    if need.gpu_mem_mb or need.gpu_util or (need.gpus and not need.gpu_reserved):
        raise UsageError(
            "Grid Engine gives out whole GPUs: a share of one cannot be asked for",
            hint="leave it out: -r '[2:]'",
        )
    if names := [gpu.name for gpu in need.gpus if gpu.name]:
        raise UsageError(
            f"Grid Engine does not know which GPUs are {', '.join(names)}",
            hint="ask for the site's own word for them: -o l=NAME=VALUE (`qconf -sc` lists them)",
        )


def followed(words: list[str], numbers: Iterable[str]) -> list[str]:
    """A submission that begins once all of these have ended, in whatever way; of an array all of
    its tasks, since Grid Engine knows no single ones here. What the user gave stays so."""
    whole = ",".join(dict.fromkeys(number.partition("_")[0] for number in numbers))
    if "-hold_jid" not in words:
        return [words[0], "-hold_jid", whole, *words[1:]]
    at = words.index("-hold_jid") + 1
    return [*words[:at], f"{words[at]},{whole}", *words[at + 1 :]]


#: Runs qsub with a time that its host can tell: $1, in seconds since 1970, before its other words.
_AT = 'at=`date -d "$1" +%Y%m%d%H%M.%S` || exit 1; shift; exec qsub -a "$at" "$@"'


def begin_word(begin: float) -> str:
    """A time to begin at, as any host understands it; `in_local_time` makes it qsub's."""
    return f"@{math.ceil(begin)}"


def in_local_time(words: list[str]) -> list[str]:
    """The same with the time to begin at as a clock of the head node shows it, which qsub wants."""
    times = [at for at, word in enumerate(words) if word == "-a" and words[at + 1][:1] == "@"]
    if not times:
        return words
    at = times[0]
    return ["sh", "-c", _AT, "qsub", words[at + 1], *words[1:at], *words[at + 2 :]]
