"""Runs of one job of a sweep, as the packer starts them."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from towline.agent.remote import machine
from towline.functions import remote
from towline.sweeps.runs import RunStanding, settle
from towline.sweeps.sweep import Sweep, spans


@pytest.fixture
def pack(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Three runs, two at a time; which run begins in which slot is in `began`."""
    monkeypatch.setitem(sys.modules, "towline_remote", remote)
    from towline.functions.remote import wire

    monkeypatch.setitem(sys.modules, "towline_remote.wire", wire)
    monkeypatch.setitem(sys.modules, "towline_machine", machine)
    from towline.sweeps.remote import packer

    made: Any = packer.Pack.__new__(packer.Pack)
    made.plan = {"verbose": False, "resources": {}}
    made.shares, made.words, made.slots, made.failed = packer.Shares({}, 2), [], 2, 0
    made.waiting, made.under_way, made.began = [0, 1, 2], {}, []

    def start(run: int, slot: int) -> None:
        made.began.append((run, slot))
        made.under_way[run] = (run, slot, "")

    def reap() -> list[int]:
        freed = [slot for _, slot, _ in made.under_way.values()]
        made.under_way.clear()
        return freed

    made._start, made._reap = start, reap
    for name in ("pthread_sigmask", "signal", "sigtimedwait"):
        monkeypatch.setattr(packer.signal, name, lambda *_: None)
    return made


def test_runs_that_end_at_the_same_moment_leave_one_slot_free_for_the_last_run(pack: Any) -> None:
    assert pack.run() == 0
    assert pack.began == [(0, 0), (1, 1), (2, 0)]


def test_a_run_that_the_kernel_killed_for_want_of_memory_says_so(
    pack: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = iter((3, 4, 4))
    monkeypatch.setattr(machine, "oom_kills", lambda: next(kills))
    pack.results, pack.key, pack.alone = str(tmp_path), b"k" * 32, True
    pack.oom_kills = machine.oom_kills()
    pack.notes = os.open(tmp_path / "notes", os.O_CREAT | os.O_WRONLY)
    killed = 9
    for run in (0, 1):
        pack._ended(run, killed, str(tmp_path / "none"))
    os.close(pack.notes)
    notes = [json.loads(line) for line in (tmp_path / "notes").read_text().splitlines()]
    sweep = Sweep("", "", "", "", 0, [["x=1"], ["x=2"]], "", [])
    reasons = []
    for place in (0, 1):
        standing = RunStanding(sweep, place)
        settle(standing, [note for note in notes if note["run"] == place], None)
        reasons.append(standing.reason)
    assert reasons == [
        "killed because its machine ran out of memory",
        # The count did not rise for this one.
        "killed by signal 9 (SIGKILL)",
    ]


@pytest.mark.parametrize("runs, text", [([0], "0"), ([0, 1, 2, 3, 7], "0-3,7"), ([2, 4], "2,4")])
def test_the_runs_of_a_job_are_named_in_its_command(pack: Any, runs: list[int], text: str) -> None:
    from towline.sweeps.remote import packer

    assert spans(runs) == text and packer.numbers(text) == runs
