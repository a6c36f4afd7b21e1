"""Remove what ended jobs left behind."""

from typing import Any

import msgspec
from litestar import Request, Response, get, post

from towline.engine.desk import Desk
from towline.engine.removing import disk_use
from towline.server.wire import answer, body_as


class Cleaning(msgspec.Struct):
    dry_run: bool = False
    #: All that is home, however little time ago.
    everything: bool = False


class Removal(msgspec.Struct):
    ids: list[int] = msgspec.field(default_factory=list)
    batches: list[str] = msgspec.field(default_factory=list)
    #: Also what has results that are not home.
    force: bool = False


@post("/v1/gc", status_code=200)
async def clean(request: Request[Any, Any, Any]) -> Response[bytes]:
    desk: Desk = request.app.state.desk
    wanted = await body_as(request, Cleaning)
    return answer(await desk.housekeeping.clean(wanted.dry_run, wanted.everything))


@post("/v1/jobs/remove", status_code=200)
async def remove(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Forget jobs, and what is kept of them on machines."""
    desk: Desk = request.app.state.desk
    wanted = await body_as(request, Removal)
    removed = await desk.removing.remove(wanted.ids, wanted.batches, wanted.force)
    return answer(msgspec.to_builtins(removed))


@get("/v1/disk")
async def disk(request: Request[Any, Any, Any]) -> Response[bytes]:
    """What is used on the machines of a cluster, or on all that are known."""
    desk: Desk = request.app.state.desk
    query = request.query_params
    names = desk.whats_free.machine_names(query.get("cwd") or None, query.get("cluster") or None)
    return answer({"machines": await disk_use(desk.machines, names)})


ROUTES = [clean, remove, disk]
