"""Runs of one job of a sweep, as the packer starts them."""

import sys
from typing import Any

import pytest

from towline.functions import remote


@pytest.fixture
def pack(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Three runs, two at a time; which run begins in which slot is in `began`."""
    monkeypatch.setitem(sys.modules, "towline_remote", remote)
    from towline.functions.remote import wire

    monkeypatch.setitem(sys.modules, "towline_remote.wire", wire)
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
