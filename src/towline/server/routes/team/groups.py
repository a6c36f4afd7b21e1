"""Groups, what is shared with them, and what everybody may know of a job."""

from msgspec import Struct

from towline.api.places import Nothing
from towline.api.team import GroupList, GroupView, JobGroups, StatusRow
from towline.server.endpoints import Call, Endpoint, delete, get, patch, put


class GroupTitle(Struct, forbid_unknown_fields=True):
    title: str = ""


@get("/v1/groups")
async def list_groups(call: Call) -> GroupList:
    """All groups."""
    found = call.team.accounts.rows.groups()
    return {"groups": [{"name": name, "title": title} for name, title in found.items()]}


@get("/v1/groups/{group:str}")
async def show(call: Call, group: str) -> GroupView:
    """A group; who is in it, for those who are and for administrators."""
    rows = call.team.accounts.rows
    seen: GroupView = {"name": group, "title": rows.title_of(group)}
    if call.who.administrator or group in call.who.groups:
        seen["members"] = rows.members_of(group)
    return seen


@put("/v1/groups/{group:str}")
async def add(call: Call, group: str, body: GroupTitle) -> GroupView:
    """Make a group."""
    await call.team.accounts.add_group(group, body.title)
    return {"name": group, "title": body.title}


@patch("/v1/groups/{group:str}")
async def change(call: Call, group: str, body: GroupTitle) -> GroupView:
    """Give a group another title."""
    await call.team.accounts.retitle_group(group, body.title)
    return {"name": group, "title": body.title}


@delete("/v1/groups/{group:str}")
async def remove(call: Call, group: str) -> Nothing:
    """End a group; nothing is shared with it any more."""
    await call.team.accounts.remove_group(group)
    return {}


@put("/v1/jobs/{job_id:int}/groups/{group:str}")
async def share_job(call: Call, job_id: int, group: str) -> JobGroups:
    """Let a group look at a job and stop it; of a batch, at all of its jobs."""
    call.team.accounts.rows.title_of(group)
    return {"groups": await call.api.jobs.share(call.who, job_id, group, True)}


@delete("/v1/jobs/{job_id:int}/groups/{group:str}")
async def unshare_job(call: Call, job_id: int, group: str) -> JobGroups:
    """Take a job off a group."""
    return {"groups": await call.api.jobs.share(call.who, job_id, group, False)}


@get("/v1/team/jobs/{job_id:int}")
async def short_facts(call: Call, job_id: int) -> StatusRow:
    """What everybody may know of a job."""
    return call.api.team.short(call.who, job_id)


ENDPOINTS: list[Endpoint] = [
    list_groups,
    show,
    add,
    change,
    remove,
    share_job,
    unshare_job,
    short_facts,
]
