"""About the Engine itself."""

import time
from collections.abc import Callable

from towline.api.places import EngineView, Nothing
from towline.server.endpoints import Call, Endpoint, get, post

_STARTED = time.time()


@get("/v1/engine")
async def engine_status(call: Call) -> EngineView:
    """Which Engine this is, and what it does."""
    return call.api.places.engine(call.who, _STARTED)


def retire_with(let_go: Callable[[], None]) -> Endpoint:
    """Only the process that serves knows how to end."""

    @post("/v1/engine/retire")
    async def retire(call: Call) -> Nothing:
        """Finish what is being written and go; the jobs stay."""
        let_go()
        return {}

    return retire


ENDPOINTS: list[Endpoint] = [engine_status]
