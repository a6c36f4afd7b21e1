"""Remove what ended jobs left behind."""

from typing import Any

import msgspec
from litestar import Request, Response, post

from towline.engine.desk import Desk
from towline.server.wire import answer, body_as


class Cleaning(msgspec.Struct):
    dry_run: bool = False


@post("/v1/gc", status_code=200)
async def clean(request: Request[Any, Any, Any]) -> Response[bytes]:
    desk: Desk = request.app.state.desk
    wanted = await body_as(request, Cleaning)
    return answer(await desk.housekeeping.clean(wanted.dry_run))


ROUTES = [clean]
