"""A machine of a team's server, as its administrators want it to be used."""

from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from towline.model.machine import Machine, Walls

#: What is between the jobs of a node, which all have one account there.
Isolation = Literal["none", "walls"]
#: Why nothing starts on a node that is to be emptied.
DRAINED = "is drained: what runs there ends, and nothing new starts"


class TeamNode(Struct, frozen=True):
    name: str
    #: Where it is: ssh://user@host:port, or a name that ssh knows.
    endpoint: str
    #: `walls`: each of its jobs is walled in; `none`: nothing keeps them apart.
    isolation: Isolation = "none"
    drained: bool = False
    #: Where the server's data is there, by a common file system; empty: nowhere.
    data: str = ""
    #: How many processes of one core it has room for, as administrators say; 0: as many as cores.
    cpus: float = 0.0
    #: Who may have processes without GPUs here; empty: everyone.
    groups: tuple[str, ...] = ()
    #: GPU index -> who may use it; absent or empty: everyone.
    gpu_groups: dict[int, tuple[str, ...]] = field(default_factory=dict)
    #: When it came to be as it is.
    since: float = 0.0
    #: As it was last seen, for when it is away.
    machine: Machine | None = None
    #: What its walls were when it was last asked.
    walls: Walls | None = None


def used_as(seen: Machine, node: TeamNode, aliases: dict[str, str]) -> Machine:
    """A machine as it may be used: by whom, and under which names."""
    gpus = tuple(replace(gpu, groups=node.gpu_groups.get(gpu.index, ())) for gpu in seen.gpus)
    return replace(
        seen,
        gpus=gpus,
        groups=node.groups,
        aliases=tuple(sorted(aliases.items())),
        exact_names=True,
        closed=DRAINED if node.drained else seen.closed,
    )


def with_group(node: TeamNode, group: str, index: int | None = None) -> TeamNode:
    """The same for members of a group, too; of a GPU, or of all that it has."""
    if index is not None:
        groups = _with(node.gpu_groups.get(index, ()), group)
        return replace(node, gpu_groups={**node.gpu_groups, index: groups})
    node = replace(node, groups=_with(node.groups, group))
    for each in indexes(node):
        node = with_group(node, group, each)
    return node


def without_group(node: TeamNode, group: str, index: int | None = None) -> TeamNode:
    """The same without that group; where it was the only one, for everyone."""
    if index is not None:
        groups = _without(node.gpu_groups.get(index, ()), group)
        return replace(node, gpu_groups={**node.gpu_groups, index: groups})
    all_gpus = {each: _without(groups, group) for each, groups in node.gpu_groups.items()}
    return replace(node, groups=_without(node.groups, group), gpu_groups=all_gpus)


def indexes(node: TeamNode) -> list[int]:
    """Of its GPUs."""
    return [gpu.index for gpu in node.machine.gpus] if node.machine is not None else []


def _with(groups: tuple[str, ...], group: str) -> tuple[str, ...]:
    return tuple(sorted({*groups, group}))


def _without(groups: tuple[str, ...], group: str) -> tuple[str, ...]:
    return tuple(one for one in groups if one != group)
