"""What the files of attempts say, and the wish to stop, which is told to them by files too."""

from typing import Any

from towline.agent.endings import read_ending
from towline.agent.link import Link
from towline.agent.messages import Clock, read_rank, read_record
from towline.backends.machines.driver import Driver
from towline.backends.queue.commands import Commands
from towline.backends.queue.facts import CancelEntry, RankSeen, Recorded, StopDue, StopTold
from towline.backends.queue.handover import Handover, by_name
from towline.backends.queue.readings import Readings
from towline.backends.queue.table import Table
from towline.model.job import ABSENT

#: Runners tell times of the nodes, whose clocks are taken to agree with ours.
_OUR_CLOCK = Clock()
#: Most attempts named in one message.
_MANY = 500


class Files:
    """The folders of attempts, as the agent on the access node sees them."""

    def __init__(
        self, table: Table, driver: Driver, commands: Commands, readings: Readings
    ) -> None:
        self.table = table
        self.driver = driver
        self.commands = commands
        self.readings = readings

    async def look(self, link: Link, some: list[Handover]) -> dict[str, str]:
        """Ask the agent what is known of these; what each said outside of its processes."""
        said = {}
        for at in range(0, len(some), _MANY):
            part = {handover.key: handover for handover in some[at : at + _MANY]}
            keys = {key: handover.attempt.count for key, handover in part.items()}
            answer, _ = await link.ask("handed", keys=keys)
            for key, handover in part.items():
                record = read_record(answer["handed"].get(key))
                ticket = self.commands.dialect.read_ticket(record.ticket)
                claim = tuple(record.claim.split())
                returned = frozenset(record.returned.split())
                self.table.take(handover, Recorded(ticket, record.array, claim, returned))
                said[key] = record.said
                for rank, seen in enumerate(record.ranks[: handover.attempt.count]):
                    self.take_rank(handover, rank, seen)
        return said

    def take_rank(self, handover: Handover, rank: int, told: Any, is_news: bool = False) -> None:
        """Take what one process says of itself."""
        seen = read_rank(told)
        ending = None
        if seen.state == "ended" and seen.ending is not None:
            ending = read_ending(seen.ending, _OUR_CLOCK)
            self.readings.take_end(f"{handover.key}-{rank}", seen.ending)
            if ending.cause == ABSENT and rank not in handover.attempt.ended:
                ending = self.driver.mended(handover.snapshots, ending)
        fact = RankSeen(
            rank, seen.state, seen.run, seen.started, seen.node, seen.why, ending, is_news
        )
        self.table.take(handover, fact)

    async def stop(self, link: Link, some: list[Handover]) -> None:
        """Have them stopped; none is taken for ours that only has the number of one of them."""
        doomed = [one for one in some if CancelEntry() in self.table.take(one, StopDue())]
        # An entry of several lines goes on for those that nobody stops.
        lines = (one.attempt for one in self.table.wanted.values() if one.attempt.is_packed)
        going_on = {one.array for one in lines if not (one.stop or one.is_over)}
        doomed = [one for one in doomed if one.attempt.array not in going_on]
        listed = by_name(await self.commands.list_entries(link) if doomed else ())
        ids = {one.id for handover in doomed for one in listed.get(handover.attempt.name, ())}
        await link.ask(
            "stop_handed",
            keys=[handover.key for handover in some],
            now=[handover.key for handover in some if handover.attempt.stop_now],
            argv=self.commands.dialect.cancel_words(ids) if ids else None,
            login=self.commands.login,
        )
        # Of a submission that gave no answer, a run may have begun since the list was asked for.
        if unknown := [handover for handover in some if not handover.attempt.id]:
            await self.look(link, unknown)
        for handover in some:
            self.table.take(handover, StopTold())
