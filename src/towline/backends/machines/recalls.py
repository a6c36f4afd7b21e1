"""Jobs that were sent ahead to one machine, and are asked back before they begin."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from towline.agent.endings import read_ending
from towline.agent.link import Link
from towline.agent.messages import Clock
from towline.backends.machines.wanted import WantedProcess
from towline.errors import AgentError, HostError
from towline.model.job import Ending

log = logging.getLogger("towline")


class Recalls:
    """`link` is the open channel; `end` hears of those that came back."""

    def __init__(
        self,
        link: Callable[[], Link | None],
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, Any]], None],
        end: Callable[[WantedProcess, Ending], None],
    ) -> None:
        self._link = link
        self._clock = clock
        self._spawn = spawn
        self._end = end
        self._asked: list[WantedProcess] = []

    def ask(self, wanted: WantedProcess) -> None:
        """All that are asked back in one turn of the loop share a message; where the connection
        breaks, the next greeting sees to them."""
        if not wanted.sent:
            self._end(wanted, Ending(cause="void", text="asked back before it was sent"))
        elif self._link() is not None:
            if not self._asked:
                asyncio.get_running_loop().call_soon(self._flush)
            self._asked.append(wanted)

    def _flush(self) -> None:
        some, self._asked = self._asked, []
        if (link := self._link()) is not None:
            self._spawn(self._void(link, some))

    async def _void(self, link: Link, some: list[WantedProcess]) -> None:
        """Forbid what has not begun; what has begun goes on."""
        try:
            answer, _ = await link.ask("void", keys=[wanted.key for wanted in some])
        except (HostError, AgentError) as error:
            log.warning("what was sent ahead to %s: %s", link.name, error)
            return
        for wanted in some:
            known = answer["states"].get(wanted.key, {})
            if known.get("state") == "ended":
                self._end(wanted, read_ending(known.get("ending"), self._clock))
