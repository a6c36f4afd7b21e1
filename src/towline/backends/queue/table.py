"""What is wanted of one queue: the only place where attempts change, each by a fact."""

import time
from collections.abc import Callable

from towline.backends.queue.attempt import step
from towline.backends.queue.facts import Fact, Order
from towline.backends.queue.handover import Handover
from towline.backends.queue.times import Times


class Table:
    """`carry_out` does what an attempt orders, as far as that is not left to who told the fact."""

    def __init__(self, times: Times, carry_out: Callable[[Handover, Order], None]) -> None:
        self.times = times
        self.wanted: dict[str, Handover] = {}
        #: Attempts that nobody asks for any more, each with the ends that no file tells.
        self.concluded: dict[str, dict[str, str]] = {}
        self._carry_out = carry_out
        #: Called when an attempt stands elsewhere than before.
        self.moved: Callable[[], None] = lambda: None

    def take(self, handover: Handover, fact: Fact) -> tuple[Order, ...]:
        """Let an attempt go on by a fact; what it ordered."""
        before = handover.attempt.place
        handover.attempt, orders = step(handover.attempt, fact, time.time(), self.times)
        if handover.attempt.place is not before:
            self.moved()
        for order in orders:
            self._carry_out(handover, order)
        return orders
