"""Which jobs are sent ahead, and which of them are asked back. Pure, like all of the scheduler.

Sent ahead is only who would get the place in question if it were free now: the best-ranked of all
that wait and could use it. Whoever was sent ahead is asked back when the machine is not to be used
(any more), when somebody of a higher priority waits for the place, when there is a free one
elsewhere, or when it takes much longer than expected until there is one.
"""

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from towline.core.machines.demand import demands_of
from towline.core.machines.host_state import HostState
from towline.core.machines.machine_index import candidates
from towline.core.scheduling.bucket import OWN_STEP_S, Bucket
from towline.core.scheduling.owner_queues import Rank
from towline.core.scheduling.series import WRITING_S, Sent, Series

if TYPE_CHECKING:
    from towline.core.scheduling.scheduler import Placed, Scheduler

#: Buckets of one owner that are looked at for one that could use a place.
DEPTH = 50
#: Hosts elsewhere that are looked at for a free place.
MOST_HOSTS = 50
#: Whoever was sent ahead stays there for so many round trips though there is a place elsewhere;
#: and for so many, or so long, in any case.
SETTLED_TRIPS = 2
PATIENT_TRIPS = 8
PATIENT_S = 1.0


class Next(NamedTuple):
    """Who would get a place."""

    rank: Rank
    id: int
    cluster: str
    owner: str
    priority: int
    limit_s: float
    #: The series that it would be of there; empty for a job that is never sent ahead.
    series: str


def send_ahead(scheduler: "Scheduler", now: float) -> "list[Placed]":
    """The next jobs of all series that can do with more, one after the other."""
    found = []
    waiting = scheduler.queue.waiting or scheduler.caps.all
    those = scheduler.series.short if waiting else ()
    hungry = [series for series in those if is_hungry(scheduler, series)]
    while hungry:
        fed = []
        for series in hungry:
            job = next_for(scheduler, series, now)
            limited = job is not None and scheduler.rules.limits(job.owner)
            if job is not None and job.series == series.name and not limited:
                found.append(scheduler.send_ahead(job, series, now))
                fed.append(series)
        hungry = [series for series in fed if is_hungry(scheduler, series)]
    return found


def to_recall(scheduler: "Scheduler", now: float) -> list[int]:
    """Those sent ahead that are to come back; each is named once."""
    found: list[int] = []
    for series in scheduler.series.with_ahead:
        sent = {job: one for job, one in series.ahead.items() if not one.recalled}
        host = scheduler.machines.hosts.get(series.machine)
        if sent and host is not None and host.up:
            for job in recalled_from(scheduler, series, host, sent, now):
                sent[job].recalled = True
                found.append(job)
    return found


def recalled_from(
    scheduler: "Scheduler", series: Series, host: HostState, sent: dict[int, Sent], now: float
) -> list[int]:
    if not is_sound(scheduler, series, host):
        return list(sent)
    patient_s, settled_s = patience_s(scheduler, series)
    if any(one.at + patient_s <= now for one in sent.values()):
        # They do not take as long as it seemed: until an end tells more, none is sent.
        series.recent.clear()
        return list(sent)
    better = next_for(scheduler, series, now)
    free = free_elsewhere(scheduler, series, host, sent, now - settled_s)
    found = []
    # Whoever would begin last over there gains most by another place.
    for job, one in reversed(sent.items()):
        assert host.family is not None
        outranked = better is not None and better.priority > one.priority
        family, demand = host.family, series.demand
        may_stay = family.allows(one.cluster, one.owner) and family.admits(demand)
        if outranked or not may_stay:
            found.append(job)
        elif free > 0 and one.at + settled_s <= now:
            free -= 1
            found.append(job)
    return found


def wake_at(scheduler: "Scheduler", now: float) -> float | None:
    """When somebody who was sent ahead may have to come back though nothing happens before."""
    found = []
    for series in scheduler.series.with_ahead:
        waits = patience_s(scheduler, series) if series.ahead else ()
        for one in series.ahead.values():
            if not one.recalled:
                found += [one.at + wait for wait in waits if one.at + wait > now]
                break
    return min(found, default=None)


def patience_s(scheduler: "Scheduler", series: Series) -> tuple[float, float]:
    """How long one may wait over there at most, and at least."""
    trip_s = scheduler.series.away_s.get(series.machine, 0.0) + WRITING_S
    return max(PATIENT_S, PATIENT_TRIPS * trip_s), SETTLED_TRIPS * trip_s


def is_hungry(scheduler: "Scheduler", series: Series) -> bool:
    """Whether more of a series may be sent ahead."""
    host = scheduler.machines.hosts.get(series.machine)
    away_s = scheduler.series.away_s.get(series.machine, 0.0)
    return (
        host is not None
        and host.up
        and is_sound(scheduler, series, host)
        and not is_over_full(scheduler, series)
        and len(series.ahead) < series.most_ahead(away_s)
    )


def is_over_full(scheduler: "Scheduler", series: Series) -> bool:
    """Whether more of a batch with a cap have a place than may."""
    capped = scheduler.caps.all.get(series.batch)
    return capped is not None and len(capped.placed) > capped.most


def is_sound(scheduler: "Scheduler", series: Series, host: HostState) -> bool:
    """Whether jobs may follow one another on a machine without anybody looking at it."""
    head = scheduler.reservations.on(host)
    if head is not None and not belongs(scheduler, head.bucket, series):
        return False
    return (
        host.family is not None
        and not host.shut
        and not host.one_only
        and host.cpu_free >= 0
        and host.mem_free >= 0
    )


def next_for(scheduler: "Scheduler", series: Series, now: float) -> Next | None:
    """The job that would get a place of a series, were it free now."""
    found = best_queued(scheduler, series, now), best_spare(scheduler, series, now)
    return min(filter(None, found), default=None)


def best_spare(scheduler: "Scheduler", series: Series, now: float) -> Next | None:
    """The next of the batch that a place of a series belongs to, if only so many of it may run."""
    capped = scheduler.caps.all.get(series.batch)
    job = capped.first_spare() if capped is not None else None
    host = scheduler.machines.hosts[series.machine]
    assert host.family is not None
    if job is None or host.name in job.avoid or not host.family.allows(job.cluster, job.owner):
        return None
    groups = demands_of(job.request, job.rights)
    if len(groups) > 1 or groups[0] != (1, series.demand):
        return None
    turn = scheduler.penalties.at(now).turn(job.submitted, job.owner)
    rank = -job.priority, turn, -job.own * OWN_STEP_S + job.submitted, job.id
    name = scheduler.series_name(job.id, series.demand)
    return Next(rank, job.id, job.cluster, job.owner, job.priority, job.time_s, name)


def best_queued(scheduler: "Scheduler", series: Series, now: float) -> Next | None:
    """The first of the best-ranked bucket of which a job could use a place of a series."""
    host = scheduler.machines.hosts[series.machine]
    assert host.family is not None
    penalties = scheduler.penalties.at(now)
    with_place = host.copy()
    with_place.give(next(iter(series.places), 0))
    best: tuple[Rank, Bucket] | None = None
    for cluster in host.family.clusters:
        everyone = scheduler.queue.everyone.get(cluster)
        for priority, queues in everyone.priorities.items() if everyone is not None else ():
            if best is not None and -priority > best[0][0]:
                break
            for owner_queue in queues.values():
                for _, _, bucket in islice(owner_queue.order, DEPTH):
                    if could_use(scheduler, bucket, with_place):
                        rank = penalties.rank(bucket)
                        if best is None or rank < best[0]:
                            best = rank, bucket
                        break
    if best is None:
        return None
    rank, bucket = best
    name = scheduler.series_name(rank[3], bucket.groups[0][1]) if bucket.single else ""
    return Next(rank, rank[3], bucket.cluster, bucket.owner, bucket.priority, bucket.limit_s, name)


def could_use(scheduler: "Scheduler", bucket: Bucket, host: HostState) -> bool:
    """Whether a process of a bucket's jobs fits on a host."""
    assert host.family is not None
    return (
        host.family.allows(bucket.cluster, bucket.owner)
        and any(host.choose(demand) is not None for _, demand in bucket.groups)
        and host.name not in scheduler.barred(bucket)
    )


def belongs(scheduler: "Scheduler", bucket: Bucket, series: Series) -> bool:
    """Whether the first job of a bucket is of a series."""
    assert bucket.entry is not None
    name = scheduler.series_name(bucket.entry[1], bucket.groups[0][1])
    return bucket.single and name == series.name


def free_elsewhere(
    scheduler: "Scheduler", series: Series, host: HostState, sent: dict[int, Sent], before: float
) -> int:
    """On how many other machines one of those that were sent ahead before some time fits now."""
    first = next((one for one in sent.values() if one.at <= before), None)
    if first is None:
        return 0
    families = scheduler.machines.families(first.cluster, first.owner)
    others = (
        other
        for other in islice(candidates(families, series.demand), MOST_HOSTS)
        if other is not host
        and scheduler.reservations.on(other) is None
        and other.choose(series.demand) is not None
    )
    capped = scheduler.caps.all.get(series.batch)
    room = MOST_HOSTS if capped is None else max(0, capped.most - len(capped.placed))
    return sum(1 for _ in islice(others, room))
