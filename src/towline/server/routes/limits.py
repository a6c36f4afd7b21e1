"""How many jobs of one kind some machines could run at a time."""

from towline.api.places import Limits
from towline.engine.desk import login_of
from towline.engine.limits import LimitsAsk, limits
from towline.errors import HostError, LoginWanted
from towline.hosts.ssh import needs_person
from towline.server.endpoints import Call, Endpoint, post


@post("/v1/limits")
async def show_limits(call: Call, body: LimitsAsk) -> Limits:
    """How many such jobs fit on each machine now; makes a cluster of them to submit to."""
    desk = call.desk
    try:
        return await limits(desk, body)
    except HostError as error:
        entries = await desk.clusters.recognised(body.machines, desk.intake.config(body.cwd))
        drivers = [desk.clusters.driver_of(entry) for entry in entries]
        login = next((found for d in drivers if (found := login_of(d)) is not None), None)
        if login is None or not needs_person(error):
            raise
        raise LoginWanted(error, login) from None


ENDPOINTS: list[Endpoint] = [show_limits]
