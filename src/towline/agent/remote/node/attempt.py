"""An attempt as it was handed over, and the one run of it that counts.

It runs once, whatever the queue does: the first run to make the `claim` counts. Only the same entry
of the queue, started again by the queue itself, may go on.
"""

import json
import os
import time

from ..home import Home
from ..records import record
from . import site

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..typed import Message


class Attempt:
    """The attempt as it was handed over, and which run of it this is; of an array, one task."""

    def __init__(self, root: str, key: str) -> None:
        self.home = Home(root)
        self.order: "Message" = json.loads(read(self.home.handed(key) + "/order"))
        if self.order.get("environ"):
            site.take_environ(self.home.handed(key))
        self.array = key if self.order.get("array") else ""
        self.id = site.entry(bool(self.array))
        if self.array:
            key = json.loads(read(self.home.handed(key) + "/tasks")).get(site.task(), "")
        self.key = key
        self.folder = self.home.handed(key)
        #: Counts how often the queue started it again.
        self.run = site.restarts(self.claimed_run)
        os.environ["TOWLINE_RUN"] = str(self.run)
        self.began = float(os.environ.setdefault("TOWLINE_BEGAN", "%f" % time.time()))

    def claimed_run(self) -> "int | None":
        """Which run of this very entry has the claim; None where none does."""
        try:
            with open(self.folder + "/claim", "rb") as file:
                words = file.read().split()
        except OSError:
            return None
        mine = len(words) > 1 and words[0] == self.id.encode()
        return int(words[1]) if mine else None

    def claim(self) -> bool:
        """True when this run is the one that counts."""
        path = self.folder + "/claim"
        mine = b"%s %d %s\n" % (self.id.encode(), self.run, self.array.encode())
        return record.write_first(path, mine) or self.claim_again(path, mine)

    def is_superseded(self) -> bool:
        """The queue started it again while this run went on, cut off perhaps."""
        run = self.claimed_run()
        return run is not None and run > self.run

    def claim_again(self, path: str, mine: bytes) -> bool:
        with open(path, "rb") as file:
            words = file.read().split()
        if len(words) < 2 or words[0] != self.id.encode() or int(words[1]) >= self.run:
            return False
        record.write_whole(path, mine)
        return True

    def rank_key(self, rank: int) -> str:
        return "%s-%d" % (self.key, rank)

    def wishes(self) -> "list[str]":
        """The names of all that lies there now, wishes of others among it."""
        # Listed, not looked for: a network file system may remember what was not there.
        return os.listdir(self.folder)

    def guests(self, rank: int, names: "list[str]") -> "list[str]":
        """Of these, the wishes for commands beside one of its processes."""
        return [name for name in names if name.startswith("beside.%s." % self.rank_key(rank))]

    def stop_word(self) -> str:
        """Why all its processes are to stop, where that was us."""
        try:
            with open(self.folder + "/stop") as file:
                return file.read().strip() or "stopped"
        except OSError:
            return ""


def read(path: str) -> str:
    with open(path) as file:
        return file.read()
