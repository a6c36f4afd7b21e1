"""Nodes and who may use them, names of GPUs, and limits."""

from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from towline.api.places import Nothing
from towline.api.team import (
    AliasList,
    AliasView,
    LimitsList,
    LimitsView,
    NodeList,
    NodeView,
)
from towline.errors import NotFound, UsageError
from towline.model.team.node import TeamNode, with_group, without_group
from towline.model.team.rules import UseLimits
from towline.server.endpoints import Call, Endpoint, delete, get, patch, put

Count = Annotated[int, Meta(ge=0, le=1_000_000)]
#: How many processes of one core a node has room for; 0: as many as it has cores.
Cpus = Annotated[float, Meta(ge=0, le=100_000)]


class NewNode(Struct, forbid_unknown_fields=True):
    #: ssh://user@host:port
    endpoint: str
    #: `walls`, which is meant where nothing is said; or `none`: nothing keeps its jobs apart.
    isolation: str = ""
    cpus: Cpus = 0.0


class NodeChange(Struct, forbid_unknown_fields=True):
    #: `drain`: what runs there ends, and nothing new starts; `online`: as before.
    state: Literal["online", "drain"] | None = None
    #: Where the server's data is there, by a common file system; `none`: nowhere.
    data: str | None = None
    cpus: Cpus | None = None
    #: What is between its jobs from now on: `walls` or `none`.
    isolation: str | None = None


class AliasModel(Struct, forbid_unknown_fields=True):
    #: The exact name of a GPU model.
    resource: str


class NewLimits(Struct, forbid_unknown_fields=True):
    """At most so much at once; 0: no limit."""

    gpus: Count = 0
    jobs: Count = 0
    time_s: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    #: Of the data of this user, or of this group.
    data_bytes: Annotated[int, Meta(ge=0, le=2**62)] = 0


def node_view(call: Call, node: TeamNode) -> NodeView:
    nodes = call.team.nodes
    names = {model: alias for alias, model in reversed(nodes.aliases.items())}
    seen: NodeView = {
        "name": node.name,
        "state": nodes.state(node),
        "since": node.since,
        "isolation": node.isolation,
        "walls": node.walls.why if node.walls else "",
        "open": list(node.walls.open) if node.walls else [],
        "groups": list(node.groups),
        "cpus": node.machine.cpus if node.machine else 0.0,
        "mem_mb": node.machine.mem_mb if node.machine else 0,
        "data": node.data,
        "resources": [
            {
                "index": gpu.index,
                "name": gpu.model,
                "alias": names.get(gpu.model),
                "mem_mb": gpu.mem_mb,
                "groups": list(node.gpu_groups.get(gpu.index, ())),
            }
            for gpu in (node.machine.gpus if node.machine else ())
        ],
    }
    if call.who.administrator:
        seen["endpoint"] = node.endpoint
    return seen


@get("/v1/nodes")
async def list_nodes(call: Call) -> NodeList:
    """All nodes."""
    return {"nodes": [node_view(call, node) for node in call.team.nodes.all.values()]}


@get("/v1/nodes/{node:str}")
async def show_node(call: Call, node: str) -> NodeView:
    """A node, its GPUs, and what its walls leave open."""
    found = await call.team.nodes.look_at_walls(node)
    problem = await call.team.on_nodes.problem(found)
    return {**node_view(call, found), "data_problem": problem}


@put("/v1/nodes/{node:str}")
async def add_node(call: Call, node: str, body: NewNode) -> NodeView:
    """Make a machine a node, once it was reached."""
    added = await call.team.nodes.add(node, body.endpoint, body.isolation, body.cpus)
    return node_view(call, added)


@patch("/v1/nodes/{node:str}")
async def change_node(call: Call, node: str, body: NodeChange) -> NodeView:
    """Let nothing new start on a node, or again; or say what is between its jobs, where the data of
    the server is there, or how many processes fit there."""
    nodes, now = call.team.nodes, call.team.now()
    changed = nodes.find(node)
    if all(one is None for one in (body.state, body.data, body.cpus, body.isolation)):
        raise UsageError("a node has `state`, `isolation`, `data` and `cpus` to change")
    if body.isolation is not None:
        changed = await nodes.isolate(node, body.isolation)
    if (cpus := body.cpus) is not None:
        changed = await nodes.change(node, lambda one: replace(one, cpus=cpus))
    if body.data is not None:
        data = await call.team.on_nodes.checked(changed, body.data)
        changed = await nodes.change(node, lambda one: replace(one, data=data))
    if body.state is not None:
        drained = body.state == "drain"
        changed = await nodes.change(node, lambda one: replace(one, drained=drained, since=now))
    return node_view(call, changed)


@delete("/v1/nodes/{node:str}")
async def remove_node(call: Call, node: str) -> Nothing:
    """Take a machine out; what runs there goes on."""
    await call.team.nodes.remove(node)
    return {}


@put("/v1/nodes/{node:str}/groups/{group:str}")
async def add_node_group(call: Call, node: str, group: str) -> NodeView:
    """Limit a node, and each of its GPUs, to members of this group and of those before."""
    call.team.accounts.rows.title_of(group)
    return node_view(call, await call.team.nodes.set_groups(node, group, None, with_group))


@delete("/v1/nodes/{node:str}/groups/{group:str}")
async def remove_node_group(call: Call, node: str, group: str) -> NodeView:
    """Take a group off a node and its GPUs; what no group is left on is for everyone."""
    return node_view(call, await call.team.nodes.set_groups(node, group, None, without_group))


@put("/v1/nodes/{node:str}/resources/{index:int}/groups/{group:str}")
async def add_gpu_group(call: Call, node: str, index: int, group: str) -> NodeView:
    """Limit a GPU to members of this group and of those before."""
    call.team.accounts.rows.title_of(group)
    return node_view(call, await call.team.nodes.set_groups(node, group, index, with_group))


@delete("/v1/nodes/{node:str}/resources/{index:int}/groups/{group:str}")
async def remove_gpu_group(call: Call, node: str, index: int, group: str) -> NodeView:
    """Take a group off a GPU; if it was the only one, it is for everyone."""
    return node_view(call, await call.team.nodes.set_groups(node, group, index, without_group))


# --- names of GPUs -------------------------------------------------------------------------------


@get("/v1/aliases")
async def list_aliases(call: Call) -> AliasList:
    """Short names of GPU models."""
    found = call.team.nodes.aliases
    return {"aliases": [{"name": name, "resource": model} for name, model in found.items()]}


@get("/v1/aliases/{alias:str}")
async def show_alias(call: Call, alias: str) -> AliasView:
    """What a short name stands for."""
    return {"name": alias, "resource": call.team.nodes.model_of(alias)}


@put("/v1/aliases/{alias:str}")
async def add_alias(call: Call, alias: str, body: AliasModel) -> AliasView:
    """Give a GPU model a short name; it counts at once."""
    await call.team.nodes.set_alias(alias, body.resource, new=True)
    return {"name": alias, "resource": body.resource}


@patch("/v1/aliases/{alias:str}")
async def change_alias(call: Call, alias: str, body: AliasModel) -> AliasView:
    """Let a short name stand for another model."""
    await call.team.nodes.set_alias(alias, body.resource, new=False)
    return {"name": alias, "resource": body.resource}


@delete("/v1/aliases/{alias:str}")
async def remove_alias(call: Call, alias: str) -> Nothing:
    """Forget a short name."""
    await call.team.nodes.forget_alias(alias)
    return {}


# --- limits --------------------------------------------------------------------------------------


def _limits_view(limits: UseLimits) -> LimitsView:
    return {
        "gpus": limits.gpus,
        "jobs": limits.jobs,
        "time_s": limits.time_s,
        "data_bytes": limits.data_bytes,
    }


@get("/v1/team/limits")
async def list_limits(call: Call) -> LimitsList:
    """What users, and the members of groups together, may use at once; 0: no limit."""
    nodes = call.team.nodes
    return {
        "users": {name: _limits_view(one) for name, one in nodes.limits(False).items()},
        "groups": {name: _limits_view(one) for name, one in nodes.limits(True).items()},
    }


@put("/v1/team/limits/{kind:str}/{name:str}")
async def set_limits(call: Call, kind: str, name: str, body: NewLimits) -> LimitsView:
    """Limit what a user (`users`), or the members of a group (`groups`), may use."""
    if kind not in ("users", "groups"):
        raise NotFound(f"there are limits of users and of groups, not of {kind}")
    limits = UseLimits(body.gpus, body.jobs, body.time_s, body.data_bytes)
    await call.team.nodes.set_limits(name, kind == "groups", limits)
    return _limits_view(limits)


ENDPOINTS: list[Endpoint] = [
    list_nodes,
    show_node,
    add_node,
    change_node,
    remove_node,
    add_node_group,
    remove_node_group,
    add_gpu_group,
    remove_gpu_group,
    list_aliases,
    show_alias,
    add_alias,
    change_alias,
    remove_alias,
    list_limits,
    set_limits,
]
