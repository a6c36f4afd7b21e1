"""What the rules of a team mean for jobs: who loses a right ends what waits for it."""

from msgspec.structs import replace

from towline.core import jobs
from towline.core.ledger import Ledger
from towline.core.step import Step
from towline.model.events import TeamSeen
from towline.model.job import Job, State
from towline.model.reason import FORBIDDEN
from towline.model.request import Request


def seen(core: Ledger, fact: TeamSeen, now: float, step: Step) -> None:
    """Go by these rules from now on."""
    core.scheduler.shares.recall(fact.shares)
    core.scheduler.rules.change(fact.team)
    if fact.check:
        end_forbidden(core, now, step)


def end_forbidden(core: Ledger, now: float, step: Step) -> None:
    """End what waits for machines that could take it, and that its owner may not use any more."""
    verdicts: dict[tuple[str, Request, str], bool] = {}
    for job in list(core.jobs.values()):
        if job.state not in (State.QUEUED, State.WAITING) or job.spec.queue is not None:
            continue
        asked = (job.spec.cluster, core.request_of(job.id), job.spec.owner)
        if asked not in verdicts:
            verdicts[asked] = core.scheduler.forbidden(*asked)
        if verdicts[asked]:
            core.end_waiting(jobs.stopped_waiting(job, FORBIDDEN, now), step)


def bounded(core: Ledger, job: Job) -> Job:
    """A job that runs no longer than its owner's may."""
    time_s = core.scheduler.rules.bounded_s(job.spec.owner, job.spec.time_s)
    return job if time_s == job.spec.time_s else replace(job, spec=replace(job.spec, time_s=time_s))


def note_shares(core: Ledger, step: Step) -> None:
    """Say what has been used, where others are to be treated fairly after a restart as well."""
    changed = core.scheduler.shares.changed()
    if core.scheduler.rules.team is not None:
        step.shares += changed
