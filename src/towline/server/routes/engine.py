"""About the Engine itself."""

import os
import time
from typing import Any

from litestar import Request, Response, get, post

from towline.engine.desk import Desk
from towline.server.wire import answer
from towline.version import __version__

_STARTED = time.time()


@get("/v1/engine")
async def engine_status(request: Request[Any, Any, Any]) -> Response[bytes]:
    desk: Desk = request.app.state.desk
    scheduler = desk.engine.core.scheduler
    return answer(
        {
            "version": __version__,
            "pid": os.getpid(),
            "engine": desk.engine.store.engine_id,
            "started": _STARTED,
            "jobs_active": len(desk.engine.core.jobs),
            "jobs_waiting": scheduler.waiting_count,
            "machines": {
                name: driver.channel.state for name, driver in desk.machines.drivers.items()
            },
            "home": desk.paths.home,
            # A submission under a key may be repeated: it is accepted once.
            "keys": True,
        }
    )


@post("/v1/engine/retire", status_code=200)
async def retire(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Finish what is being written and go; the jobs stay."""
    request.app.state.retire()
    return answer({})


ROUTES = [engine_status, retire]
