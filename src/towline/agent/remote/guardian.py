"""What an agent becomes that has to leave while commands of killed supervisors are its children.

Nobody but their parent can learn how they end, so it stays in the place of their supervisors until
they did. It is the same process with a fresh program in it: the connection and all that the agent
had open are gone, and the records stay locked.
"""

import os
import signal
import sys

from . import machine, record
from .crew import note
from .home import Home
from .jobs import Job
from .loop import Loop
from .states import Seen
from .strays import Strays

CODE = "import sys; sys.path.insert(0, %r); from %s.guardian import main; main(sys.argv[1:])"


def become(home, guarded):
    """Returns only when it cannot be; `guarded` are the keys of jobs with their locked records."""
    # What is ignored stays so: until the new program listens, and for the Engine's wish to leave.
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    signal.set_wakeup_fd(-1)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    for fd in guarded.values():
        os.set_inheritable(fd, True)
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    words = [home.root] + ["%s=%d" % item for item in guarded.items()]
    try:
        code = CODE % (folder, __package__)
        os.execv(sys.executable, [sys.executable, "-I", "-c", code] + words)
    except OSError:
        pass


def main(words):
    home = Home(words[0])
    machine.become_subreaper()
    machine.set_name(b"tow-supervisor")
    os.chdir("/")
    # Whoever nudges us wakes the loop; what there is to do is looked for at every turn of it.
    signal.signal(signal.SIGUSR1, lambda *_: None)
    loop = Loop(lambda text: note(home, text))
    strays = Strays(loop, home, lambda job, seen: None, lambda key, end: None)
    loop.children_ended.append(strays.children_ended)
    for word in words[1:]:
        key, _, fd = word.rpartition("=")
        os.set_inheritable(int(fd), False)
        seen = Seen("running", None, record.read_life(int(fd)))
        strays.watch(Job(key), seen, int(fd))
    # One that ended just now is a child that is still to be waited for.
    loop.woken(0)
    while strays.strays:
        loop.turn()
    os._exit(0)
