"""Clusters and machines: list, add, remove, examine, log in."""

from collections.abc import AsyncIterator, Iterable
from typing import Any

import msgspec
from litestar import Request, Response, delete, get, post
from litestar.response import Stream

from towline.backends.driver import Driver
from towline.backends.slurm.options import option_names
from towline.config.edit import add_cluster, remove_cluster, set_default, text_with_cluster
from towline.config.settings import MachinesCluster, SlurmCluster
from towline.engine.ask import checked_folder
from towline.engine.desk import Desk, login_of
from towline.engine.doctor import examine, examine_slurm
from towline.engine.output import Frame
from towline.errors import HostError, NoNetwork, TowlineError, Unreachable, UsageError
from towline.server.wire import answer, body_as, frames


class NewCluster(msgspec.Struct, forbid_unknown_fields=True):
    """One of `machines`, or the Slurm behind an access node, with its `options`."""

    name: str
    machines: list[str] = []
    slurm: str = ""
    options: dict[str, str] = {}
    setup: str = ""
    folder: str = SlurmCluster().folder
    #: Keep it though no machine answers.
    offline: bool = False
    cwd: str = "/"

    def settings(self) -> MachinesCluster | SlurmCluster:
        if not self.slurm:
            return MachinesCluster([*self.machines], setup=self.setup, folder=self.folder)
        if self.machines:
            raise UsageError("a Slurm knows its machines itself: name only its access node")
        option_names(self.options)
        return SlurmCluster(self.slurm, self.setup, {**self.options}, self.folder)


class SlurmAsk(msgspec.Struct, forbid_unknown_fields=True):
    """The access node of a Slurm that need not be configured."""

    cwd: str
    host: str
    folder: str = SlurmCluster().folder


class Named(msgspec.Struct):
    name: str


class Redial(msgspec.Struct):
    machines: list[str]


def _cwd(request: Request[Any, Any, Any]) -> str | None:
    return request.query_params.get("cwd") or None


@get("/v1/clusters")
async def list_clusters(request: Request[Any, Any, Any]) -> Response[bytes]:
    return answer({"clusters": request.app.state.desk.cluster_list(_cwd(request))})


@post("/v1/clusters", status_code=200)
async def add(request: Request[Any, Any, Any]) -> Stream:
    """Meet the machines of a new cluster, show what was found, and write it into the user's
    configuration unless nothing answers."""
    desk: Desk = request.app.state.desk
    new = await body_as(request, NewCluster)
    settings = new.settings()
    text_with_cluster(desk.paths.config_file, new.name, settings)

    async def stream() -> AsyncIterator[Frame]:
        added = False
        try:
            drivers = desk.intake.join_as(new.name, settings, desk.intake.config(None))
            errors: list[HostError | None] = []
            for driver in drivers:
                step, error = await _met(driver)
                errors.append(error)
                yield {"step": step}, b""
                if new.slurm and error is None:
                    async for seen in examine_slurm(desk, new.name):
                        yield {"step": seen}, b""
            if new.offline or could_work(errors):
                add_cluster(desk.paths.config_file, new.name, settings)
                added = True
                yield {"machines": await desk.whats_free.behind(drivers)}, b""
            yield {"done": True, "added": added}, b""
        finally:
            if not added:
                desk.clusters.give_up(new.name)

    return frames(stream())


async def _met(driver: Driver) -> tuple[dict[str, Any], HostError | None]:
    """One machine of a new cluster: what is told of it, and why it cannot be used."""
    try:
        link = await driver.reach(20.0, patient=False)
    except HostError as error:
        text = error.text.removeprefix(f"{driver.name}: ")
        step = {"machine": driver.name, "text": text, "hint": error.hint, "ok": False}
        if login := login_of(driver):
            step["login"] = login
        return step, error
    text = f"connected (python {link.hello['python']})"
    return {"machine": driver.name, "text": text, "ok": True}, None


def could_work(errors: Iterable[HostError | None]) -> bool:
    """Whether a new cluster is worth keeping: every name exists, and some machine answered."""
    found = list(errors)
    if any(isinstance(error, NoNetwork) for error in found):
        return False
    return any(not isinstance(error, Unreachable) for error in found)


@post("/v1/clusters/default", status_code=200)
async def default(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Make a cluster of the user's configuration the one that is meant where none is named."""
    desk: Desk = request.app.state.desk
    set_default(desk.paths.config_file, (await body_as(request, Named)).name)
    return answer({})


@post("/v1/clusters/slurm", status_code=200)
async def ad_hoc_slurm(request: Request[Any, Any, Any]) -> Response[bytes]:
    """The name of the cluster behind an access node, in the configuration or not."""
    desk: Desk = request.app.state.desk
    ask = await body_as(request, SlurmAsk)
    config = desk.intake.config(checked_folder(ask.cwd))
    given = SlurmCluster(host=ask.host, folder=ask.folder)
    return answer({"cluster": await desk.clusters.ad_hoc_slurm(given, config)})


@delete("/v1/clusters/{name:str}", status_code=200)
async def remove(request: Request[Any, Any, Any], name: str) -> Response[bytes]:
    desk: Desk = request.app.state.desk
    busy = [job.id for job in desk.engine.core.jobs.values() if job.spec.cluster == name]
    if busy:
        shown = ", ".join(map(str, busy[:5])) + (" …" if len(busy) > 5 else "")
        raise TowlineError(
            f"cluster {name!r} still has jobs: {shown}", hint="stop them first: tow stop"
        )
    remove_cluster(desk.paths.config_file, name)
    desk.clusters.leave(name)
    return answer({})


@get("/v1/machines")
async def list_machines(request: Request[Any, Any, Any]) -> Response[bytes]:
    desk: Desk = request.app.state.desk
    cluster = request.query_params.get("cluster") or None
    return answer({"machines": await desk.whats_free.of_clusters(_cwd(request), cluster)})


@get("/v1/machines/login")
async def login(request: Request[Any, Any, Any]) -> Response[bytes]:
    desk: Desk = request.app.state.desk
    return answer({"logins": desk.logins(request.query_params.get("name") or "", _cwd(request))})


@post("/v1/machines/redial", status_code=200)
async def redial(request: Request[Any, Any, Any]) -> Response[bytes]:
    desk: Desk = request.app.state.desk
    for name in (await body_as(request, Redial)).machines:
        desk.driver(name).channel.redial()
    return answer({})


@get("/v1/doctor")
async def doctor(request: Request[Any, Any, Any]) -> Stream:
    desk: Desk = request.app.state.desk
    cluster = request.query_params.get("cluster") or None

    async def stream() -> AsyncIterator[Frame]:
        healthy = True
        async for step in examine(desk, _cwd(request), cluster):
            healthy = healthy and step["ok"] is not False
            yield {"step": step}, b""
        yield {"done": True, "ok": healthy}, b""

    return frames(stream())


ROUTES = [list_clusters, add, default, ad_hoc_slurm, remove, list_machines, login, redial, doctor]
