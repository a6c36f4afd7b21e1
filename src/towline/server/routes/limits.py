"""How many jobs of one kind some machines could run at a time."""

from msgspec import Struct

from towline.api.places import MachineLimitList
from towline.config.settings import MachineEntry
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
    places = call.local.places(checked_folder(body.cwd))
    wanted = (body.machines, body.request, body.each)
    return await call.api.places.limits(call.who, places, *wanted)


ENDPOINTS: list[Endpoint] = [show_limits]
