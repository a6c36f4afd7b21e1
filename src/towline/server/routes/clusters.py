"""Clusters and machines: list, add, remove, examine, log in."""

from collections.abc import AsyncIterator, Iterable
from typing import Any

import msgspec

from towline.api.places import ClusterList, ClusterName, Logins, MachineList, Nothing
from towline.backends.base import MachineAccess
from towline.backends.registry import queue_kind
from towline.config.edit import add_cluster, remove_cluster, set_default, text_with_cluster
from towline.config.settings import AnyQueue, MachinesCluster, QueueCluster
from towline.engine.api import login_of
from towline.engine.doctor import examine, examine_queue
from towline.engine.following.output import Frame
from towline.errors import HostError, NoNetwork, TowlineError, Unreachable, UsageError
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
    return {"clusters": call.desk.cluster_list(call.who, call.workspace.places(query.cwd))}


@post("/v1/clusters")
async def add(call: Call, body: NewCluster) -> Frames:
    """Meet the machines of a new cluster, show what was found, and write it into the user's
    configuration unless nothing answers."""
    desk = call.desk
    new, settings = body, body.settings()
    places = call.workspace.places(None)
    text_with_cluster(places.user_file, new.name, settings)

    async def stream() -> AsyncIterator[Frame]:
        added = False
        try:
            drivers = desk.intake.join_as(new.name, settings, places.config, places.user_file)
            errors: list[HostError | None] = []
            for driver in drivers:
                step, error = await _met(driver)
                errors.append(error)
                yield {"step": step}, b""
                if error is None:
                    async for seen in examine_queue(desk, new.name):
                        yield {"step": seen}, b""
            if new.offline or could_work(errors):
                add_cluster(places.user_file, new.name, settings)
                added = True
                yield {"machines": await desk.whats_free.behind(drivers)}, b""
            yield {"done": True, "added": added}, b""
        finally:
            if not added:
                desk.clusters.give_up(new.name)

    return Frames(stream())


async def _met(driver: MachineAccess) -> tuple[dict[str, Any], HostError | None]:
    """One machine of a new cluster: what is told of it, and why it cannot be used."""
    try:
        upkeep = await driver.upkeep(20.0)
    except HostError as error:
        text = error.text.removeprefix(f"{driver.name}: ")
        step = {"machine": driver.name, "text": text, "hint": error.hint, "ok": False}
        if login := login_of(driver):
            step["login"] = login
        return step, error
    text = f"connected (python {upkeep.python})"
    return {"machine": driver.name, "text": text, "ok": True}, None


def could_work(errors: Iterable[HostError | None]) -> bool:
    """Whether a new cluster is worth keeping: every name exists, and some machine answered."""
    found = list(errors)
    if any(isinstance(error, NoNetwork) for error in found):
        return False
    return any(not isinstance(error, Unreachable) for error in found)


@post("/v1/clusters/default")
async def default(call: Call, body: Named) -> Nothing:
    """Make a cluster of the user's configuration the one that is meant where none is named."""
    set_default(call.workspace.configuration.user_file, body.name)
    return {}


@post("/v1/clusters/behind")
async def ad_hoc_queue(call: Call, body: AccessNode) -> ClusterName:
    """The name of the cluster behind an access node, in the configuration or not."""
    desk = call.desk
    config = call.workspace.places(checked_folder(body.cwd)).config
    given = queue_kind(body.kind).settings(host=body.host, folder=body.folder)
    return {"cluster": await desk.clusters.ad_hoc_queue(given, config)}


@delete("/v1/clusters/{name:str}")
async def remove(call: Call, name: str) -> Nothing:
    """Take a cluster out of the user's configuration."""
    desk = call.desk
    busy = [job.id for job in desk.engine.core.jobs.values() if job.spec.cluster == name]
    if busy:
        shown = ", ".join(map(str, busy[:5])) + (" …" if len(busy) > 5 else "")
        raise TowlineError(
            f"cluster {name!r} still has jobs: {shown}", hint="stop them first: tow stop"
        )
    remove_cluster(call.workspace.configuration.user_file, name)
    desk.clusters.leave(name)
    return {}


@get("/v1/machines")
async def list_machines(call: Call, query: ClusterQuery) -> MachineList:
    """What is free on the machines of all clusters, or of one."""
    places = call.workspace.places(query.cwd)
    return {"machines": await call.desk.whats_free.of_clusters(places, query.cluster)}


@get("/v1/machines/login")
async def login(call: Call, query: WhichMachine) -> Logins:
    """How a person logs in to a machine, or to all of a cluster that want it."""
    return {"logins": call.desk.logins(call.who, query.name, call.workspace.places(query.cwd))}


@post("/v1/machines/redial")
async def redial(call: Call, body: Redial) -> Nothing:
    """Try machines again now."""
    for name in body.machines:
        call.desk.driver(call.who, name).channel.redial()
    return {}


@get("/v1/doctor")
async def doctor(call: Call, query: ClusterQuery) -> Frames:
    """Examine the machines of all clusters, or of one, step by step."""
    desk = call.desk

    async def stream() -> AsyncIterator[Frame]:
        healthy = True
        places = call.workspace.places(query.cwd)
        async for step in examine(desk, places, query.cluster):
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
