"""What an agent becomes that has to leave while commands of killed supervisors are its children.

Nobody but their parent can learn how they end, so it stays in the place of their supervisors until
they did. It is the same process with a fresh program in it: the connection and all that the agent
had open are gone, and the records stay locked.
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
from .orphans import Orphans
from .registry import Job
from .supervisors import note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..typed import Message

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
    machine.set_name(b"tow-supervisor")
    os.chdir("/")
    # Whoever nudges us wakes the loop; what there is to do is looked for at every turn of it.
    signal.signal(signal.SIGUSR1, lambda *_: None)
    loop = Loop(lambda text: note(home, text))
    over: "list[str]" = []
    orphans = Orphans(loop, home, lambda job, seen: None, lambda key, end: None, over.append)
    loop.children_ended.append(orphans.children_ended)
    for word in words[1:]:
        take_up(home, orphans, json.loads(word))
    # One that ended just now is a child that is still to be waited for.
    loop.woken(0)
    while orphans.orphans:
        loop.turn()
    for key in over:
        outside.collect(home, key)
    os._exit(0)


def take_up(home: "Home", orphans: "Orphans", about: "Message") -> None:
    """Go on where the agent was."""
    job = Job(about["key"])
    if "life" not in about:
        seen = look(home, job.key)
        if seen.state in ("held", "running"):
            job.started = seen.started
            orphans.watch(job, seen)
        return
    fd = about["life"]
    if fd is not None:
        os.set_inheritable(fd, False)
    life = record.read(home.record(job.key)) if fd is None else record.read_life(fd)
    life.update(pid=about["pid"], start=about["start"])
    seen = Seen("running", None, life)
    job.started = seen.started
    orphans.take_up(job, seen, about)
