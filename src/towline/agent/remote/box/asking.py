"""Whether this machine can wall in jobs, for whoever asks; found out beside the agent's loop."""

import os

from . import ability

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..home import Home
    from ..loop import Loop
    from ..typed import Message, Reaped, Reply


class WallsQuestions:
    """A child tries it out and notes what it found; then everybody who asked is told."""

    def __init__(self, loop: "Loop", home: "Home", reply: "Reply") -> None:
        self.home = home
        self.reply = reply
        self.asked: "list[Any]" = []
        self.child = 0
        loop.children_ended.append(self.children_ended)

    def walls(self, request: "Message", _blob: bytes) -> None:
        self.asked.append(request["id"])
        if self.child:
            return
        self.child = os.fork()
        if self.child == 0:
            try:
                ability.ability(self.home.root)
            finally:
                os._exit(0)

    def children_ended(self, ended: "Reaped") -> None:
        if self.child not in ended:
            return
        self.child = 0
        asked, self.asked = self.asked, []
        found = ability.ability(self.home.root).as_reply()
        for number in asked:
            self.reply(number, {"walls": found})
