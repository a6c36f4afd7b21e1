"""The site's own words for what a job needs: parallel environments and complexes. Pure."""

import math
from collections.abc import Iterable
from fnmatch import fnmatchcase

from msgspec import Struct

from towline.backends.queue.dialect import Words
from towline.errors import UsageError
from towline.model.units import parse_memory_mb
from towline.probes.gridengine_site import GPU_NAMES, Complex, Environment, GridSite

#: Complexes by which sites count memory, likeliest first; those that count it come before others.
MEMORY_NAMES = (
    "m_mem_free", "mem", "rmem", "h_vmem", "mem_free", "virtual_free", "s_vmem", "h_rss", "h_data",
)  # fmt: skip
#: What a host has free, where it is not counted.
_OF_THE_HOST = ("mem_free", "virtual_free")
#: What hosts report from moment to moment, by both of its names -> what they have in all, if they
#: have that.
_REPORTED = {
    **dict.fromkeys(("mem_free", "mf"), "mem_total"),
    **dict.fromkeys(("virtual_free", "vf"), "virtual_total"),
    **dict.fromkeys(("swap_free", "sf"), "swap_total"),
    **dict.fromkeys(("mem_used", "mu", "virtual_used", "vu", "swap_used", "su", "cpu"), ""),
    **{
        f"{kind}load_{span}": ""
        for kind in ("", "np_")
        for span in ("avg", "short", "medium", "long")
    },
}


class Shape(Struct, frozen=True):
    """So many processes, with so many CPUs each."""

    cpus: int
    count: int

    @property
    def slots(self) -> int:
        return self.cpus * self.count


def split(words: Iterable[str]) -> tuple[Words, dict[str, str]]:
    """Words of qsub, and what is asked for in ours."""
    plain: Words = []
    asks: dict[str, str] = {}
    for word in words:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            asks[name] = value
        else:
            plain.append(word)
    return plain, asks


def fit(words: Iterable[str], site: GridSite | None) -> Words:
    """The same in words of this site; UsageError where it has none for them."""
    plain, asks = split(words)
    if not asks:
        return plain
    if site is None:
        raise UsageError("what this Grid Engine has is not known yet", hint="tow doctor tells more")
    shape = _shape(asks)
    chosen = _environment(asks, site, shape, _queues(plain))
    parallel = ["-pe", chosen.name, str(shape.slots)] if chosen else []
    resources = [
        *_memory(asks, site, shape, chosen is None or chosen.is_one_host),
        *_gpus(asks, site, shape),
        *(_exclusive(site) if "exclusive" in asks else []),
    ]
    found = [*parallel, *(["-l", ",".join(resources)] if resources else [])]
    # Before the script and its words, which are the last three; a test has its command there.
    return [plain[0], *found, *plain[1:]]


def verifiable(words: Iterable[str], site: GridSite | None) -> Words:
    """The same for `qsub -w v`, which thinks of empty hosts, and knows nothing that they report:
    instead of what is free, it is asked for what there is in all."""
    found: Words = []
    rest = iter(words)
    for word in rest:
        if word != "-l":
            found.append(word)
            continue
        parts = [_verifiable(part, site) for part in next(rest, "").split(",")]
        found += ["-l", ",".join(filter(None, parts))] if any(parts) else []
    return found


def _verifiable(part: str, site: GridSite | None) -> str:
    name, _, value = part.partition("=")
    known = site.complexes.get(name) if site else None
    if name not in _REPORTED or (known and known.is_counted):
        return part
    return f"{_REPORTED[name]}={value}" if _REPORTED[name] else ""


def _shape(asks: dict[str, str]) -> Shape:
    """Where a parallel environment was named, its slots are all that there are."""
    if "shape" in asks:
        cpus, _, count = asks["shape"].partition("x")
        return Shape(int(cpus), int(count))
    return Shape(int(asks.get("cpus", "1")), int(asks.get("processes", "1")))


def _queues(plain: Words) -> set[str]:
    named = [plain[at + 1] for at, word in enumerate(plain[:-1]) if word == "-q"]
    return {one.partition("@")[0] for text in named for one in text.split(",")}


def _environment(
    asks: dict[str, str], site: GridSite, shape: Shape, queues: set[str]
) -> Environment | None:
    """The one that gives all of it; None where a single slot is all that is needed."""
    if "cpus" not in asks and "processes" not in asks:
        return None
    there = [one for one in site.environments if not queues or _is_in(one, queues)]
    named = asks.get("pe-is")
    chosen = [one for one in site.environments if one.name == named] if named else there
    usable = [one for one in chosen if one.is_for(shape.cpus, shape.count)]
    if not usable:
        raise UsageError(_no_environment(shape, there), hint=_PE_HINT)
    # CPUs of one process are best where nothing else can be; processes wherever there is room.
    return min(usable, key=lambda one: one.is_one_host != (shape.count == 1))


def _is_in(one: Environment, queues: set[str]) -> bool:
    """Whether it is there in one of the queues, which may be patterns."""
    return any(fnmatchcase(queue, pattern) for queue in one.queues for pattern in queues)


_PE_HINT = "choose one yourself: -o pe='NAME SLOTS', or `pe` of the cluster in the configuration"


def _no_environment(shape: Shape, there: list[Environment]) -> str:
    cpus, count = shape.cpus, shape.count
    what = f"{cpus} CPUs on one host" if count == 1 else f"{count} processes"
    what += f" of {cpus} CPUs each" if count > 1 and cpus > 1 else ""
    has = ", ".join(f"{one.name} ({one.rule})" for one in there) or "none"
    return f"this Grid Engine has no parallel environment for {what}; it has: {has}"


def _memory(asks: dict[str, str], site: GridSite, shape: Shape, one_host: bool) -> list[str]:
    if "mem" not in asks:
        return []
    one = _complex(site, asks.get("memory-is", ""), MEMORY_NAMES)
    if one is None:
        raise UsageError(
            "this Grid Engine has no complex for memory",
            hint="name the one it has: `memory` of the cluster in the configuration, or -o l=..",
        )
    each_mb = parse_memory_mb(asks["mem"])
    if not one.is_counted and one.name in _OF_THE_HOST:
        # A load value is about the host as a whole; what is counted, or is a limit, is by slot.
        return [f"{one.name}={each_mb * (shape.count if one_host else 1)}M"]
    by_slot = math.ceil(each_mb / shape.cpus)
    return [f"{one.name}={by_slot if one.is_per_slot else each_mb * shape.count}M"]


def _gpus(asks: dict[str, str], site: GridSite, shape: Shape) -> list[str]:
    if "gpus" not in asks:
        return []
    one = _complex(site, asks.get("gpus-is", ""), GPU_NAMES)
    if one is None:
        raise UsageError(
            "this Grid Engine has no complex for GPUs",
            hint="name the one it has: `gpus` of the cluster in the configuration, or -o l=..",
        )
    total, slots = int(asks["gpus"]) * shape.count, shape.slots
    if not one.is_per_slot:
        return [f"{one.name}={total}"]
    if total % slots:
        raise UsageError(
            f"this Grid Engine counts GPUs ({one.name}) by slot, and {total} for {slots} slots"
            " cannot be said",
            hint="ask for as many CPUs as GPUs, or for one CPU",
        )
    return [f"{one.name}={total // slots}"]


def _exclusive(site: GridSite) -> list[str]:
    found = [one.name for one in site.complexes.values() if one.relation == "EXCL"]
    if not found:
        raise UsageError("this Grid Engine cannot give a host to one job alone", hint="leave it")
    return [f"{found[0]}=true"]


def _complex(site: GridSite, named: str, names: Iterable[str]) -> Complex | None:
    if named:
        return site.complexes.get(named)
    there = [site.complexes[name] for name in names if name in site.complexes]
    there = [one for one in there if one.can_be_asked]
    # A limit of what a process may map kills much that only looks large: what is free comes first.
    there.sort(key=lambda one: (not one.is_counted, one.name not in _OF_THE_HOST))
    return next(iter(there), None)
