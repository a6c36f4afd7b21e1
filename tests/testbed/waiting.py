"""Wait for something to become true, and say what was there instead when it does not."""

import time
from collections.abc import Callable
from typing import Literal, TypeVar

Answer = TypeVar("Answer")
LONGEST_PAUSE_S = 1.0


class TooLate(AssertionError):
    """What was waited for did not come in time."""


def wait_until(
    condition: Callable[[], Answer | Literal[False] | None],
    timeout: float = 20,
    on_timeout: Callable[[], object] | None = None,
    every: float = 0.02,
) -> Answer:
    """Call `condition` until its answer is true, and return that answer.

    What takes long to look at is looked at less often: the looks would take what they wait for.
    """
    deadline = time.monotonic() + timeout
    while True:
        # One look after the deadline: a busy machine must not turn a late look into a failure.
        began = time.monotonic()
        late = began >= deadline
        answer = condition()
        if answer:
            return answer
        if late:
            seen = f"\n{on_timeout()}" if on_timeout else f"; last answer: {answer!r}"
            name = getattr(condition, "__qualname__", repr(condition))
            raise TooLate(f"waited {timeout:g} s for {name}{seen}")
        took = time.monotonic() - began
        time.sleep(max(every, min(2 * took, LONGEST_PAUSE_S)))
