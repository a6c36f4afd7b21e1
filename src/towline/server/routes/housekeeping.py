"""Remove what ended jobs left behind."""

from typing import Any

import msgspec
from litestar import Request, Response, post

from towline.engine.housekeeping import Housekeeping
from towline.server.wire import answer, body_as


class Cleaning(msgspec.Struct):
    dry_run: bool = False


@post("/v1/gc", status_code=200)
async def clean(request: Request[Any, Any, Any]) -> Response[bytes]:
    housekeeping: Housekeeping = request.app.state.housekeeping
    wanted = await body_as(request, Cleaning)
    return answer(await housekeeping.clean(wanted.dry_run))


ROUTES = [clean]
