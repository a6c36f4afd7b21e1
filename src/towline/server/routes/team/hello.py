"""Whether the server is there, and how it is."""

from towline.api.team import Hello, ServerHealth
from towline.server.endpoints import Call, Endpoint, get
from towline.server.streams import Text
from towline.server.team.metrics import figures
from towline.version import __version__


@get("/v1/hello")
async def hello(call: Call) -> Hello:
    """What kind of server this is, and how one becomes a member."""
    settings = call.team.settings
    return {
        "server": "towline",
        "version": __version__,
        "registration": settings.registration.value,
        "isolation": settings.isolation,
    }


@get("/healthz")
async def health(call: Call) -> ServerHealth:
    """Whether it can do its work: what is accepted must be written down."""
    call.api.places.check_health(call.who)
    return {"ok": True}


@get("/metrics")
async def metrics(call: Call) -> Text:
    """Figures for Prometheus."""
    return Text(figures(call.api.places.figures(call.who)))


ENDPOINTS: list[Endpoint] = [hello, health, metrics]
