"""Jobs as rows of the store, and back."""

from collections.abc import Callable
from typing import Any

import msgspec

from towline.model.batch import Batch, Line, spec_of
from towline.model.job import Attempt, Job, JobSpec, State
from towline.model.reason import NO_REASON, Reason
from towline.model.results import NOTHING, ResultsState

encode = msgspec.json.Encoder().encode
_decode_spec = msgspec.json.Decoder(JobSpec).decode
_decode_line = msgspec.json.Decoder(Line).decode
_decode_reason = msgspec.json.Decoder(Reason).decode
decode_attempt = msgspec.json.Decoder(Attempt).decode
_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode

#: The columns of a job's row that are fields of `Job`, and what leads to its batch.
FIELDS = (
    "id",
    "state",
    "submitted",
    "started",
    "ended",
    "exit_code",
    "reason",
    "failures",
    "stop_asked",
    "spec",
    "attempt",
    "avoid",
    "results",
    "results_path",
    "results_why",
    "owner",
    "batch",
)
INSERT = (
    "INSERT INTO jobs (id, owner, cluster, title, state, submitted, started, ended, exit_code, "
    "reason, failures, stop_asked, spec, attempt, avoid, results, results_path, results_why) "
    "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
)
UPDATE = (
    "UPDATE jobs SET state=?, started=?, ended=?, exit_code=?, reason=?, failures=?, stop_asked=?, "
    "attempt=?, avoid=?, results=?, results_path=?, results_why=? WHERE id=?"
)


def insert_row(job: Job) -> tuple[object, ...]:
    return (
        job.id,
        job.spec.owner,
        job.spec.cluster,
        job.spec.title,
        job.state.value,
        job.submitted,
        job.started,
        job.ended,
        job.exit_code,
        encode(job.reason) if job.reason else b"",
        job.failures,
        job.stop_asked,
        encode(job.spec),
        encode(job.attempt) if job.attempt else None,
        encode(job.avoid),
        *results_row(job.results),
    )


def update_row(job: Job) -> tuple[object, ...]:
    return (
        job.state.value,
        job.started,
        job.ended,
        job.exit_code,
        encode(job.reason) if job.reason else b"",
        job.failures,
        job.stop_asked,
        encode(job.attempt) if job.attempt else None,
        encode(job.avoid),
        *results_row(job.results),
        job.id,
    )


def results_row(results: ResultsState) -> tuple[str, str, str]:
    return (results.kind, results.path, results.why)


def job_of(row: tuple[Any, ...], batch_named: Callable[[str, str], Batch]) -> Job:
    """A job from its row; of a batch's jobs, the row has only what is their own."""
    found = dict(zip(FIELDS, row, strict=True))
    owner, batch = found.pop("owner"), found.pop("batch")
    if batch:
        found["spec"] = spec_of(batch_named(owner, batch), _decode_line(found["spec"]))
    else:
        found["spec"] = _decode_spec(found["spec"])
    found["state"] = State(found["state"])
    found["reason"] = _decode_reason(found["reason"]) if found["reason"] else NO_REASON
    found["stop_asked"] = bool(found["stop_asked"])
    found["attempt"] = decode_attempt(found["attempt"]) if found["attempt"] else None
    found["avoid"] = _decode_names(found["avoid"])
    path, why = found.pop("results_path"), found.pop("results_why")
    found["results"] = ResultsState(found["results"], path, why) if found["results"] else NOTHING
    return Job(**found)
