"""Services that run beside jobs."""

from msgspec import Struct

from towline.api.places import Services
from towline.server.endpoints import Call, Endpoint, get


class Chosen(Struct):
    job: int = 0


@get("/v1/services")
async def services(call: Call, query: Chosen) -> Services:
    """All of them, or those of one job."""
    return {"services": call.desk.services.list(call.who, query.job or None)}


ENDPOINTS: list[Endpoint] = [services]
