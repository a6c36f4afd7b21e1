"""A sweep that was submitted: its batches, the folder of its runs, and what came of them."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from towline.agent.remote import machine
from towline.client.asks import ask_for
from towline.client.batches import batch_path, jobs_of
from towline.client.submission import new_key
from towline.functions.payload import payload, program_with
from towline.functions.remote.wire import Forged, Frame, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from towline.client.asks import Options
    from towline.client.session import Session

#: In the folder of a sweep: what only its launcher reads.
_INSIDE = ".towline"
#: In the folder of a job, where the sweep's own cannot be seen.
_ELSEWHERE = "sweep"


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
    #: What the first of them is called: sweepers may launch several times.
    first: int = 0
    resources: dict[str, Any] = field(default_factory=dict)
    #: Variables that name a run's own folder for what is temporary.
    tmpdir_vars: list[str] = field(default_factory=lambda: ["TMPDIR"])
    verbose: bool = False
    sys_path: list[str] = field(default_factory=list)
    #: What the program tells of an exception, by its own names for it.
    raised: list[str] = field(default_factory=list)


@dataclass
class Try:
    """A batch that runs some runs: all of them at first, later those that are to run again."""

    batch: str
    #: The runs of each of its jobs, and what the job is called among those of the sweep.
    packs: list[list[int]]
    names: list[str]


@dataclass
class Sweep:
    """One call of a launcher: runs that were submitted together."""

    folder: str
    sweep: str
    #: Where results are, below the sweep's folder; all that its jobs call themselves begins so.
    results: str
    token: str
    first: int
    titles: list[list[str]]
    key: str
    tries: list[Try]
    #: So often what the time limit of a job left undone still goes into another one.
    carries: int = 0
    #: The sweep that the launcher's first call made, and of that one: those of its later calls.
    leader: str = ""
    followers: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The first batch's, by which `tow` knows it."""
        return self.tries[0].batch

    @property
    def place(self) -> Path:
        return Path(self.sweep) / self.results

    def result(self, run: int) -> Frame | None:
        """What came of a run, checked to be from its job; None when nothing did."""
        try:
            data = (self.place / str(run)).read_bytes()
            return unpacked(bytes.fromhex(self.key), data)[0]
        except (OSError, IndexError, Forged):
            return None

    def printed_in(self, run: int) -> Path:
        """Where what a run of a pack prints is, once it is home."""
        return self.place / f"{run}.out"

    def bring_home(self) -> None:
        """Put what came home from machines that do not see the sweep's folder into it."""
        brought = Path(self.folder) / "job_results"
        printed = self.place.parent
        with self._alone():
            for name in [name for tried in self.tries for name in tried.names]:
                line = self.line(name)
                came = brought / line / _ELSEWHERE
                if came.is_dir():
                    _merge(came, Path(self.sweep))
                    _remove_empty(came.parent)
                for end in ("out", "err"):
                    if (brought / f"{line}.{end}").exists():
                        printed.mkdir(parents=True, exist_ok=True)
                        shutil.move(brought / f"{line}.{end}", printed / f"job-{name}.{end}")

    def line(self, name: str) -> str:
        """What the results of a job are called where they come home."""
        return f"sweep-{self.token}.{name}"

    def notes_of(self, name: str) -> list[Path]:
        """Where a job's notes may be: in the sweep's folder, or where they came home."""
        notes = f"{self.results}/runs.{name}"
        came = Path(self.folder) / "job_results" / self.line(name)
        return [Path(self.sweep) / notes, came / _ELSEWHERE / notes]

    def path_there(self, name: str) -> str:
        """Where they are in the folder of a job that does not see the sweep's."""
        return f"{_ELSEWHERE}/{self.results}/{name}"

    def tidy(self) -> None:
        """Remove what only the launcher reads, once nothing is to run again."""
        kinds = [path for path in self.place.iterdir() if path.name.isdigit()]
        for path in [*kinds, self.place / "mark"]:
            path.unlink(missing_ok=True)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Several may look at a sweep at a time; only one moves its files."""
        try:
            place = os.open(self.place, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            # Somebody removed the sweep's folder: nothing is put into it.
            place = -1
        try:
            if place >= 0:
                fcntl.flock(place, fcntl.LOCK_EX)
            yield
        finally:
            if place >= 0:
                os.close(place)


class Records(Protocol):
    """Where sweeps are written down."""

    def save(self, sweep: Sweep) -> None: ...

    def forget(self, sweep: Sweep) -> None: ...


def submit(
    session: Session,
    records: Records,
    plan: Plan,
    *,
    name: str,
    files: Mapping[str, bytes],
    packages: Mapping[str, Path],
    options: dict[str, Any],
    python: str = "",
    max_parallel: int = 0,
    carries: int = 0,
    leader: str = "",
) -> Sweep:
    """Submit the jobs of a sweep as one batch, which is written down before."""
    token = os.urandom(6).hex()
    results = f"{_INSIDE}/{token}"
    mark = Path(plan.sweep) / results / "mark"
    mark.parent.mkdir(parents=True)
    # By it a machine knows that it sees this very folder.
    mark.touch()
    told = {**asdict(plan), "cwd": plan.folder, "results": results, "mark": str(mark)}
    del told["packs"]
    sent_files = {**files, "plan": json.dumps(told).encode()}
    ours = {
        "towline_sweep": Path(__file__).parent / "remote",
        "towline_machine": Path(machine.__file__),
        **packages,
    }
    tried = Try("", plan.packs, [str(number) for number in range(len(plan.packs))])
    about = (plan.folder, plan.sweep, results, token, plan.first, plan.titles)
    made = Sweep(*about, key="", tries=[tried], carries=carries, leader=leader)
    try:
        with payload(Path(plan.folder), sent_files, program_with(ours)) as sent:
            made.key = sent.key.hex()
            excluded = [*options.get("exclude", ()), "multirun/"]
            asked = sent.added_to({**options, "exclude": excluded})
            base = ask_for(["true"], plan.folder, cast("Options", asked))
            command = sent.command("towline_sweep.packer", python)
            lines = _lines(made, tried, command)
            body = {"base": base, "lines": lines, "name": name, "max_parallel": max_parallel}
            records.save(made)
            tried.batch = session.once("/v1/batches", body, new_key())["batch"]["name"]
    except BaseException:
        shutil.rmtree(mark.parent, ignore_errors=True)
        _remove_empty(mark.parent.parent)
        records.forget(made)
        raise
    records.save(made)
    return made


def again(session: Session, sweep: Sweep, runs: Sequence[int]) -> Try:
    """Run some runs once more, with the files and options of that time: same folders and numbers.

    They share jobs as they did. The sweep's record is to be written by whoever asks.
    """
    before = sweep.tries[0]
    jobs = jobs_of(session, before.batch, limit=1)["jobs"]
    command = [str(word) for word in jobs[0]["command"]][:-2]
    wanted = set(runs)
    packs = [left for pack in before.packs if (left := [run for run in pack if run in wanted])]
    names = [f"{len(sweep.tries)}-{number}" for number in range(len(packs))]
    tried = Try("", packs, names)
    body = {"lines": _lines(sweep, tried, command)}
    answer = session.once(batch_path(session, before.batch, "more"), body, new_key())
    tried.batch = answer["batch"]["name"]
    sweep.tries.append(tried)
    return tried


def _lines(sweep: Sweep, tried: Try, command: Sequence[str]) -> list[dict[str, Any]]:
    """The jobs of a try, as the Engine is asked for them."""
    return [
        {
            "argv": [*command, spans(pack), f"{sweep.token}.{name}"],
            "title": " ".join(sweep.titles[pack[0]]) if len(pack) == 1 else f"{len(pack)} runs",
            "name": sweep.line(name),
        }
        for name, pack in zip(tried.names, tried.packs, strict=True)
    ]


def spans(numbers: Sequence[int]) -> str:
    """Of 0, 1, 2, 3 and 7 the text `0-3,7`."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


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
