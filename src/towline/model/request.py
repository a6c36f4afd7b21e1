"""What a job needs, as data, and how lines of a batch share it. `model/grammar.py` turns text into
requests and back."""

from msgspec import Struct, field
from msgspec.structs import replace

from towline.errors import UsageError

#: What can be divided among lines that run at the same time, and how each is said.
SHARED = ("cpu", "cuda", "rendering")
#: So many lines at a time, and in all, are the most of one allocation.
MOST_LINES = 10_000


class GpuNeed(Struct, frozen=True, order=True):
    """`count` GPUs of one kind for one process; an empty name means any GPU."""

    count: int = 1
    name: str = ""


class Need(Struct, frozen=True, order=True):
    """What one process needs on its machine."""

    cpus: float = 1.0
    mem_mb: int = 0
    gpus: tuple[GpuNeed, ...] = ()
    #: Free memory every GPU of this process must have.
    gpu_mem_mb: int = 0
    #: Share of every GPU's compute this process uses, 0 to 1.
    gpu_util: float = 0.0
    #: True: nobody else of ours on the same GPU. False: shared by memory and utilisation.
    gpu_reserved: bool = True
    #: The whole machine, for this process alone.
    exclusive: bool = False

    @property
    def gpu_count(self) -> int:
        return sum(gpu.count for gpu in self.gpus)


class Group(Struct, frozen=True, order=True):
    """`count` equal processes."""

    count: int = 1
    need: Need = Need()


class Request(Struct, frozen=True, order=True):
    """Process groups that start together or not at all."""

    groups: tuple[Group, ...] = (Group(),)

    def processes(self) -> list[tuple[int, int, Need]]:
        """Every process as (group index, process index, need), in rank order."""
        return [
            (group_index, process_index, group.need)
            for group_index, group in enumerate(self.groups)
            for process_index in range(group.count)
        ]

    @property
    def process_count(self) -> int:
        return sum(group.count for group in self.groups)


# --- lines of a batch that share an allocation, some of them at a time --------------------------


class Packing(Struct, frozen=True, omit_defaults=True):
    """How the lines of a batch go into allocations. What a line asks for is of the allocation."""

    #: So many of its lines run at a time, and an allocation has so many in all; 0: all there are.
    parallel: int = 1
    lines: int = 0
    #: What each of them gets a share of: of what is named here, or of all that is found there.
    shares: dict[str, tuple[str, ...]] = field(default_factory=lambda: {"cpu": (), "cuda": ()})
    #: The first lines of an allocation begin so many seconds one after the other.
    stagger_s: float = 0.0
    #: Lines that an allocation's time limit cuts short are carried over so often; 0: always.
    carries: int = 0


def check_pack(pack: Packing) -> None:
    """Refuse what cannot be meant."""
    if not 1 <= pack.parallel <= MOST_LINES:
        raise UsageError(f"--pack must be from 1 to {MOST_LINES}, not {pack.parallel}")
    if not 0 <= pack.lines <= MOST_LINES:
        raise UsageError(f"--per-allocation must be from 0 to {MOST_LINES}, not {pack.lines}")
    if not 0 <= pack.stagger_s < 86_400:
        raise UsageError(f"--stagger must be from 0 s to a day, not {pack.stagger_s:g} s")
    if pack.carries < 0:
        raise UsageError(f"lines are carried over so often or not, not {pack.carries} times")
    for kind, names in pack.shares.items():
        if kind not in SHARED:
            raise UsageError(f"{kind!r} cannot be shared", f"what can: {', '.join(SHARED)}")
        if kind == "cpu" and not all(name.isdecimal() for name in names):
            raise UsageError(f"CPUs have numbers: {', '.join(names)}")


def cut(count: int, size: int, is_all: bool) -> list[int]:
    """How many of so many lines each allocation has, one after the other.

    What does not fill one waits for more, unless these are all there are: then the last is smaller.
    """
    if size < 1:
        return [count] if count and is_all else []
    whole, rest = divmod(count, size)
    return [size] * whole + ([rest] if rest and is_all else [])


def share_of(request: Request, parallel: int) -> Request:
    """What one line asks for where nobody gives out allocations: its part of what all share.

    A line has a CPU at least, unless all together ask for less; GPUs are its own where there are
    enough, and shared by as many lines as need be where there are not.
    """
    need = request.groups[0].need
    gpus, util = _gpu_share(need, parallel)
    own = replace(
        need,
        cpus=max(need.cpus / parallel, min(need.cpus, 1.0)),
        mem_mb=need.mem_mb // parallel,
        gpus=gpus,
        exclusive=need.exclusive and parallel == 1,
        gpu_util=util,
        gpu_reserved=need.gpu_reserved and not util,
    )
    return Request((Group(1, own),))


def _gpu_share(need: Need, parallel: int) -> tuple[tuple[GpuNeed, ...], float]:
    """The GPUs of one line, and which part of each it has; 0: all, or as it was asked for."""
    if not need.gpus or parallel == 1:
        return need.gpus, need.gpu_util
    if len(need.gpus) > 1:
        raise UsageError(
            "lines that share GPUs of several kinds cannot be placed", "ask for one kind of them"
        )
    (asked,) = need.gpus
    if asked.count >= parallel:
        return (replace(asked, count=asked.count // parallel),), need.gpu_util
    users = -(-parallel // asked.count)
    # Rounded down, or the last of them would not fit.
    return (replace(asked, count=1),), 1000 // users / 1000
