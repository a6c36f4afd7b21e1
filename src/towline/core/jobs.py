"""How one job goes on, given one fact about it. Pure: a job in, a job out."""

from typing import Any

from msgspec.structs import replace

from towline.core.lifecycle import next_state
from towline.model.grammar import parse_request
from towline.model.job import SILENT, Attempt, Ending, Entry, Job, JobSpec, State
from towline.model.journal import Kind
from towline.model.machine import Placement, Slot
from towline.model.reason import HELD, NO_REASON, STOP_ASKED, STOPPED, STOPPED_WAITING, Reason
from towline.model.results import NOTHING, PENDING

#: Causes that say: this process was never started, so starting it again is not running it twice.
NEVER_STARTED = frozenset({"void"})


def accepted(job_id: int, spec: JobSpec, now: float) -> Job:
    state = next_state(next_state(State.NEW, "accept"), "stage")
    return Job(id=job_id, spec=spec, state=state, submitted=now)


def held(job: Job, by_user: bool = False) -> Job:
    """It is to run after others, which have not ended, or later; or its user holds it."""
    reason = HELD if by_user else job.reason
    return replace(job, state=next_state(job.state, "hold"), reason=reason)


def held_as_well(job: Job, by_user: bool) -> Job:
    """It waits, and its user holds it besides, or does so no more."""
    return replace(job, reason=HELD if by_user else NO_REASON)


def released(job: Job) -> Job:
    """What it waited for has ended as it was to, and nothing else keeps it back."""
    return replace(job, state=next_state(job.state, "release"), reason=NO_REASON)


def skipped(job: Job, why: Reason, now: float) -> Job:
    """What it waits for can never come true."""
    state = next_state(job.state, "skip")
    return replace(job, state=state, ended=now, reason=why)


def placed(
    job: Job, placement: Placement, token: str = "", series: str = "", places: int = 0
) -> Job:
    """Its next attempt has its place, or with `places` is sent ahead to one of those of its series;
    `token` makes its keys unlike any other's."""
    number = job.attempt.number + 1 if job.attempt else 1
    return replace(
        job,
        state=next_state(job.state, "place"),
        attempt=Attempt(number, placement, token, series, places),
        reason=NO_REASON,
    )


def handed_over(job: Job, count: int, token: str = "", follows: bool = False) -> Job:
    """To a cluster that queues jobs itself: all its processes are in its hands from now on, and
    that it `follows` others, too."""
    given = placed(job, (Slot(job.spec.cluster),) * count, token)
    assert given.attempt is not None
    return replace(given, attempt=replace(given.attempt, follows=follows))


def let_go(job: Job) -> Job:
    """In the queue of its cluster, it follows nothing any more: all of that ended as it was to."""
    assert job.attempt is not None
    return replace(job, attempt=replace(job.attempt, follows=False))


def skip_asked(job: Job, why: Reason) -> Job:
    """What it follows in the queue of its cluster can never come true: it is taken out of it."""
    return replace(job, state=next_state(job.state, "stop"), stop_asked=True, reason=why)


def waiting_there(job: Job, reason: str) -> Job:
    """The cluster's own queue has it, and says why it does not run now."""
    if job.state is State.RUNNING:
        job = replace(job, state=next_state(job.state, "wait"), started=None)
    return replace(job, reason=Reason("queue", reason))


def entered(job: Job, entry: Entry) -> Job:
    """The cluster's own queue has said what it calls the present attempt."""
    assert job.attempt is not None
    return replace(job, attempt=replace(job.attempt, entry=entry))


def on_node(job: Job, rank: int, node: str) -> Job:
    """Its cluster chose where a process runs."""
    assert job.attempt is not None
    nodes = {**job.attempt.nodes, rank: node}
    return replace(job, attempt=replace(job.attempt, nodes=nodes))


def running(job: Job, at: float) -> Job:
    """Every process of the present attempt has started."""
    assert job.attempt is not None
    return replace(
        job,
        state=next_state(job.state, "run"),
        started=at,
        reason=NO_REASON,
        attempt=replace(job.attempt, started=at, follows=False),
    )


def stop_asked(job: Job, now: float) -> Job:
    """Stopping was asked for: a waiting job ends at once, a started one when its processes did."""
    state = job.state if job.state is State.STOPPING else next_state(job.state, "stop")
    if state.final:
        return replace(job, state=state, stop_asked=True, ended=now, reason=STOPPED_WAITING)
    return replace(job, state=state, stop_asked=True, reason=STOP_ASKED)


def stopped_waiting(job: Job, reason: Reason, now: float) -> Job:
    """It waited, and what it belongs to was stopped; `reason` says why."""
    return replace(stop_asked(job, now), reason=reason)


def stopping_the_rest(job: Job, rank: int, ending: Ending) -> Job:
    """One process failed, or the job ends with its first one: the others end with it."""
    reason = replace(_why_ended(job, rank, ending), then="stopping_others")
    return replace(job, state=next_state(job.state, "stop"), reason=reason)


def with_ending(job: Job, rank: int, ending: Ending, node: str = "") -> Job:
    """One process has ended; what could not even be started was on a `node` all the same."""
    if node:
        job = on_node(job, rank, node)
    assert job.attempt is not None
    endings = {**job.attempt.endings, rank: ending}
    return replace(job, attempt=replace(job.attempt, endings=endings))


def ran(job: Job) -> tuple[bool, float | None]:
    """Whether all processes ended well, and for how long they ran, if that is known."""
    assert job.attempt is not None
    endings = job.attempt.endings.values()
    spans = [ending.ended - ending.started for ending in endings if ending.started]
    return all(ending.ok for ending in endings), max(spans, default=None)


def concluded(job: Job, now: float) -> Job:
    """All processes have ended: what the job has become, or `queued` again for another attempt."""
    assert job.attempt is not None
    endings = job.attempt.endings
    if all(ending.ok for ending in endings.values()) or _ended_together(job):
        return _final(job, "succeed", 0, NO_REASON, endings, now)
    if never := _never(job):
        return skipped(job, never, now)
    if job.stop_asked and not job.attempt.unheard():
        code = next((e.code for e in endings.values() if e.code is not None), None)
        return _final(job, "halt", code, STOPPED, endings, now)
    rank, culprit = _culprit(endings)
    if culprit.cause in NEVER_STARTED:
        return replace(job, state=next_state(job.state, "requeue"), started=None)
    reason = _why_ended(job, rank, culprit)
    if job.failures < job.spec.retries and not job.stop_asked:
        machine = job.attempt.placement[rank].machine
        return replace(
            job,
            state=next_state(job.state, "requeue"),
            failures=job.failures + 1,
            started=None,
            avoid=tuple(dict.fromkeys((*job.avoid, machine))),
            reason=replace(
                reason,
                attempt=job.attempt.number,
                machine=job.attempt.machine_of(rank),
                then="trying_again",
            ),
        )
    happening = "lose" if culprit.cause in ("lost", SILENT) else "fail"
    return _final(job, happening, exit_code_of(culprit), reason, endings, now)


def _ended_together(job: Job) -> bool:
    """Whether a process ended well, and the others were stopped because of that alone."""
    assert job.attempt is not None
    endings = job.attempt.endings.values()
    stopped_or_well = all(ending.ok or ending.cause == "stopped" for ending in endings)
    well = any(ending.ok for ending in endings)
    return job.spec.ends_together and not job.stop_asked and stopped_or_well and well


def _never(job: Job) -> Reason:
    """What it followed that ended otherwise: its node saw that, or it was taken out of its queue
    because of it. Nothing of it has begun then."""
    assert job.attempt is not None
    endings = job.attempt.endings.values()
    seen = next((one for one in endings if one.cause == "skipped"), None)
    if seen is not None:
        return seen.because or Reason("told", seen.text)
    began = any(one.started for one in endings)
    return job.reason if job.reason.kind == "after" and not began else NO_REASON


def found_again(job: Job, at: float) -> Job:
    """Its attempt was given up, and its machine answers and has it: it goes on with that."""
    assert job.attempt is not None
    counted = job.state is State.QUEUED
    started = job.attempt.started or at
    state = next_state(job.state, "find")
    return replace(
        job,
        state=next_state(state, "stop") if job.stop_asked else state,
        started=started,
        ended=None,
        exit_code=None,
        reason=NO_REASON,
        results=NOTHING,
        failures=max(0, job.failures - counted),
        attempt=replace(job.attempt, started=started, endings={}),
    )


def retried(job: Job) -> Job:
    """Once more, because the user says so: same number, next attempt, a fresh count of failures."""
    return replace(
        job,
        state=next_state(job.state, "requeue"),
        started=None,
        ended=None,
        exit_code=None,
        reason=NO_REASON,
        results=NOTHING,
        failures=0,
        stop_asked=False,
        avoid=(),
    )


def written_off(job: Job, why: str, now: float) -> Job:
    """Nothing can be made of what was heard of it, or of what it has become."""
    attempt = job.attempt and replace(job.attempt, endings={})
    # An end that cannot be written down has not come to pass.
    state = State.LOST if job.state.final else next_state(job.state, "lose")
    return replace(
        job,
        state=state,
        ended=now,
        exit_code=None,
        reason=Reason("unclear", why),
        results=NOTHING,
        attempt=attempt,
    )


def _why_ended(job: Job, rank: int, ending: Ending) -> Reason:
    """How a process ended and, where there are several, which of them it was."""
    assert job.attempt is not None
    found = Reason(_kind(ending), ending.text, ending.code, ending.signal, ending.peak_kb)
    if len(job.attempt.placement) == 1:
        return found
    group, process, _ = parse_request(job.spec.request).processes()[rank]
    return replace(found, process=f"{group}.{process}", machine=job.attempt.machine_of(rank))


def _kind(ending: Ending) -> str:
    if ending.cause or ending.text:
        return ending.cause or "told"
    if ending.signal is not None:
        return "signal"
    return "unknown" if ending.code is None else "exit_code"


def exit_code_of(ending: Ending) -> int | None:
    if ending.code is not None:
        return ending.code
    return None if ending.signal is None else 128 + ending.signal


def _culprit(endings: dict[int, Ending]) -> tuple[int, Ending]:
    """The process that failed first; those we stopped because of it are not to blame."""
    failed = [(rank, e) for rank, e in endings.items() if not e.ok]
    to_blame = [(rank, e) for rank, e in failed if e.cause not in {"stopped", *NEVER_STARTED}]
    return min(to_blame or failed, key=lambda item: (item[1].ended, item[0]))


def _final(
    job: Job,
    happening: str,
    exit_code: int | None,
    reason: Reason,
    endings: dict[int, Ending],
    now: float,
) -> Job:
    started = [e.started for e in endings.values() if e.started]
    return replace(
        job,
        state=next_state(job.state, happening),
        started=job.started or (min(started) if started else None),
        ended=max((e.ended for e in endings.values() if e.ended), default=now),
        exit_code=exit_code,
        reason=reason,
        results=PENDING if job.spec.results and _has_results(job.spec, endings) else NOTHING,
    )


def _has_results(spec: JobSpec, endings: dict[int, Ending]) -> bool:
    # What printed something did start, also where that was not written down.
    started = [e for e in endings.values() if e.started or e.out_size or e.err_size]
    # Somebody who asked for a path is told when there is nothing of it.
    asked = spec.whole or spec.back
    return any(asked or e.made or e.out_size or e.err_size for e in started)


def how_placed(job: Job) -> Kind:
    assert job.attempt is not None
    return Kind.SENT_AHEAD if job.attempt.places else Kind.PLACED


def why_again(job: Job) -> Kind:
    """What it is called that a job waits again."""
    assert job.attempt is not None
    void = all(ending.cause in NEVER_STARTED for ending in job.attempt.endings.values())
    return Kind.CAME_BACK if job.attempt.places and void else Kind.REQUEUED


def why_void(job: Job) -> dict[str, str]:
    """For the journal, why a job that waits again did not start, where that is all there is."""
    assert job.attempt is not None
    endings = job.attempt.endings.values()
    texts = [one.text for one in endings if one.cause in NEVER_STARTED and one.text]
    return {"void": texts[0]} if texts else {}


def whereabouts(job: Job) -> dict[str, Any]:
    """Where its processes are, as far as the name of one machine does not say it."""
    assert job.attempt is not None
    machines, gpus = job.attempt.machines(), job.attempt.placement[0].gpus
    found: dict[str, Any] = {"machines": machines} if len(machines) > 1 else {}
    return found | ({"gpus": gpus} if gpus else {})
