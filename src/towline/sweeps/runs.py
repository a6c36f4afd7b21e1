"""Where every run of a sweep stands: from what its job noted of it, and from the job itself."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from towline.client.batches import jobs_of
from towline.client.job import FINAL, Job
from towline.errors import TowlineError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from towline.client.session import Session
    from towline.sweeps.sweep import Sweep, Try

#: What may run again.
NOT_DONE = ("failed", "lost", "stopped", "skipped")
#: Of a job: it did not end by itself.
TIMEOUT = "timeout"


@dataclass
class RunStanding:
    """One run: as it was asked for, and what became of it."""

    sweep: Sweep
    #: Its place among those of the sweep; Hydra's number for it is `number`.
    place: int
    state: str = "queued"
    started: float | None = None
    ended: float | None = None
    machine: str = ""
    #: The job that runs it, and how it calls itself; 0: it is not there any more.
    job: int = 0
    name: str = ""
    exit_code: int | None = None
    reason: str = ""
    #: The time of its job was over before the run was.
    out_of_time: bool = False
    #: Other runs are in the same job.
    is_packed: bool = False

    @property
    def number(self) -> int:
        return self.sweep.first + self.place

    @property
    def values(self) -> str:
        return " ".join(self.sweep.titles[self.place])


def runs_of(session: Session, sweeps: Iterable[Sweep]) -> list[RunStanding]:
    """All of them, by their numbers; of one that ran several times, the last time."""
    found: dict[int, RunStanding] = {}
    for sweep in sweeps:
        for tried in sweep.tries:
            for run in _of_try(session, sweep, tried):
                found[run.number] = run
    return [found[number] for number in sorted(found)]


def _of_try(session: Session, sweep: Sweep, tried: Try) -> Iterable[RunStanding]:
    try:
        jobs = jobs_of(session, tried.batch)["jobs"] if tried.batch else []
    except TowlineError:
        jobs = []  # Somebody removed it.
    by_name = {str(job["command"][-1]).partition(".")[2]: job for job in jobs}
    for name, pack in zip(tried.names, tried.packs, strict=True):
        job = by_name.get(name)
        notes = _notes(session, sweep, name, job)
        for place in pack:
            run = RunStanding(sweep, place, name=name, is_packed=len(pack) > 1)
            settle(run, [note for note in notes if note.get("run") == place], job)
            yield run


def _notes(
    session: Session, sweep: Sweep, name: str, job: dict[str, Any] | None
) -> list[dict[str, Any]]:
    """What a job noted of its runs so far."""
    data = b""
    for path in sweep.notes_of(name):
        try:
            data = path.read_bytes()
            break
        except OSError:
            continue
    else:
        if job is not None and job.get("started"):
            try:
                data = Job(session, job).read(sweep.path_there(f"runs.{name}"))
            except TowlineError:
                pass  # It is not there yet, or its machine is away.
    found = []
    for line in data.splitlines():
        try:
            note = json.loads(line)
        except ValueError:
            continue  # Half written.
        if isinstance(note, dict):
            found.append(note)
    return found


def settle(run: RunStanding, notes: list[dict[str, Any]], job: dict[str, Any] | None) -> None:
    """Make one thing of what was noted and of what became of the job."""
    why = ""
    for note in notes:
        if "host" in note:
            # It begins, perhaps anew.
            run.state, run.started, run.ended, why = "running", note["at"], None, ""
            run.machine = str(note["host"])
        elif "why" in note:
            why = str(note["why"])
        elif "ok" in note:
            run.state = "done" if note["ok"] else "failed"
            run.ended, run.exit_code = note["at"], note.get("code")
            run.reason = "" if note["ok"] else why or _how(note)
    if job is None:
        if run.state in ("queued", "running"):
            run.state = "lost"
        return
    run.job = int(job["id"])
    run.machine = ", ".join(job.get("machines") or ()) or run.machine
    if run.state in ("done", "failed") or job["state"] not in FINAL:
        return
    # Its job has ended, and it had not.
    because = str((job.get("because") or {}).get("kind") or "")
    run.state = "lost" if job["state"] == "done" else str(job["state"])
    run.ended, run.out_of_time = job.get("ended"), because == TIMEOUT
    run.reason = str(job.get("reason") or "")


def _how(note: dict[str, Any]) -> str:
    number = note.get("signal")
    if note.get("oom"):
        return "killed because its machine ran out of memory"
    if number is None:
        return f"exit code {note.get('code')}, no return value"
    known = number in set(signal.Signals)
    word = "killed by" if number == signal.SIGKILL else "ended by"
    return f"{word} signal {number}" + (f" ({signal.Signals(number).name})" if known else "")
