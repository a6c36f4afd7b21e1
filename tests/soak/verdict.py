"""Compares what was asked of Towline with what came of it."""

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from e2e.checker import output
from soak.victims import Killer
from soak.work import MADE, Work
from towline.client.session import Session


class Verdict(NamedTuple):
    """How many were looked at, how many were lost as they may be, and what is wrong."""

    jobs: int
    lost: int
    wrong: list[str]


def judge(
    asked: Mapping[int, Work],
    views: Iterable[Mapping[str, Any]],
    ran: Iterable[str],
    folder: Path,
    killer: Killer,
    session: Session,
) -> Verdict:
    """Look at every job, its log and its results."""
    known = {int(view["id"]): view for view in views}
    times = Counter(ran)
    wrong = [f"job {job} was never asked for" for job in known.keys() - asked.keys()]
    names = {work.name for work in asked.values()}
    wrong += [f"{name} ran, but was never asked for" for name in times.keys() - names]
    lost = 0
    for job, work in asked.items():
        view = known.get(job)
        if view is None:
            wrong.append(f"job {job} is not known any more")
            continue
        if view["state"] == "lost":
            why = killer.why_lost(job, view["ended"])
            lost += why is not None
            wrong += _about_lost(job, work, view, times[work.name], why is not None)
            # Its command came to its end all the same, if it began; only how is not known.
            is_whole = why is not None and not why.at_start
        else:
            wrong += _about_ended(job, work, view, times[work.name])
            is_whole = True
        if is_whole:
            # What the Engine says of them is the first thing to look at.
            said = f"(results: {view['results']!r})"
            wrong += [f"{text} {said}" for text in _about_files(job, work, folder)]
            told = output(session, job)
            if told != {"out": work.out, "err": work.err}:
                wrong.append(f"job {job}: its log differs: {_brief(told)}")
    return Verdict(len(asked), lost, wrong)


def _about_lost(job: int, work: Work, view: Mapping[str, Any], ran: int, may_be: bool) -> list[str]:
    found = []
    if ran > 1:
        found.append(f"job {job}: {work.name} ran {ran} times")
    if not may_be:
        found.append(f"job {job} is lost, and need not have been: {view['reason']}")
    return found


def _about_ended(job: int, work: Work, view: Mapping[str, Any], ran: int) -> list[str]:
    expected = {"state": "failed" if work.code else "done", "exit_code": work.code}
    found = [
        f"job {job}: {name} is {view[name]!r}, not {value!r} ({view['reason']})"
        for name, value in expected.items()
        if view[name] != value
    ]
    if ran != 1:
        found.append(f"job {job}: {work.name} ran {ran} times")
    return found


def _about_files(job: int, work: Work, folder: Path) -> list[str]:
    """Everything came home, byte for byte, and nothing beside it."""
    home = folder / "job_results"
    expected = {
        home / f"{job}.out": work.out,
        home / f"{job}.err": work.err,
    }
    if work.made:
        expected[home / str(job) / MADE] = work.file
    found = [
        f"job {job}: {path.name} differs: {_brief(_text(path))}"
        for path, text in expected.items()
        if _text(path) != text
    ]
    beside = {path.name for path in (home / str(job)).glob("*")} - {MADE if work.made else ""}
    return found + [f"job {job}: {name} came home too" for name in beside]


def _text(path: Path) -> str:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return path.read_text()
    return "(not there)"


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) < 200 else f"{text[:90]} ... {text[-90:]} ({len(text)} characters)"
