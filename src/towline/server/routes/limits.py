"""How many jobs of one kind some machines could run at a time."""

from typing import Any

from litestar import Request, Response, post

from towline.engine.desk import Desk, login_of
from towline.engine.limits import LimitsAsk, limits
from towline.errors import HostError
from towline.hosts.ssh import needs_person
from towline.server.wire import answer, body_as


@post("/v1/limits", status_code=200)
async def show_limits(request: Request[Any, Any, Any]) -> Response[bytes]:
    desk: Desk = request.app.state.desk
    ask = await body_as(request, LimitsAsk)
    try:
        return answer(await limits(desk, ask))
    except HostError as error:
        entries = await desk.clusters.recognised(ask.machines, desk.intake.config(ask.cwd))
        drivers = [desk.clusters.driver_of(entry) for entry in entries]
        login = next((found for d in drivers if (found := login_of(d)) is not None), None)
        if login is None or not needs_person(error):
            raise
        body = {"code": error.code, "text": error.text, "hint": error.hint, "login": login}
        return answer({"error": body, "exit": error.exit_code}, error.status)


ROUTES = [show_limits]
