"""Until a sweep has ended and is home; what a job had no time for goes into another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.client.batch_follow import follow_batch
from towline.sweeps.records import SweepRecords
from towline.sweeps.runs import runs_of
from towline.sweeps.sweep import again

if TYPE_CHECKING:
    from towline.client.session import Session
    from towline.sweeps.sweep import Sweep


def wait(session: Session, sweep: Sweep) -> None:
    """Until all of it has ended and is home, whatever happens to the Engine."""
    records, over = SweepRecords(session), 0
    while True:
        for tried in sweep.tries[over:]:
            for _ in follow_batch(session, tried.batch):
                pass
        over = len(sweep.tries)
        sweep.bring_home()
        if sweep.carries > 0 and (left := _out_of_time(session, sweep)):
            carry(session, records, sweep, left)
        else:
            # Somebody may have had some of it run again meanwhile.
            sweep.tries = (records.load(sweep.token) or sweep).tries
        if len(sweep.tries) == over:
            return


def carry(session: Session, records: SweepRecords, sweep: Sweep, left: list[int]) -> None:
    """Have another job do what one had no time for."""
    with records.changing(sweep) as known:
        # Whoever else waits for it may have done so already.
        if len(known.tries) == len(sweep.tries) and known.carries > 0:
            known.carries -= 1
            again(session, known, left)


def _out_of_time(session: Session, sweep: Sweep) -> list[int]:
    return [run.place for run in runs_of(session, [sweep]) if run.out_of_time]
