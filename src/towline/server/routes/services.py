"""Services that run beside jobs."""

from typing import Any

from litestar import Request, Response, get

from towline.engine.desk import Desk
from towline.server.wire import answer, number


@get("/v1/services")
async def services(request: Request[Any, Any, Any]) -> Response[bytes]:
    """All of them, or those of one job."""
    desk: Desk = request.app.state.desk
    return answer({"services": desk.services.list(number(request, "job", 0) or None)})


ROUTES = [services]
