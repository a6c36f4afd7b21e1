"""What everybody's jobs do: the report, and lists by wish."""

from typing import Annotated

import msgspec

from towline.api.team import TeamJobs, TeamStatus
from towline.server.endpoints import Call, Endpoint, Most, get

_MOST_ROWS = 100
_Rows = Annotated[int, msgspec.Meta(ge=0, le=2**31)]


class StatusQuery(msgspec.Struct, forbid_unknown_fields=True):
    #: Of those that wait, so many are shown, and the asker's own.
    most: Most = 200


class JobFilters(msgspec.Struct, forbid_unknown_fields=True):
    """As they are typed: times as ISO 8601 or in seconds since 1970."""

    since: str = ""
    till: str = ""
    user: str = ""
    title: str = ""
    asc: str = ""
    desc: str = ""
    limit: _Rows = _MOST_ROWS
    offset: _Rows = 0


@get("/v1/team/status")
async def status(call: Call, query: StatusQuery) -> TeamStatus:
    """What runs, what waits as it is its turn, and what ended last, of everybody."""
    return call.api.team.status(call.who, query.most)


@get("/v1/team/jobs")
async def list_jobs(call: Call, query: JobFilters) -> TeamJobs:
    """Jobs of everybody, the newest first unless told otherwise."""
    return call.api.team.jobs(call.who, **msgspec.structs.asdict(query))


ENDPOINTS: list[Endpoint] = [status, list_jobs]
