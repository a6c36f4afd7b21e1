"""Which CPUs and GPUs each of several lines at a time gets of those that an allocation has."""

import os
import sys

from . import devices, site

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Which GPU a program draws on, where that is asked for.
RENDERING = ("EGL_DEVICE_ID", "PYGLET_HEADLESS_DEVICE", "MUJOCO_EGL_DEVICE_ID")
#: Variables by which a job's GPUs are named.
GIVEN = (devices.VISIBLE,) + site.GPU_VARIABLES
NONE = ("-1", "NoDevFiles")


class LineShares:
    """The share of each slot: a slot has one line at a time, and keeps its share.

    `wanted` says what is divided, each with what is to be; where that is left out, what is there.
    """

    def __init__(
        self, wanted: "dict[str, list[str]]", slots: int, cpus: "list[int]", gpus: "list[str]"
    ) -> None:
        self.cpus: "list[list[int]]" = []
        self.gpus: "dict[str, list[list[str]]]" = {}
        #: What there is to say about it.
        self.words: "list[str]" = []
        if "cpu" in wanted:
            there = [int(cpu) for cpu in wanted["cpu"]] or cpus
            self.cpus = divided(there, slots) if slots <= len(there) else [there] * slots
            self.tell("CPUs", there, slots)
        for kind in ("cuda", "rendering"):
            named = list(wanted.get(kind) or gpus) if kind in wanted else []
            if named:
                self.gpus[kind] = divided(named, slots)
                self.tell("GPUs", named, slots)

    def tell(self, what: str, there: "list[Any]", slots: int) -> None:
        if max(len(there), slots) % min(len(there), slots):
            told = "%d %s among %d lines at a time: not all have as many"
        elif slots > len(there):
            told = "%d %s among %d lines at a time: several share one"
        else:
            return
        self.words.append(told % (len(there), what, slots))

    def variables(self, slot: int) -> "dict[str, str]":
        found = {}
        if "cuda" in self.gpus:
            found[devices.VISIBLE] = ",".join(self.gpus["cuda"][slot])
        if "rendering" in self.gpus:
            found.update(dict.fromkeys(RENDERING, self.gpus["rendering"][slot][0]))
        return found

    def take(self, slot: int) -> None:
        """Have this process, and what it starts, keep to the share of its slot."""
        os.environ.update(self.variables(slot))
        if self.cpus:
            try:
                os.sched_setaffinity(0, self.cpus[slot])
            except OSError as error:
                told = "towline: CPUs %s cannot be used here: %s\n"
                sys.stderr.write(told % (self.cpus[slot], error.strerror))

    def said(self, slot: int) -> str:
        parts = ["CPUs %s" % self.cpus[slot]] if self.cpus else []
        parts += ["%s=%s" % pair for pair in self.variables(slot).items()]
        return ", ".join(parts) or "no share of its own"


def divided(there: "list[Any]", slots: int) -> "list[list[Any]]":
    """Neighbours for each slot, as equal as can be; where there are too few, slots share one."""
    count = len(there)
    if slots > count:
        return [[there[slot * count // slots]] for slot in range(slots)]
    return [there[slot * count // slots : (slot + 1) * count // slots] for slot in range(slots)]


def gpus_here(claimant: "Any", asked: int) -> "list[str]":
    """The GPUs that this allocation has, by whatever names; those of the node if all are ours.

    Where the queue grants a number of them and says no more, they are claimed for `claimant`.
    """
    chosen = devices.choose(claimant, asked)
    for name in GIVEN:
        value = chosen.get(name, os.environ.get(name))
        if value is not None:
            found = [gpu.strip() for gpu in value.split(",")]
            return [gpu for gpu in found if gpu and gpu not in NONE]
    if not site.NAMES_GPUS:
        return []
    answer = site.answer(devices.ASK) or ""
    return [str(gpu) for gpu in sorted(devices.by_use(answer))]
