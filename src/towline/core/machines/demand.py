"""A process's need in whole numbers, ready to be compared; and the levels that indexes are made of.

CPUs and GPU utilisation are counted in thousandths, so that sums are exact however often
jobs come and go.
"""

from functools import lru_cache

from towline.model.request import Need, Request

#: The sum of CPUs asked for may exceed a machine's CPUs by this much, in thousandths.
CPU_OVERLOAD = 1500
#: The same for the utilisation of a GPU that several processes share: it stays below 1.2.
GPU_OVERLOAD = 1199
#: One GPU counts as much as this many CPUs when usage is shared fairly.
GPU_WEIGHT = 8.0

#: The groups that an owner is in, as far as machines name them.
Rights = frozenset[str]
NO_RIGHTS: Rights = frozenset()


def plain(name: str) -> str:
    """A GPU's name as it is compared: lower case, without spaces, dashes and underscores."""
    return name.lower().replace(" ", "").replace("-", "").replace("_", "")


def level(amount: int) -> int:
    """A coarse, monotone step of an amount: four steps per doubling."""
    if amount < 4:
        return max(amount, -1)
    bits = amount.bit_length()
    return bits << 2 | (amount >> (bits - 3)) & 3


class Demand:
    """What one process needs; immutable by convention and shared between equal jobs."""

    __slots__ = (
        "cpu",
        "exclusive",
        "gpu_count",
        "gpu_mem",
        "gpu_util",
        "gpus",
        "mem",
        "reserved",
        "rights",
        "weight",
        "whole",
    )

    def __init__(self, need: Need, rights: Rights = NO_RIGHTS) -> None:
        #: Groups whose machines and GPUs it may use, besides what is for everyone.
        self.rights = rights
        self.cpu = round(need.cpus * 1000)
        self.mem = need.mem_mb
        #: (count, plain name) with "" for any GPU, in the order they were asked for.
        self.gpus = tuple(
            (gpu.count, "" if plain(gpu.name) == "gpu" else plain(gpu.name))
            for gpu in need.gpus
            if gpu.count > 0
        )
        self.gpu_count = sum(count for count, _ in self.gpus)
        self.gpu_mem = need.gpu_mem_mb
        self.gpu_util = round(need.gpu_util * 1000)
        self.reserved = need.gpu_reserved
        #: True when nothing but an idle GPU will do.
        self.whole = self.reserved and not self.gpu_mem and not self.gpu_util
        self.exclusive = need.exclusive
        share = 1.0 if self.reserved else need.gpu_util or 1.0
        self.weight = need.cpus + GPU_WEIGHT * share * self.gpu_count

    def shape(self) -> tuple[object, ...]:
        """What needs of about the same size and sort have in common."""
        return (
            self.gpus,
            self.reserved,
            self.whole,
            self.exclusive,
            level(self.cpu),
            level(self.mem),
            level(self.gpu_mem),
            self.gpu_util // 100,
            self.rights,
        )

    def hardness(self) -> tuple[object, ...]:
        """Sorts last what is hardest to place."""
        named = sum(count for count, name in self.gpus if name)
        return (self.exclusive, self.gpu_count, named, self.mem, self.cpu, self.gpu_mem)


@lru_cache(maxsize=4096)
def demand_of(need: Need, rights: Rights = NO_RIGHTS) -> Demand:
    return Demand(need, rights)


def demands_of(request: Request, rights: Rights = NO_RIGHTS) -> tuple[tuple[int, Demand], ...]:
    """(count, what each of them needs) per process group, in the request's order."""
    return tuple((group.count, demand_of(group.need, rights)) for group in request.groups)
