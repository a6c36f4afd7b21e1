"""What somebody asks for by its number: others' is as if it were not there."""

from towline.engine.engine import Engine, no_job
from towline.model.job import Job
from towline.model.principal import Principal


def job_for(who: Principal, job_id: int, engine: Engine) -> Job:
    """A job that somebody may look at."""
    job = engine.job(job_id)
    if not who.owns(job.spec.owner):
        raise no_job(job_id)
    return job
