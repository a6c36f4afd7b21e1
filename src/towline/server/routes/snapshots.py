"""The submitted versions: compare them, bring them back, list and forget records of them."""

import msgspec

from towline.api.files import CheckedOut, Diff, Forgotten, SnapshotRecords
from towline.model.units import parse_duration_s
from towline.server.endpoints import Call, Endpoint, get, post


class Compared(msgspec.Struct):
    #: With another job; 0: with the folder as it is now.
    other: int = 0
    #: Only the names of files that differ.
    names: bool = False


class Checkout(msgspec.Struct):
    folder: str


class RepositoryQuery(msgspec.Struct):
    cwd: str = "/"


class Prune(msgspec.Struct):
    cwd: str
    older_than: str = "0"


@get("/v1/jobs/{job_id:int}/diff")
async def diff(call: Call, job_id: int, query: Compared) -> Diff:
    """What differs between what was submitted and something else."""
    job = call.api.jobs.find(call.who, job_id)
    other = call.api.jobs.find(call.who, query.other) if query.other else None
    return {"diff": await call.local.versions.diff(job, other, query.names)}


@post("/v1/jobs/{job_id:int}/checkout")
async def checkout(call: Call, job_id: int, body: Checkout) -> CheckedOut:
    """Make a folder of what was submitted."""
    job = call.api.jobs.find(call.who, job_id)
    return {"files": await call.local.versions.checkout(job, body.folder)}


@get("/v1/snapshots")
async def list_snapshots(call: Call, query: RepositoryQuery) -> SnapshotRecords:
    """The records of dirty trees that a repository keeps."""
    return {"snapshots": call.local.versions.records(query.cwd)}


@post("/v1/snapshots/prune")
async def prune(call: Call, body: Prune) -> Forgotten:
    """Forget records that are older than so long."""
    age_s = 0.0 if body.older_than == "0" else parse_duration_s(body.older_than)
    return {"forgotten": call.local.versions.prune(body.cwd, age_s)}


ENDPOINTS: list[Endpoint] = [diff, checkout, list_snapshots, prune]
