"""The submitted versions: compare them, bring them back, list and forget records of them."""

from typing import Any

import msgspec
from litestar import Request, Response, get, post

from towline.engine.desk import Desk
from towline.model.units import parse_duration_s
from towline.server.wire import answer, body_as, number


class Checkout(msgspec.Struct):
    folder: str


class Prune(msgspec.Struct):
    cwd: str
    older_than: str = "0"


@get("/v1/jobs/{job_id:int}/diff")
async def diff(request: Request[Any, Any, Any], job_id: int) -> Response[bytes]:
    desk: Desk = request.app.state.desk
    other = number(request, "other", 0) or None
    names_only = request.query_params.get("names") == "1"
    return answer({"diff": await desk.versions.diff(job_id, other, names_only)})


@post("/v1/jobs/{job_id:int}/checkout", status_code=200)
async def checkout(request: Request[Any, Any, Any], job_id: int) -> Response[bytes]:
    desk: Desk = request.app.state.desk
    wanted = await body_as(request, Checkout)
    return answer({"files": await desk.versions.checkout(job_id, wanted.folder)})


@get("/v1/snapshots")
async def list_snapshots(request: Request[Any, Any, Any]) -> Response[bytes]:
    cwd = request.query_params.get("cwd") or "/"
    return answer({"snapshots": request.app.state.desk.versions.records(cwd)})


@post("/v1/snapshots/prune", status_code=200)
async def prune(request: Request[Any, Any, Any]) -> Response[bytes]:
    wanted = await body_as(request, Prune)
    age_s = 0.0 if wanted.older_than == "0" else parse_duration_s(wanted.older_than)
    return answer({"forgotten": request.app.state.desk.versions.prune(wanted.cwd, age_s)})


ROUTES = [diff, checkout, list_snapshots, prune]
