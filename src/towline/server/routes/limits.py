"""How many jobs of one kind some machines could run at a time."""

from msgspec import Struct

from towline.api.places import MachineLimitList
from towline.config.settings import MachineEntry
from towline.engine.api import login_of
from towline.engine.limits import limits
from towline.errors import HostError, LoginWanted
from towline.hosts.ssh import needs_person
from towline.server.endpoints import Call, Endpoint, post
from towline.workspace.ask import checked_folder


class LimitsAsk(Struct, forbid_unknown_fields=True):
    cwd: str
    machines: list[MachineEntry]
    #: What one of the jobs needs; one process.
    request: str = "[]"
    #: Make a cluster of each machine alone, too.
    each: bool = False


@post("/v1/limits")
async def show_limits(call: Call, body: LimitsAsk) -> MachineLimitList:
    """How many such jobs fit on each machine now; makes a cluster of them to submit to."""
    desk = call.desk
    places = call.workspace.places(checked_folder(body.cwd))
    try:
        return await limits(desk, places, body.machines, body.request, body.each)
    except HostError as error:
        entries = await desk.clusters.recognised(body.machines, places.config)
        drivers = [desk.clusters.driver_of(entry) for entry in entries]
        login = next((found for d in drivers if (found := login_of(d)) is not None), None)
        if login is None or not needs_person(error):
            raise
        raise LoginWanted(error, login) from None


ENDPOINTS: list[Endpoint] = [show_limits]
