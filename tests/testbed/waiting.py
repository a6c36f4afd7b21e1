"""Wait for something to become true, and say what was there instead when it does not."""

import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


class TooLate(AssertionError):
    """What was waited for did not come in time."""


def wait_until(
    condition: Callable[[], Answer],
    timeout: float = 20,
    on_timeout: Callable[[], object] | None = None,
    every: float = 0.02,
) -> Answer:
    """Call `condition` until its answer is true, and return that answer."""
    deadline = time.monotonic() + timeout
    while True:
        # One look after the deadline: a busy machine must not turn a late look into a failure.
        late = time.monotonic() >= deadline
        answer = condition()
        if answer:
            return answer
        if late:
            seen = f"\n{on_timeout()}" if on_timeout else f"; last answer: {answer!r}"
            name = getattr(condition, "__qualname__", repr(condition))
            raise TooLate(f"waited {timeout:g} s for {name}{seen}")
        time.sleep(every)
