"""Jobs as people name them: a number, a title, `last`, a range, `all`."""

from __future__ import annotations

from towline.cli.client import with_query
from towline.cli.engine import Engine
from towline.cli.wording import FINAL
from towline.errors import NotFound, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from towline.cli.options import Parser

#: How far back a title is looked for.
LOOK_BACK = 10_000
LONGEST_RANGE = 100_000


def read_with_job(parser: Parser, args: list[str]) -> tuple[Namespace, Engine, int]:
    """The options as given, the Engine, and the number of the job that is meant."""
    options = parser.read(args)
    engine = Engine()
    return options, engine, job_number(engine, options.job)


def job_number(engine: Engine, name: str) -> int:
    """The number of the one job that `name` means."""
    if name.isascii() and name.isdigit():
        return int(name)
    jobs = _all_jobs(engine, limit=1 if name == "last" else LOOK_BACK)
    if name == "last":
        if not jobs:
            raise NotFound("there is no job yet", "tow run COMMAND starts one")
        return int(jobs[-1]["id"])
    found = [int(job["id"]) for job in jobs if job["title"] == name]
    if len(found) == 1:
        return found[0]
    if found:
        numbers = ", ".join(map(str, found[-5:]))
        raise UsageError(f"{len(found)} jobs are titled {name!r}", f"give a number: {numbers}")
    raise NotFound(f"there is no job {name!r}", "see which there are: tow status --all")


def job_numbers(engine: Engine, names: list[str]) -> list[int]:
    """The numbers of several jobs, each once, in the order given."""
    numbers: dict[int, None] = {}
    for name in names:
        if name == "all":
            active = (job for job in _all_jobs(engine, LOOK_BACK) if job["state"] not in FINAL)
            numbers.update(dict.fromkeys(int(job["id"]) for job in active))
        else:
            numbers.update(dict.fromkeys(_range(name) or [job_number(engine, name)]))
    return list(numbers)


def _range(name: str) -> range | None:
    first, dash, last = name.partition("-")
    if not dash or not (first + last).isascii() or not (first.isdigit() and last.isdigit()):
        return None
    if not 0 <= int(last) - int(first) < LONGEST_RANGE:
        raise UsageError(f"{name} is not a range of jobs", "write it like 14-20")
    return range(int(first), int(last) + 1)


def _all_jobs(engine: Engine, limit: int) -> list[dict[str, Any]]:
    answer = engine.call("GET", with_query("/v1/jobs", all=1, limit=limit))
    jobs: list[dict[str, Any]] = answer["jobs"]
    return jobs
