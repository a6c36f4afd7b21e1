"""A stop of what nobody knows the number of: whether it has begun is asked after it was told."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from backends.queue_world import World
from towline.agent.link import Link
from towline.backends.machines.driver import Driver
from towline.backends.queue.commands import Commands
from towline.backends.queue.facts import Order, Report
from towline.backends.queue.files import Files
from towline.backends.queue.handover import Handover
from towline.backends.queue.readings import Readings
from towline.backends.queue.state import Attempt, Place
from towline.backends.queue.table import Table
from towline.backends.queue.times import Times
from towline.model.events import ProcessEnded

KEY = "e-1-1"


class Access:
    """The agent on an access node, where one attempt has a claim or none."""

    def __init__(self, claim: str) -> None:
        self.claim = claim
        self.ranks = [{"state": "running"}] if claim else []
        self.asked: list[str] = []

    async def ask(self, op: str, **fields: Any) -> tuple[dict[str, Any], bytes]:
        self.asked.append(op)
        return {"handed": {KEY: {"claim": self.claim, "ranks": self.ranks}}}, b""


def stopped(claim: str) -> tuple[Handover, list[Order], list[str]]:
    """What becomes of an attempt whose submission gave no answer, once it is told to stop."""
    orders: list[Order] = []
    table = Table(Times(), lambda handover, order: orders.append(order))
    dialect = SimpleNamespace(cancel_words=None, read_ticket=lambda ticket: ticket)
    commands = cast("Commands", SimpleNamespace(dialect=dialect, login=False))
    readings = cast("Readings", SimpleNamespace())
    files = Files(table, cast("Driver", SimpleNamespace()), commands, readings)
    attempt = Attempt(KEY, 1, 1, 1, "the queue", Place.UNANSWERED, stop=True)
    handover = Handover(attempt, lambda folder: {}, lambda *_: [])
    access = Access(claim)
    asyncio.run(files.stop(cast("Link", access), [handover]))
    return handover, orders, access.asked


def ends(orders: list[Order]) -> list[str]:
    told = (order.fact for order in orders if isinstance(order, Report))
    return [fact.ending.cause for fact in told if isinstance(fact, ProcessEnded)]


def test_what_began_though_its_submission_gave_no_answer_is_not_called_void() -> None:
    handover, orders, asked = stopped("7 0")
    assert asked == ["stop_handed", "handed"]
    assert handover.attempt.claimed and not ends(orders)


def test_what_has_not_begun_when_it_is_told_to_stop_never_will() -> None:
    handover, orders, _ = stopped("")
    assert handover.attempt.is_over and ends(orders) == ["void"]


def test_the_made_up_engine_looks_as_well() -> None:
    """The order of things that random kills had found."""
    from backends.test_queue_machine import STOPPED, QueueMachine

    machine = QueueMachine()
    machine.life_goes_on([("submit", 0), ("command works and is killed", 2), ("start", 0)])
    machine.life_goes_on([("time passes", 4), ("run", 0)])
    world: World = machine.world
    assert world.ran[STOPPED]
    machine.something_fails("stop at once", 0)
    machine.teardown()
