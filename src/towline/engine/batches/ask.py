"""A batch as it is asked for -> what the Engine accepts: every line checked, the folder frozen."""

import re
from collections.abc import Iterable

from msgspec import Struct, field
from msgspec.structs import replace

from towline.config.settings import MachineEntry
from towline.engine.ask import (
    JobAsk,
    check_name,
    check_size,
    check_words,
    checked_back,
    checked_variables,
    title_of,
)
from towline.engine.batches.batches import Wish
from towline.engine.engine import request_of
from towline.engine.intake import Intake
from towline.errors import UsageError
from towline.model.batch import Line
from towline.model.job import JobSpec, Queueing
from towline.model.odd_text import keepable

#: Stands for the command where what all jobs share is looked at.
_ANY = ["true"]
_MOST_LINES = 1_000_000
_ODD = re.compile(r"[^\w.+=@,~-]+")


class LineAsk(Struct, forbid_unknown_fields=True):
    """One command of a batch, as typed."""

    argv: list[str]
    title: str = ""
    name: str = ""
    env: dict[str, str] = field(default_factory=dict)
    #: Paths that travel and that come home, where they differ from the batch's.
    only: list[str] | None = None
    back: list[str] | None = None
    #: Which line of its file it is; 0: its place.
    number: int = 0


class BatchAsk(Struct, forbid_unknown_fields=True):
    """A batch as typed: what all jobs share, and their commands."""

    base: JobAsk
    lines: list[LineAsk]
    name: str = ""
    max_parallel: int = 0
    fail_fast: bool = False
    #: Run on just these machines instead of a configured cluster.
    machines: list[MachineEntry] | None = None


async def accept_batch(intake: Intake, ask: BatchAsk) -> Wish:
    """Check everything, then freeze the folder; nothing is accepted yet."""
    if not ask.lines:
        raise UsageError("a batch of no commands", hint="one command per line")
    if len(ask.lines) > _MOST_LINES:
        raise UsageError(f"{len(ask.lines):,} commands in one batch; {_MOST_LINES:,} is the most")
    if ask.max_parallel < 0:
        raise UsageError(f"--max-parallel must be 1 or more, not {ask.max_parallel}")
    name = batch_name(ask.name)
    lines = list(_checked_lines(ask.lines))
    base = ask.base
    if ask.machines is not None:
        base.cluster = await intake.ad_hoc(base.cwd, ask.machines)
    base.argv = _ANY
    base.title = base.title or name
    group = intake.group()
    spec = await group.accept(base)
    frozen: dict[tuple[str, ...], JobSpec] = {}
    for place, line in enumerate(ask.lines):
        if line.only is None:
            continue
        paths = tuple(line.only)
        if paths not in frozen:
            frozen[paths] = await group.accept(replace(base, only=list(paths)))
        own = frozen[paths]
        lines[place] = replace(
            lines[place],
            snapshot=own.snapshot,
            subfolder=own.subfolder,
            files=own.files,
            bytes=own.bytes,
        )
    return Wish(
        name=name,
        base=replace(spec, argv=(), title="", queue=_queueing(spec, ask.max_parallel)),
        lines=lines,
        max_parallel=ask.max_parallel,
        fail_fast=ask.fail_fast,
    )


def _queueing(spec: JobSpec, max_parallel: int) -> Queueing | None:
    """Where jobs of one process are queued together, the queue sees to how many run at a time."""
    if spec.queue is None or request_of(spec.request).process_count > 1:
        return spec.queue
    return replace(spec.queue, at_once=max_parallel)


def batch_name(wanted: str) -> str:
    """A name that can be typed and be the beginning of a file's name."""
    return _ODD.sub("_", wanted).lstrip(".-_") or "batch"


def _checked_lines(asks: Iterable[LineAsk]) -> Iterable[Line]:
    names: dict[str, int] = {}
    for place, ask in enumerate(asks, 1):
        number = ask.number or place
        try:
            check_words(ask.argv)
            check_size(ask.argv, ask.env)
            env = checked_variables(ask.env) if ask.env else {}
            check_name(ask.name)
        except UsageError as error:
            raise UsageError(f"line {number}: {error.text}", hint=error.hint) from None
        if ask.name and names.setdefault(ask.name, number) != number:
            raise UsageError(
                f"lines {names[ask.name]} and {number} are both called {ask.name!r}",
                hint="results of two jobs cannot have one name",
            )
        yield Line(
            argv=tuple(map(keepable, ask.argv)),
            number=number,
            title=title_of(ask.title or " ".join(ask.argv)),
            name=ask.name,
            env=env,
            back=None if ask.back is None else tuple(map(checked_back, ask.back)),
        )
