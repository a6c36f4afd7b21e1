"""Remove what ended jobs left behind."""

import msgspec

from towline.api.jobs import RemovedView
from towline.api.places import Cleaned, Disk
from towline.server.endpoints import Call, Endpoint, get, post


class Cleaning(msgspec.Struct):
    dry_run: bool = False
    #: All that is home, however little time ago.
    everything: bool = False


class Removal(msgspec.Struct):
    ids: list[int] = msgspec.field(default_factory=list)
    batches: list[str] = msgspec.field(default_factory=list)
    #: Also what has results that are not home.
    force: bool = False


class DiskQuery(msgspec.Struct):
    cwd: str | None = None
    cluster: str | None = None


@post("/v1/gc")
async def clean(call: Call, body: Cleaning) -> Cleaned:
    """Remove what nobody needs any more from machines, and from this one."""
    return await call.api.places.clean(call.who, body.dry_run, body.everything)


@post("/v1/jobs/remove")
async def remove(call: Call, body: Removal) -> RemovedView:
    """Forget jobs, and what is kept of them on machines."""
    return await call.api.jobs.remove(call.who, body.ids, body.batches, body.force)


@get("/v1/disk")
async def disk(call: Call, query: DiskQuery) -> Disk:
    """What is used on the machines of a cluster, or on all that are known."""
    places = call.workspace.places(query.cwd)
    return {"machines": await call.api.places.disk(call.who, places, query.cluster)}


ENDPOINTS: list[Endpoint] = [clean, remove, disk]
