"""What an agent becomes that has to leave while jobs that it started run on.

Nobody but its parent can learn how the command of a killed supervisor ends, and that is whoever
started the supervisor. So it stays, asleep, until these jobs are over, and takes the place of a
supervisor that is killed or was. It is the same process with a fresh program in it: the connection
and all that the agent had open are gone, and the records of killed supervisors stay locked.
"""

import json
import os
import signal
import sys

from .. import machine
from ..content import outside
from ..home import Home
from ..loop import Loop
from ..records import record
from ..records.status import Seen, look
from .known_job import KnownJob
from .orphans import Orphans
from .supervisors import note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..typed import Message, Reaped

NAME = b"tow-guardian"
CODE = "import sys; sys.path.insert(0, %r); from %s.guardian import main; main(sys.argv[1:])"


def become(home: "Home", left: "list[Message]") -> None:
    """Returns only when it cannot be; `left` is what `Jobs.left_to_us` says."""
    # What is ignored stays so: until the new program listens, and for the Engine's wish to leave.
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    signal.set_wakeup_fd(-1)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    for about in left:
        if about.get("life") is not None:
            os.set_inheritable(about["life"], True)
    words = [home.root] + [json.dumps(about) for about in left]
    try:
        code = CODE % (machine.PROGRAM, __package__)
        os.execv(sys.executable, [sys.executable, "-I", "-c", code] + words)
    except OSError:
        pass


def main(words: "list[str]") -> None:
    home = Home(words[0])
    machine.become_subreaper()
    machine.set_name(NAME)
    os.chdir("/")
    # Whoever nudges us wakes the loop; what there is to do is looked for at every turn of it.
    signal.signal(signal.SIGUSR1, lambda *_: None)
    Guardian(home, [json.loads(word) for word in words[1:]]).stay()
    os._exit(0)


class Guardian:
    def __init__(self, home: "Home", left: "list[Message]") -> None:
        self.home = home
        self.loop = Loop(lambda text: note(home, text))
        #: Jobs that ended with us in the place of their supervisors.
        self.over: "list[str]" = []
        self.orphans = Orphans(
            self.loop,
            home,
            lambda job, seen: None,
            lambda key, end: None,
            self.over.append,
            lambda: self.supervised,
        )
        self.loop.children_ended.append(self.orphans.children_ended)
        self.loop.children_ended.append(self.children_ended)
        #: Supervisors that live -> their jobs.
        self.supervised = {
            about["supervisor"]: about["key"] for about in left if "life" not in about
        }
        for about in left:
            if "life" in about:
                take_up(home, self.orphans, about)

    def stay(self) -> None:
        """Until nothing is left to see to."""
        # One that ended just now is a child that is still to be waited for.
        self.loop.woken(0)
        while self.supervised or self.orphans.orphans:
            self.loop.turn()
            while self.over:
                outside.collect(self.home, self.over.pop())

    def children_ended(self, ended: "Reaped") -> None:
        """A supervisor ends with its job, or was killed: then the command is ours."""
        for pid in ended:
            key = self.supervised.pop(pid, "")
            if key:
                self.orphans.beginnings.settle(key)
            seen = look(self.home, key, self.loop.recent) if key else None
            if seen is not None and seen.state == "running":
                job = KnownJob(key)
                job.started = seen.started
                self.orphans.watch(job, seen)


def take_up(home: "Home", orphans: "Orphans", about: "Message") -> None:
    """Go on where the agent was."""
    job = KnownJob(about["key"])
    fd = about["life"]
    if fd is not None:
        os.set_inheritable(fd, False)
    life = record.read(home.record(job.key)) if fd is None else record.read_life(fd)
    life.update(pid=about["pid"], start=about["start"])
    seen = Seen("running", None, life)
    job.started = seen.started
    orphans.take_up(job, seen, about)
