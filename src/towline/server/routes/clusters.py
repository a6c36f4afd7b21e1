"""Clusters and machines: list, add, remove, examine, log in."""

from collections.abc import AsyncIterator

import msgspec

from towline.api.places import ClusterList, ClusterName, Logins, MachineList, Nothing
from towline.backends.registry import queue_kind
from towline.config.settings import AnyQueue, MachinesCluster, QueueCluster
from towline.engine.following.output import Frame
from towline.errors import UsageError
from towline.server.endpoints import Call, Endpoint, delete, get, post
from towline.server.streams import Frames
from towline.workspace.ask import checked_folder


class NewCluster(msgspec.Struct, forbid_unknown_fields=True):
    """One of `machines`; or one with a queue, of some `kind`, by its access node `host`."""

    name: str
    machines: list[str] = []
    kind: str = "machines"
    host: str = ""
    #: An older way to say `"kind": "slurm"` and its `host`.
    slurm: str = ""
    options: dict[str, str] = {}
    setup: str = ""
    folder: str = QueueCluster().folder
    #: Keep it though no machine answers.
    offline: bool = False
    cwd: str = "/"

    def settings(self) -> MachinesCluster | AnyQueue:
        if self.kind == "machines" and not self.slurm:
            return MachinesCluster([*self.machines], setup=self.setup, folder=self.folder)
        kind, host = queue_kind("slurm" if self.slurm else self.kind), self.slurm or self.host
        if self.machines or not host:
            title = kind.dialect.title
            raise UsageError(f"a {title} knows its machines itself: name only its access node")
        kind.dialect.check_options(self.options)
        return kind.settings(host, self.setup, {**self.options}, self.folder)


class AccessNode(msgspec.Struct, forbid_unknown_fields=True):
    """The access node of a queue that need not be configured."""

    cwd: str
    kind: str
    host: str
    folder: str = QueueCluster().folder


class Named(msgspec.Struct):
    name: str


class Redial(msgspec.Struct):
    machines: list[str]


class ClusterQuery(msgspec.Struct):
    cwd: str | None = None
    cluster: str | None = None


class WhichMachine(msgspec.Struct):
    name: str = ""
    cwd: str | None = None


@get("/v1/clusters")
async def list_clusters(call: Call, query: ClusterQuery) -> ClusterList:
    """Those that are configured for a folder."""
    return {"clusters": call.api.places.clusters(call.who, call.workspace.places(query.cwd))}


@post("/v1/clusters")
async def add(call: Call, body: NewCluster) -> Frames:
    """Meet the machines of a new cluster, show what was found, and write it into the user's
    configuration unless nothing answers."""
    from towline.config import edit  # what edits files is loaded where one is edited

    name, settings = body.name, body.settings()
    places = call.local.places(None)
    file = places.user_file
    edit.text_with_cluster(file, name, settings)

    def write() -> None:
        edit.add_cluster(file, name, settings)

    return Frames(call.api.places.add(call.who, name, settings, places, write, body.offline))


@post("/v1/clusters/default")
async def default(call: Call, body: Named) -> Nothing:
    """Make a cluster of the user's configuration the one that is meant where none is named."""
    from towline.config import edit

    edit.set_default(call.local.configuration.user_file, body.name)
    return {}


@post("/v1/clusters/behind")
async def ad_hoc_queue(call: Call, body: AccessNode) -> ClusterName:
    """The name of the cluster behind an access node, in the configuration or not."""
    config = call.local.places(checked_folder(body.cwd)).config
    given = queue_kind(body.kind).settings(host=body.host, folder=body.folder)
    return {"cluster": await call.api.places.ad_hoc_queue(call.who, given, config)}


@delete("/v1/clusters/{name:str}")
async def remove(call: Call, name: str) -> Nothing:
    """Take a cluster out of the user's configuration."""
    from towline.config import edit

    file = call.local.configuration.user_file
    call.api.places.remove(call.who, name, lambda: edit.remove_cluster(file, name))
    return {}


@get("/v1/machines")
async def list_machines(call: Call, query: ClusterQuery) -> MachineList:
    """What is free on the machines of all clusters, or of one."""
    places = call.workspace.places(query.cwd)
    return {"machines": await call.api.places.machines(call.who, places, query.cluster)}


@get("/v1/machines/login")
async def login(call: Call, query: WhichMachine) -> Logins:
    """How a person logs in to a machine, or to all of a cluster that want it."""
    places = call.workspace.places(query.cwd)
    return {"logins": call.api.places.logins(call.who, query.name, places)}


@post("/v1/machines/redial")
async def redial(call: Call, body: Redial) -> Nothing:
    """Try machines again now."""
    call.api.places.redial(call.who, body.machines)
    return {}


@get("/v1/doctor")
async def doctor(call: Call, query: ClusterQuery) -> Frames:
    """Examine the machines of all clusters, or of one, step by step."""

    async def stream() -> AsyncIterator[Frame]:
        healthy = True
        places = call.workspace.places(query.cwd)
        async for step in call.api.places.doctor(call.who, places, query.cluster):
            healthy = healthy and step["ok"] is not False
            yield {"step": step}, b""
        yield {"done": True, "ok": healthy}, b""

    return Frames(stream())


ENDPOINTS: list[Endpoint] = [
    list_clusters,
    add,
    default,
    ad_hoc_queue,
    remove,
    list_machines,
    login,
    redial,
    doctor,
]
