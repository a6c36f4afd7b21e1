"""Services that run beside jobs."""

from msgspec import Struct

from towline.api.places import ServiceList
from towline.server.endpoints import Call, Endpoint, get


class ServiceQuery(Struct):
    job: int = 0


@get("/v1/services")
async def services(call: Call, query: ServiceQuery) -> ServiceList:
    """All of them, or those of one job."""
    return {"services": call.api.services.list_all(call.who, query.job or None)}


ENDPOINTS: list[Endpoint] = [services]
