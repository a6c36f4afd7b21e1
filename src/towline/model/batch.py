"""A batch: many commands that were submitted together and are looked at together."""

from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from towline.model.job import JobSpec, State

#: Whose a batch is, and what it is called: names belong to their owners.
BatchKey = tuple[str, str]


class Line(Struct, frozen=True, omit_defaults=True):
    """What one job of a batch has of its own; everything else is in the batch's `base`."""

    argv: tuple[str, ...]
    #: Which command of the batch it is, from 1.
    number: int
    title: str = ""
    #: Its results are in `job_results/<name>`; empty: `<batch>.<number>`.
    name: str = ""
    env: dict[str, str] = field(default_factory=dict)
    #: None: as the base says.
    back: tuple[str, ...] | None = None
    snapshot: str | None = None
    subfolder: str = ""
    files: int = 0
    bytes: int = 0


class Batch(Struct, frozen=True, omit_defaults=True):
    """One submission of many jobs, whose ids follow each other."""

    name: str
    #: What its jobs have in common.
    base: JobSpec
    first: int
    count: int
    submitted: float
    #: So many of its jobs run at a time; 0: as many as there is room for.
    max_parallel: int = 0
    #: The first failure stops what has not ended.
    fail_fast: bool = False
    #: Stopped, by the user or by a failure; `tow batch retry` takes it up again.
    stopped: bool = False
    #: What it is to run after has not ended yet, as far as is known, somebody holds it, or its time
    #: has not come: nothing of it starts.
    held: bool = False
    #: Somebody holds it, as long as nobody has let it go.
    by_user: bool = False
    #: What it waits for is in one queue, and so are its jobs: the queue lets them wait.
    follows: bool = False

    @property
    def key(self) -> BatchKey:
        return (self.base.owner, self.name)

    @property
    def last(self) -> int:
        return self.first + self.count - 1


def spec_of(batch: Batch, line: Line) -> JobSpec:
    """What is asked of one job of a batch."""
    base = batch.base
    own: dict[str, Any] = {
        "argv": line.argv,
        "title": line.title,
        "batch": batch.name,
        "line": line.number,
        "name": line.name or f"{batch.name}.{line.number}",
    }
    if line.env:
        own["env"] = {**base.env, **line.env}
    if line.back is not None:
        own["back"] = line.back
    if line.snapshot is not None:
        names = ("snapshot", "subfolder", "files", "bytes")
        own |= {name: getattr(line, name) for name in names}
    return replace(base, **own)


#: How often a batch's jobs are in each state.
Counts = dict[State, int]
