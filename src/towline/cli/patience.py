"""While a command waits: say that a machine does not answer, or that the folder is being read."""

from __future__ import annotations

import time
from contextlib import contextmanager

from towline.cli.terminal import note, printable
from towline.cli.terminal.wording import machines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from towline.client.session import Session

#: A machine that answers at all does so within this time.
_PATIENCE_S = 1.5
#: So long nothing is said while the folder is read.
_SLOW_S = 1.5


@contextmanager
def patience(session: Session, job: int) -> Iterator[None]:
    """Around whatever asks the machine of a job."""
    import threading

    timer = threading.Timer(_PATIENCE_S, _tell_if_silent, (session, job))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _tell_if_silent(session: Session, job: int) -> None:
    try:
        view = session.call("GET", f"/v1/jobs/{job}")
    except Exception:  # what is asked beside this says what is wrong
        return
    heard = view.get("heard_at")
    if heard and time.time() - heard > _PATIENCE_S:
        since = time.strftime("%H:%M:%S", time.localtime(heard))
        note(f"{printable(machines(view))} does not answer since {since}; trying")


def say_when_slow() -> Callable[[], object]:
    """A large folder takes a while to read: say so, unless what is returned is called before."""
    import signal

    def slow(number: int, frame: FrameType | None) -> None:
        note("reading this folder; .towignore and --exclude leave things out")

    if signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
        return lambda: None
    signal.signal(signal.SIGALRM, slow)
    signal.setitimer(signal.ITIMER_REAL, _SLOW_S)
    return lambda: signal.setitimer(signal.ITIMER_REAL, 0)
