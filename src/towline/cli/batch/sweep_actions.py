"""`tow sweep status|log|results|retry|stop NAME` of a sweep whose runs share jobs: run by run."""

from __future__ import annotations

import sys
import time
from collections import Counter

from towline.cli.batch.actions import AGAIN, parser_of, span
from towline.cli.batch.sweep_table import shown_runs
from towline.cli.cwd import short_path
from towline.cli.follow import INTERRUPTED_CODE
from towline.cli.session import open_session
from towline.cli.terminal import note, paint, printable, say, say_json
from towline.cli.terminal.batch_wording import bar
from towline.cli.terminal.wording import STATE_COLOURS, count
from towline.client.batches import ask_of_batch
from towline.client.job import Job
from towline.errors import NotFound, TowlineError, UsageError
from towline.sweeps.records import SweepRecords
from towline.sweeps.runs import runs_of
from towline.sweeps.sweep import again

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator
    from typing import Any

    from towline.client.session import Session
    from towline.sweeps.runs import RunStanding
    from towline.sweeps.sweep import Sweep

#: What is told first: what a person may have to do something about.
_WORTH_SHOWING = ("failed", "lost", "stopped", "running")
_ORDER = ("done", "failed", "lost", "stopped", "skipped", "running", "queued")
_LOOK_S = 0.5


class Looked:
    """A sweep as it is now."""

    def __init__(self, session: Session, sweeps: list[Sweep]) -> None:
        self.session, self.sweeps = session, sweeps
        for sweep in sweeps:
            sweep.bring_home()
        self.runs = runs_of(session, sweeps)
        self.counts = Counter(run.state for run in self.runs)

    @property
    def name(self) -> str:
        return self.sweeps[0].name

    @property
    def is_over(self) -> bool:
        return not self.counts["queued"] and not self.counts["running"]

    @property
    def state(self) -> str:
        """That of the whole: as bad as the worst of it once it is over."""
        if not self.is_over:
            return "running" if self.counts["running"] or self.counts["done"] else "queued"
        return next((state for state in AGAIN if self.counts[state]), "done")

    def facts(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "state": self.state,
            "folder": self.sweeps[0].sweep,
            "count": len(self.runs),
            "counts": {state: self.counts[state] for state in _ORDER if self.counts[state]},
            "batches": [tried.batch for sweep in self.sweeps for tried in sweep.tries],
        }


def act(word: str, args: list[str], batch_word: str) -> int:
    """Do what one of the words behind `tow sweep` means."""
    options = parser_of(batch_word).read(args)
    session = open_session()
    return _ACTIONS[word](session, called(session, options.name), options)


def called(session: Session, name: str) -> list[Sweep]:
    found = SweepRecords(session).called(name)
    if not found:
        raise NotFound(f"the record of the sweep {name!r} is gone", f"tow batch show {name}")
    return found


def _status(session: Session, sweeps: list[Sweep], options: Namespace) -> int:
    looked = Looked(session, sweeps)
    if options.follow:
        return _follow(looked, options.json)
    states = [options.state] if options.state else _WORTH_SHOWING
    worth = [run for run in looked.runs if run.state in states]
    if options.json:
        runs = worth if options.state else looked.runs
        say_json({"sweep": looked.facts(), "runs": shown_runs(runs)})
        return 0
    _say_head(looked)
    if worth:
        from towline.cli.batch.sweep_table import show_runs

        say("")
        show_runs(shown_runs(worth[: options.limit]))
    name = printable(looked.name)
    if not looked.is_over:
        say(f"\nto follow it: tow sweep status -f {name}")
    elif looked.counts["done"] < len(looked.runs):
        say(f"\nto run these again: tow sweep retry {name}")
    return 0


def _say_head(looked: Looked) -> None:
    facts = looked.facts()
    ended = sum(number for state, number in facts["counts"].items() if state not in _UNDER_WAY)
    view = {"count": facts["count"], "counts": facts["counts"]}
    state = paint(facts["state"], STATE_COLOURS.get(facts["state"], "bold"), 1)
    done = f"{bar(view)} {ended} of {facts['count']}"
    say(f"sweep {printable(facts['name'])} · {state} · {done}")
    said = ", ".join(f"{number} {_word(state)}" for state, number in facts["counts"].items())
    say(f"  {'runs':<10} {said}")
    say(f"  {'folder':<10} {printable(short_path(facts['folder']))}")
    jobs = sorted({run.job for run in looked.runs if run.job})
    if jobs:
        numbers = f"{jobs[0]}" if len(jobs) == 1 else f"{len(jobs)} ({jobs[0]} to {jobs[-1]})"
        say(f"  {'jobs':<10} {numbers}")


_UNDER_WAY = ("queued", "running")


def _word(state: str) -> str:
    return "waiting" if state == "queued" else state


def _follow(looked: Looked, json: bool) -> int:
    """Tell every change until it is over; the exit code is the sweep's."""
    seen: dict[int, str] = {}
    session, sweeps = looked.session, looked.sweeps
    try:
        while True:
            for run in looked.runs:
                if seen.get(run.number, "queued") != run.state:
                    _tell(run, json)
                seen[run.number] = run.state
            if looked.is_over:
                break
            time.sleep(_LOOK_S)
            # The launcher may have been called again, or somebody had something run again.
            looked = Looked(session, SweepRecords(session).called(looked.name) or sweeps)
    except KeyboardInterrupt:
        note(f"sweep {printable(looked.name)} goes on: tow sweep status {printable(looked.name)}")
        return INTERRUPTED_CODE
    if json:
        say_json({"sweep": looked.facts()})
    else:
        _say_head(looked)
    return 0 if looked.state == "done" else 130 if looked.state == "stopped" else 1


def _tell(run: RunStanding, json: bool) -> None:
    if json:
        say_json({"run": shown_runs([run])[0]})
        return
    where = f" on {run.machine}" if run.machine else ""
    why = f" ({run.reason})" if run.reason else ""
    say(printable(f"{_word(run.state)} run {run.number}{where}{why}: {run.values}"))


def _log(session: Session, sweeps: list[Sweep], options: Namespace) -> int:
    chosen = runs_of(session, sweeps)
    if options.state:
        chosen = [run for run in chosen if run.state == options.state]
    if options.lines:
        wanted = [span(text) for given in options.lines for text in given.split(",") if text]
        chosen = [run for run in chosen if any(run.number in one for one in wanted)]
        if not chosen:
            raise UsageError(
                f"it has no run {', '.join(options.lines)}", f"tow sweep table {sweeps[0].name}"
            )
    for run in chosen:
        if len(chosen) > 1:
            note(f"run {run.number} · {_word(run.state)}: {printable(run.values)}")
        if not run.is_packed:
            code = _log_of_job(session, run, options)
            if code is not None:
                return code
        elif not options.stderr:
            for piece in _printed(session, run, options.follow):
                sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
    return 0


def _log_of_job(session: Session, run: RunStanding, options: Namespace) -> int | None:
    from towline.cli.batch.follow import print_in_order

    if not run.job:
        return None
    stream = "out" if options.stdout else "err" if options.stderr else "all"
    batch = run.sweep.tries[-1].batch
    return print_in_order(session, batch, [run.job], stream=stream, until_end=options.follow)


def _printed(session: Session, run: RunStanding, follow: bool) -> Iterator[bytes]:
    """What a run of a pack prints, stdout and stderr together, as far as there is more."""
    sweep, place, shown = run.sweep, run.place, 0
    while True:
        data = _output(session, run)
        if len(data) > shown:
            yield data[shown:]
            shown = len(data)
        if not follow or run.state not in _UNDER_WAY:
            return
        time.sleep(_LOOK_S)
        [run] = [one for one in runs_of(session, [sweep]) if one.place == place]


def _output(session: Session, run: RunStanding) -> bytes:
    try:
        return run.sweep.printed_in(run.place).read_bytes()
    except OSError:
        pass
    if not run.job or not run.started:
        return b""
    try:
        job = session.job(run.job)
        return Job.read(job, run.sweep.path_there(f"{run.place}.out"))
    except TowlineError:
        return b""  # It has printed nothing.


def _results(session: Session, sweeps: list[Sweep], options: Namespace) -> int:
    answers = [
        ask_of_batch(session, tried.batch, "results") for sweep in sweeps for tried in sweep.tries
    ]
    looked = Looked(session, sweeps)
    pending = sum(answer["pending"] for answer in answers)
    if options.json:
        say_json({"sweep": looked.facts(), "pending": pending})
        return 0
    ended = len(looked.runs) - looked.counts["queued"] - looked.counts["running"]
    folder = printable(short_path(sweeps[0].sweep))
    say(f"{ended} of {len(looked.runs)} have ended; what they made is in {folder}")
    if pending:
        note(f"not home yet: {count(pending, 'job')}; tow sweep status {printable(looked.name)}")
    return 0


def _retry(session: Session, sweeps: list[Sweep], options: Namespace) -> int:
    states = options.state or list(AGAIN)
    looked = Looked(session, sweeps)
    chosen = [run for run in looked.runs if run.state in states]
    records = SweepRecords(session)
    for sweep in sweeps:
        if mine := [run.place for run in chosen if run.sweep is sweep]:
            with records.changing(sweep) as known:
                again(session, known, mine)
            _have_brought_home(session, sweep)
    name = printable(looked.name)
    if options.follow:
        return _follow(Looked(session, sweeps), options.json)
    if options.json:
        say_json({"sweep": Looked(session, sweeps).facts(), "retried": len(chosen)})
    else:
        nothing = f"nothing to run again; {looked.counts['done']} done"
        say(f"sweep {name}: " + (f"{count(len(chosen), 'run')} again" if chosen else nothing))
    return 0


def _have_brought_home(session: Session, sweep: Sweep) -> None:
    """What runs elsewhere comes home into the sweep's folder without anybody who waits."""
    from towline.sweeps.home import leave_behind

    leave_behind(sweep.token)


def _stop(session: Session, sweeps: list[Sweep], options: Namespace) -> int:
    for sweep in sweeps:
        for tried in sweep.tries:
            ask_of_batch(session, tried.batch, "stop", {"now": options.now})
    looked = Looked(session, sweeps)
    if options.json:
        say_json({"sweep": looked.facts()})
    else:
        said = ", ".join(f"{n} {_word(s)}" for s, n in looked.facts()["counts"].items())
        say(f"sweep {printable(looked.name)}: {said}")
    return 0


_ACTIONS = {
    "status": _status,
    "log": _log,
    "results": _results,
    "retry": _retry,
    "stop": _stop,
}
