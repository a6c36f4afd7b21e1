"""About the Engine itself."""

import os
import time
from collections.abc import Callable

from towline.api.places import EngineView, Nothing
from towline.server.endpoints import Call, Endpoint, get, post
from towline.version import __version__

_STARTED = time.time()


@get("/v1/engine")
async def engine_status(call: Call) -> EngineView:
    """Which Engine this is, and what it does."""
    desk = call.desk
    machines = desk.fleet.machines
    return {
        "version": __version__,
        "pid": os.getpid(),
        "engine": desk.engine.store.engine_id,
        "started": _STARTED,
        "jobs_active": len(desk.engine.core.jobs),
        "jobs_waiting": desk.engine.core.scheduler.waiting_count,
        "machines": {name: machine.channel.state for name, machine in machines.items()},
        "home": desk.paths.home,
        # A submission under a key may be repeated: it is accepted once.
        "keys": True,
    }


def retire_with(let_go: Callable[[], None]) -> Endpoint:
    """Only the process that serves knows how to end."""

    @post("/v1/engine/retire")
    async def retire(call: Call) -> Nothing:
        """Finish what is being written and go; the jobs stay."""
        let_go()
        return {}

    return retire


ENDPOINTS: list[Endpoint] = [engine_status]
