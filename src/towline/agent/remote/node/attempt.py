"""An attempt as it was handed over, and the one run of it that counts.

It runs once, whatever the queue does: the first run to make the `claim` counts. Only the same entry
of the queue, started again by the queue itself, may go on.
"""

import copy
import json
import os
import signal
import time

from ..home import Home
from ..records import record
from . import rendezvous, site

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..typed import Ending, Message

#: In place of a number: it was taken out, and no entry of the queue ever runs it.
NOBODY = "nobody"

#: How a queue asks what runs to end.
ENDS = (signal.SIGTERM, signal.SIGINT)


class Attempt:
    """The attempt as it was handed over, and which run of it this is; of an array, one task; of a
    pack, the pack as a whole."""

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
        #: A folder for what is temporary, where it shares its node with others of its pack.
        self.scratch = ""
        #: Counts how often the queue started it again.
        self.run = site.restarts(self.claimed_run)
        os.environ["TOWLINE_RUN"] = str(self.run)
        self.began = float(os.environ.setdefault("TOWLINE_BEGAN", "%f" % time.time()))

    def lines(self) -> "list[Attempt]":
        """Of a pack, its lines in their order: each is an attempt in the same entry."""
        tasks = json.loads(read(self.folder + "/tasks"))
        found = []
        for index in sorted(tasks, key=int):
            line = copy.copy(self)
            line.array, line.key = self.key, tasks[index]
            line.folder = self.home.handed(line.key)
            found.append(line)
        return found

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
        """True when this run is the one that counts. From here on it hears that it is to end only
        after `listen`: a claim without a record says nothing of whether the command began."""
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
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

    def end_unrun(self, end: "Ending") -> None:
        """End it without having run it: the claim is taken, so that nothing else ever does."""
        if self.claim():
            here = {"state": "ended", "node": rendezvous.node_name(), "run": self.run}
            write_unrun(self.home, self.key, self.order["processes"], end, here)

    def goes_on_at_limit(self) -> bool:
        """Whether it is to go into the queue again when its time is over."""
        most = (self.order.get("pack") or {}).get("carries") or 0
        return self.order.get("on_timeout") == "resubmit" and (not most or self.run < most)

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


def listen() -> None:
    """Somebody knows now what to do when it is to end."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)


def is_pack(name: str) -> bool:
    """Whether what several attempts are in is a pack, and not an array: its name says so."""
    return name.rpartition("-")[2].startswith("p")


def write_unrun(home: "Home", key: str, count: int, end: "Ending", where: "Message") -> None:
    """Write down the end of an attempt that never began, and tell that there is something to
    read; what was written down before stays."""
    for rank in range(count):
        name = "%s-%d" % (key, rank)
        folder = home.record(name)
        told = dict(end, spec=record.read_spec(folder))
        if not record.write_first(folder + "/exit", json.dumps(told).encode("ascii")):
            continue
        record.write_whole(folder + "/where", json.dumps(where).encode("ascii"))
        record.write_whole("%s/%s.%d" % (home.news(name), name, 2 * where["run"] + 1), b"")
