"""What somebody asks for by its number: others' is as if it were not there, or is refused where
everybody may know that it is."""

from towline.api.team import ShortJob
from towline.engine.engine import Engine, no_job
from towline.errors import Forbidden
from towline.model.job import Job, standing
from towline.model.odd_text import original
from towline.model.principal import Principal


def job_for(who: Principal, job_id: int, engine: Engine) -> Job:
    """A job that somebody may look at, and do with what its owner may."""
    job = engine.job(job_id)
    if not is_open_to(who, job, engine):
        if who.hears_of_others:
            raise Forbidden(f"job {job_id} is not yours, nor shared with a group that you are in")
        raise no_job(job_id)
    return job


def is_open_to(who: Principal, job: Job, engine: Engine) -> bool:
    """Whether it is somebody's own, or shared with them."""
    return who.owns(job.spec.owner) or (
        bool(who.groups) and who.shares(engine.store.shares.groups_of(job))
    )


def short_view(job: Job) -> ShortJob:
    """What everybody may know, unless the server keeps that to itself."""
    return {
        "id": job.id,
        "title": original(job.spec.title),
        "owner": job.spec.owner,
        "request": job.spec.request,
        "cluster": job.spec.cluster,
        "state": standing(job),
        "submitted": job.submitted,
        "started": job.started,
        "ended": job.ended,
        "exit_code": job.exit_code,
    }


def short_job(engine: Engine, who: Principal, job_id: int) -> ShortJob:
    """The same of a job that is looked for by its number."""
    job = engine.job(job_id)
    is_open = is_open_to(who, job, engine)
    if not (is_open or who.hears_of_others):
        raise no_job(job_id)
    seen = short_view(job)
    if is_open:
        seen["groups"] = list(engine.store.shares.groups_of(job))
    return seen


async def share(engine: Engine, who: Principal, job_id: int, group: str, shared: bool) -> list[str]:
    """Share a job with a group, or do so no more; the groups that it is shared with then."""
    job, shares = job_for(who, job_id, engine), engine.store.shares
    groups = set(shares.groups_of(job))
    changed = groups | {group} if shared else groups - {group}
    if changed != groups:
        await engine.in_turn(lambda: shares.set_groups(job, changed))
    return sorted(changed)
