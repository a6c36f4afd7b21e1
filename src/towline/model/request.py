"""What a job needs, as data. `model/grammar.py` turns text into these and back."""

from msgspec import Struct


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
