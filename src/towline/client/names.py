"""Jobs as people name them: a number, a title, `BATCH.LINE`, `last`, a range, a batch, `all`."""

from __future__ import annotations

from towline.client.transport import with_query
from towline.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.client.session import Session

LONGEST_RANGE = 100_000
#: A number with more digits is nobody's.
MOST_DIGITS = 15


class Meant:
    """What somebody named: one job, or a whole batch."""

    def __init__(self, found: dict[str, Any]) -> None:
        #: The job's number; 0 when it is a batch.
        self.job = int(found.get("job") or 0)
        self.batch = str(found.get("batch") or "")
        #: The numbers of the batch's jobs.
        first = int(found.get("first") or 0)
        self.jobs = range(first, first + int(found.get("count") or 0))


def meant(session: Session, name: str) -> Meant:
    """The job or the batch that `name` means; the Engine knows them."""
    if name.isascii() and name.isdigit() and len(name) <= MOST_DIGITS:
        return Meant({"job": name})
    return Meant(session.call("GET", with_query("/v1/named", name=name)))


def job_number(session: Session, name: str) -> int:
    """The number of the one job that `name` means."""
    found = meant(session, name)
    if found.batch:
        raise UsageError(
            f"{found.batch} is a batch of {len(found.jobs)} jobs",
            f"name one of its lines: {found.batch}.1; they are listed by: tow batch show "
            f"--state active {found.batch}",
        )
    return found.job


def split(session: Session, names: list[str]) -> tuple[list[int], list[str]]:
    """The jobs and the batches that are named, each once, in the order given."""
    jobs: dict[int, None] = {}
    batches: dict[str, None] = {}
    for name in names:
        if name == "all":
            jobs.update(dict.fromkeys(_active(session)))
            batches.update(dict.fromkeys(_active_batches(session)))
        elif span := _range(name):
            jobs.update(dict.fromkeys(span))
        elif (found := meant(session, name)).batch:
            batches[found.batch] = None
        else:
            jobs[found.job] = None
    return list(jobs), list(batches)


def job_numbers(session: Session, names: list[str]) -> list[int]:
    """The numbers of several jobs, those of whole batches included, each once."""
    numbers: dict[int, None] = {}
    for name in names:
        if span := _range(name):
            numbers.update(dict.fromkeys(span))
        else:
            found = meant(session, name)
            numbers.update(dict.fromkeys(found.jobs or [found.job]))
    return list(numbers)


def _range(name: str) -> range | None:
    first, dash, last = name.partition("-")
    if not dash or not (first + last).isascii() or not (first.isdigit() and last.isdigit()):
        return None
    if not 0 <= int(last) - int(first) < LONGEST_RANGE or len(last) > MOST_DIGITS:
        raise UsageError(f"{name} is not a range of jobs", "write it like 14-20")
    return range(int(first), int(last) + 1)


def _active(session: Session) -> list[int]:
    answer = session.call("GET", with_query("/v1/jobs", state="active"))
    return [int(job["id"]) for job in answer["jobs"]]


def _active_batches(session: Session) -> list[str]:
    from towline.client.batches import batches

    return [view["name"] for view in batches(session) if view["ended"] is None]
