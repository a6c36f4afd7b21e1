"""A batch as it is asked for: every line checked before anything is done."""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from towline.config.settings import MachineEntry
from towline.errors import UsageError
from towline.model.batch import Line
from towline.model.odd_text import keepable
from towline.workspace.ask import (
    JobAsk,
    check_name,
    check_size,
    check_words,
    checked_back,
    checked_variables,
    title_of,
)
from towline.workspace.base import BatchDraft, Draft

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


class CheckedBatch(Struct):
    """A batch whose commands are in order; it is not known yet whether they can run."""

    name: str
    lines: list[Line]
    asked: BatchAsk

    def asks(self) -> list[JobAsk]:
        """What all lines share, and then the same of those whose contents are their own."""
        base = replace(self.asked.base, argv=_ANY)
        base.title = base.title or self.name
        return [base, *(replace(base, only=list(paths)) for paths in self._own_paths())]

    def draft(self, drafts: Sequence[Draft]) -> BatchDraft:
        """The batch of the drafts of its asks."""
        base, *others = drafts
        by_paths = dict(zip(self._own_paths(), others, strict=True))
        asked = enumerate(self.asked.lines)
        own = {at: by_paths[tuple(line.only)] for at, line in asked if line.only is not None}
        return BatchDraft(
            self.name,
            self.lines,
            base,
            own,
            self.asked.max_parallel,
            self.asked.fail_fast,
        )

    def _own_paths(self) -> list[tuple[str, ...]]:
        """Lists of paths that alone travel for some line, each once."""
        given = (line.only for line in self.asked.lines)
        return list(dict.fromkeys(tuple(only) for only in given if only is not None))


def check_batch(ask: BatchAsk) -> CheckedBatch:
    """Check every line; what they share is checked when it is drafted."""
    if ask.max_parallel < 0:
        raise UsageError(f"--max-parallel must be 1 or more, not {ask.max_parallel}")
    return CheckedBatch(batch_name(ask.name), checked_lines(ask.lines), ask)


def checked_lines(asks: Sequence[LineAsk]) -> list[Line]:
    """The commands of a batch, each of which can be one."""
    if not asks:
        raise UsageError("a batch of no commands", hint="one command per line")
    if len(asks) > _MOST_LINES:
        raise UsageError(f"{len(asks):,} commands in one batch; {_MOST_LINES:,} is the most")
    return list(_checked_lines(asks))


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
