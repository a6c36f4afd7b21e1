"""Until a sweep has ended; what Ctrl-C means meanwhile."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

from towline.client.batches import ask_of_batch
from towline.client.session import Session
from towline.functions.remote.wire import VALUE
from towline.sweeps.sweep import Sweep
from towline.sweeps.waiting import wait

log = logging.getLogger("towline")
QUESTION = "\n[s]top the sweep, [d]etach (it goes on without you), or [k]eep waiting? "


def wait_for(session: Session, sweep: Sweep, leave: Callable[[], None]) -> None:
    """Wait for it; Ctrl-C asks what to do, and stops everything where nobody can be asked."""
    while True:
        try:
            wait(session, sweep)
            return
        except KeyboardInterrupt:
            answer = asked()
        if answer == "d":
            leave()
            log.info("sweep %s goes on: tow sweep status -f %s", sweep.name, sweep.name)
            raise SystemExit(0)
        if answer == "s":
            stop(session, sweep)
            # As of a program that Ctrl-C ended, without a traceback.
            raise SystemExit(130)


def asked() -> str:
    """What whoever pressed Ctrl-C wants: `s`, `d` or `k`; pressed once more, it is `s`."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        return "s"
    while True:
        sys.stderr.write(QUESTION)
        sys.stderr.flush()
        try:
            word = sys.stdin.readline()
        except KeyboardInterrupt:
            return "s"
        if not word or word.strip()[:1].lower() in ("s", "d", "k"):
            return word.strip()[:1].lower() or "s"


def stop(session: Session, sweep: Sweep) -> None:
    """Stop it and say what is done; Ctrl-C does not wait for the end."""
    log.error("stopping sweep %s", sweep.name)
    for tried in sweep.tries:
        ask_of_batch(session, tried.batch, "stop", {"now": True})
    wait(session, sweep)
    came = [sweep.result(run) for run in range(len(sweep.titles))]
    done = sum(one is not None and one[0] == VALUE for one in came)
    log.error("%d of %d runs were done, the others were stopped", done, len(came))
