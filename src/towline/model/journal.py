"""The journal: what happened, as typed events, in order and complete.

An event carries the fields of a job that it changed, so that folding the events of a job gives its
row again. Nothing in an event is a sentence that anybody has to read back: words are made of it
where people look (engine/wording.py).
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from towline.model.job import Attempt, Job, JobSpec, State

_encode = msgspec.json.Encoder().encode


class Kind(StrEnum):
    """What an event is about."""

    # of jobs
    SUBMITTED = "submitted"
    PLACED = "placed"
    SENT_AHEAD = "sent_ahead"
    CAME_BACK = "came_back"
    HANDED_OVER = "handed_over"
    RUNNING = "running"
    TAKEN_BACK = "taken_back"
    STOP_ASKED = "stop_asked"
    STOPPING = "stopping"
    REQUEUED = "requeued"
    RETRIED = "retried"
    FOUND_AGAIN = "found_again"
    HELD = "held"
    RELEASED = "released"
    ENDED = "ended"
    CHANGED = "changed"
    HOME = "home"
    NOT_HOME = "not_home"
    HOME_REMARK = "home_remark"
    CLEANED = "cleaned"
    SERVICE = "service"
    FORGOTTEN = "forgotten"
    # of batches
    BATCH_SUBMITTED = "batch_submitted"
    BATCH_CHANGED = "batch_changed"
    BATCH_TROUBLE = "batch_trouble"
    # of machines, though a job brought it about
    REMARK = "remark"
    # what an older version wrote, and how rows stood when the journal was begun
    NOTE = "note"
    IMPORTED = "imported"


class Remark(Struct, frozen=True, omit_defaults=True):
    """What is remarked of a job, though it changes nothing about it.

    Of results: `kept` (a person's file stays at `path`, the job's is at `newer`), `left_out` (of a
    `path` that leads out of the folder, or cannot be read), `not_collected` (a `path`
    outside of the job's folder, which could not be copied into it: `why` is what its machine calls
    that, e.g. `ENOSPC`), `not_made` (nothing of a `path` that was asked for; what there is, is in
    `made`), `more` (`count` remarks that were not told). Of a
    `machine`: `set_aside` for `for_s` (the last `count` jobs failed there at once), `well_again`,
    `not_to_blame` (such jobs fail elsewhere as well).
    """

    kind: str
    #: What is not UTF-8 in paths is kept as `model/odd_text.py` says.
    path: str = ""
    newer: str = ""
    why: str = ""
    made: tuple[str, ...] = ()
    count: int = 0
    machine: str = ""
    for_s: float = 0.0


class JournalEvent(Struct, frozen=True):
    """One thing that happened; `data` is JSON, and its shape depends on the kind."""

    seq: int
    at: float
    kind: str
    owner: str = ""
    job: int = 0
    batch: str = ""
    attempt: int = 0
    machine: str = ""
    data: bytes = b"{}"

    def fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.json.decode(self.data)
        return fields


class Told(Struct, frozen=True):
    """What the core has to say of a job: how it was, how it is, and what else belongs to it."""

    kind: str
    before: Job | None
    job: Job
    data: dict[str, Any] = {}

    def event(self, seq: int, at: float) -> JournalEvent:
        job = self.job
        changed = {"state": job.state, **changes(self.before, job)}
        if job.state.final:
            # Whoever hears only of the end knows all about it.
            changed |= {"exit_code": job.exit_code, "reason": job.reason}
        return JournalEvent(
            seq,
            at,
            self.kind,
            job.spec.owner,
            job.id,
            job.spec.batch,
            job.attempt.number if job.attempt else 0,
            machine_of(job),
            _encode({**changed, **self.data}),
        )


def machine_of(job: Job) -> str:
    """Name the machine of a job's first process, once that is known."""
    if job.attempt is None or (job.spec.queue is not None and not job.attempt.nodes):
        return ""
    return job.attempt.machine_of(0)


#: The fields of a row that change over a job's life, but for its attempt.
_FIELDS = (
    "state",
    "submitted",
    "started",
    "ended",
    "exit_code",
    "reason",
    "failures",
    "stop_asked",
    "results",
    "avoid",
)
_NEW = Job(id=0, spec=JobSpec(argv=(), cluster="", owner=""))
#: Of an attempt, what is added to rank by rank.
_BY_RANK = ("endings", "nodes")
_CLEARED = "cleared"


def changes(before: Job | None, after: Job) -> dict[str, Any]:
    """List the fields that differ; `rebuild` is the way back."""
    before = before or _NEW
    changed = {
        name: value for name in _FIELDS if (value := getattr(after, name)) != getattr(before, name)
    }
    if after.attempt != before.attempt:
        changed["attempt"] = _attempt_changes(before.attempt, after.attempt)
    return changed


def _attempt_changes(before: Attempt | None, after: Attempt | None) -> Any:
    """An attempt that is new is told whole, of one that is known only what is new."""
    if before is None or after is None or before.number != after.number:
        return after
    changed: dict[str, Any] = {"number": after.number}
    for name in ("placement", "token", "started", "entry"):
        if getattr(before, name) != getattr(after, name):
            changed[name] = getattr(after, name)
    for name in _BY_RANK:
        known, ranks = getattr(before, name), getattr(after, name)
        if not known.keys() <= ranks.keys():
            changed.setdefault(_CLEARED, []).append(name)
            known = {}
        if new := {rank: value for rank, value in ranks.items() if known.get(rank) != value}:
            changed[name] = new
    return changed


def rebuild(spec: JobSpec, events: Iterable[JournalEvent]) -> Job:
    """Make a job's row of the events of its life, the oldest first.

    The life of a line begins with the submission of its batch.
    """
    row: dict[str, Any] = {}
    number = 0
    for event in events:
        if event.kind == Kind.BATCH_SUBMITTED:
            row = {"state": State.QUEUED, "submitted": event.at}
            number = event.fields()["first"] + spec.line - 1
            continue
        number = event.job
        fields = event.fields()
        row.update((name, fields[name]) for name in _FIELDS if name in fields)
        if "attempt" in fields:
            row["attempt"] = _folded(row.get("attempt"), fields["attempt"])
    row |= {"id": number, "spec": msgspec.to_builtins(spec)}
    return msgspec.convert(row, Job, strict=False, str_keys=True)


def _folded(known: dict[str, Any] | None, told: dict[str, Any] | None) -> dict[str, Any] | None:
    if told is None:
        return None
    if known is None or known["number"] != told["number"]:
        return told
    folded = {**known, **{name: value for name, value in told.items() if name not in _BY_RANK}}
    cleared = folded.pop(_CLEARED, ())
    for name in _BY_RANK:
        ranks = {} if name in cleared else known.get(name, {})
        folded[name] = {**ranks, **told.get(name, {})}
    return folded
