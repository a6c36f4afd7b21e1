"""A sweep that was submitted: a batch, the folder of its runs, and what came of them."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from towline.client.asks import ask_for
from towline.client.batch_follow import follow_batch
from towline.client.submission import new_key
from towline.errors import NotFound
from towline.functions.parcel import parcel, program_with
from towline.functions.remote.wire import Forged, Frame, unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from towline.client.asks import Options
    from towline.client.session import Session

#: In the folder of a sweep: what only its launcher reads.
_INSIDE = ".towline"
#: In the folder of a job, where the sweep's own cannot be seen.
_ELSEWHERE = "sweep"
_SWEEPS = "sweeps"


@dataclass
class Plan:
    """What is to be run, and how."""

    #: The folder that travels, and the one that the runs' own are in.
    folder: str
    sweep: str
    #: The runs of each job.
    packs: list[list[int]]
    parallel: int
    #: Run -> its overrides; and the module that runs it.
    titles: list[list[str]]
    program: str
    resources: dict[str, Any] = field(default_factory=dict)
    verbose: bool = False
    sys_path: list[str] = field(default_factory=list)
    #: What the program tells of an exception, by its own names for it.
    raised: list[str] = field(default_factory=list)


@dataclass
class Sweep:
    """One that was submitted."""

    #: The batch's, by which `tow` knows it.
    name: str
    folder: str
    sweep: str
    #: Where results are, below the sweep's folder; and the names of its jobs' results.
    results: str
    lines: list[str]
    titles: list[list[str]]
    key: str

    def result(self, run: int) -> Frame | None:
        """What came of a run, checked to be from its job; None when nothing did."""
        try:
            data = (Path(self.sweep) / self.results / str(run)).read_bytes()
            return unpacked(bytes.fromhex(self.key), data)[0]
        except (OSError, IndexError, Forged):
            return None

    def bring_home(self) -> None:
        """Put what came home from machines that do not see the sweep's folder into it."""
        brought = Path(self.folder) / "job_results"
        printed = Path(self.sweep) / _INSIDE
        for number, line in enumerate(self.lines):
            came = brought / line / _ELSEWHERE
            if came.is_dir():
                _merge(came, Path(self.sweep))
                _remove_empty(came.parent)
            for end in ("out", "err"):
                if (brought / f"{line}.{end}").exists():
                    printed.mkdir(exist_ok=True)
                    shutil.move(brought / f"{line}.{end}", printed / f"job-{number}.{end}")

    def tidy(self) -> None:
        """Remove what only the launcher reads."""
        place = Path(self.sweep) / self.results
        shutil.rmtree(place, ignore_errors=True)
        _remove_empty(place.parent)


def submit(
    session: Session,
    plan: Plan,
    *,
    name: str,
    files: Mapping[str, bytes],
    packages: Mapping[str, Path],
    options: dict[str, Any],
    python: str = "",
    max_parallel: int = 0,
) -> Sweep:
    """Submit the jobs of a sweep as one batch."""
    token = os.urandom(6).hex()
    results = f"{_INSIDE}/{token}"
    mark = Path(plan.sweep) / results / "mark"
    mark.parent.mkdir(parents=True)
    # By it a machine knows that it sees this very folder.
    mark.touch()
    lines = [f"sweep-{token}.{number}" for number in range(len(plan.packs))]
    told = {**asdict(plan), "cwd": plan.folder, "results": results, "mark": str(mark)}
    sent_files = {**files, "plan": json.dumps(told).encode()}
    ours = {"towline_sweep": Path(__file__).parent / "remote", **packages}
    try:
        with parcel(Path(plan.folder), sent_files, program_with(ours)) as sent:
            excluded = [*options.get("exclude", ()), "multirun/"]
            asked = sent.added_to({**options, "exclude": excluded})
            base = ask_for(["true"], plan.folder, cast("Options", asked))
            jobs = [
                {
                    "argv": sent.command("towline_sweep.packer", python, number),
                    "title": " ".join(plan.titles[pack[0]])
                    if len(pack) == 1
                    else f"{len(pack)} runs",
                    "name": lines[number],
                }
                for number, pack in enumerate(plan.packs)
            ]
            body = {"base": base, "lines": jobs, "name": name, "max_parallel": max_parallel}
            batch = session.once("/v1/batches", body, new_key())["batch"]
    except BaseException:
        shutil.rmtree(mark.parent, ignore_errors=True)
        _remove_empty(mark.parent.parent)
        raise
    made = Sweep(
        batch["name"], plan.folder, plan.sweep, results, lines, plan.titles, sent.key.hex()
    )
    _remember(session, made)
    return made


def wait(session: Session, sweep: Sweep, on_event: Callable[[dict[str, Any]], None]) -> None:
    """Until all of it has ended and is home, whatever happens to the Engine."""
    for events, _ in follow_batch(session, sweep.name):
        for event in events:
            on_event(event)
    sweep.bring_home()


def remembered(session: Session, name: str) -> Sweep:
    """The sweep that was submitted under this name."""
    try:
        return Sweep(**json.loads(_file(session, name).read_text()))
    except (OSError, ValueError, TypeError):
        raise NotFound(
            f"there is no sweep {name!r}", "tow batch list shows what was submitted"
        ) from None


def _remember(session: Session, sweep: Sweep) -> None:
    path = _file(session, sweep.name)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
        json.dump(asdict(sweep), file)


def _file(session: Session, name: str) -> Path:
    return Path(session.paths.home) / _SWEEPS / f"{os.path.basename(name)}.json"


def _merge(source: Path, target: Path) -> None:
    """Move all that is in one folder into another one, which may have some of it."""
    for folder, folders, files in os.walk(source):
        there = target / Path(folder).relative_to(source)
        there.mkdir(parents=True, exist_ok=True)
        linked = [name for name in folders if (Path(folder) / name).is_symlink()]
        for name in [*files, *linked]:
            shutil.move(Path(folder) / name, there / name)
    shutil.rmtree(source, ignore_errors=True)


def _remove_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        pass
