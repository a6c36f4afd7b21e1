"""Who is killed: Engines, agents, supervisors and sshd sessions of one TOWLINE_HOME and its hosts.

A job may be lost only when its supervisor was killed while its command ran, and the agent that the
command was left to was gone too before it ended: nobody is left then who could learn its exit code;
or when it was killed in the very moment of the start, with the command being nobody's yet. The
killer writes down what it needs to tell such jobs from others.
"""

import contextlib
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from e2e.engines import engine_pid, serves
from testbed.hosts import Hosts
from testbed.leftovers import belonging_to
from testbed.processes import name_of, parent_of, processes_on

HERE = "this"
#: Of the Engines that are just starting, this share is killed.
EARLY = 0.15
AGENT, SUPERVISOR = "tow-agent", "tow-supervisor"
#: A process that starts another stops only when that has begun.
LONGEST_STOP_S = 0.5
LOOK_EVERY_S = 0.2
#: What was killed so shortly before or after may have to do with it.
AROUND_S = 10.0


#: Why a job may be lost.
LEFT_ALONE = "their supervisor and their agent being killed"
AT_START = "their supervisor being killed in the moment of the start"
#: A process, whatever has its number later: that and when it started.
Process = tuple[int, int]


class Orphaning(NamedTuple):
    """A supervisor was killed while the command of its job ran, or was just being started."""

    job: int
    #: The agent that has the command now; None where there was none.
    agent: Process | None
    #: The number of the command was not written down yet.
    at_start: bool = False
    at: float = 0.0


class Killer:
    """Kills one thing after the other, and remembers what it may have cost."""

    def __init__(self, home: Path, hosts: Hosts, names: tuple[str, ...], random: Random) -> None:
        self.home = home
        self.hosts = hosts
        self.names = names
        self.random = random
        self.kills: Counter[str] = Counter()
        self.orphanings: list[Orphaning] = []
        #: Whom it killed, and when, in words.
        self.history: list[str] = []
        #: When the agents that have commands of killed supervisors were last seen alive.
        self.alive_at: dict[Process, float] = {}
        self._ways: list[tuple[Callable[[], int], str, int]] = [
            (self._engine, "Engine", 6),
            (self._agent, "agent", 3),
            (self._supervisor, "supervisor", 3),
            (self._agent_and_supervisors, "agent and supervisors", 1),
            (self._session, "sshd session", 3),
        ]

    def kill_one(self) -> None:
        """Kill something that is there now, if there is any."""
        ways, weights = zip(*((way, weight) for *way, weight in self._ways), strict=True)
        kill, name = self.random.choices(ways, weights)[0]
        with contextlib.suppress(OSError):
            self.kills[name] += kill()

    def _kill(self, pid: int) -> None:
        self.history.append(f"{time.time():.3f} {name_of(pid)} {pid}, child of {parent_of(pid)}")
        os.kill(pid, signal.SIGKILL)

    def about(self, job: int) -> list[str]:
        """What it did to a job, for whoever wonders why that is lost."""
        found = [orphaning for orphaning in self.orphanings if orphaning.job == job]
        told = [
            f"{one}, its agent last seen alive at {self.alive_at.get(one.agent or (0, 0), 0.0):.3f}"
            for one in found
        ]
        around = [
            line
            for line in self.history
            if any(abs(float(line.split()[0]) - one.at) < AROUND_S for one in found)
        ]
        return told + around

    @contextlib.contextmanager
    def looking(self) -> Iterator[None]:
        """Meanwhile, see who lives."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(LOOK_EVERY_S):
                self.look()

        looks = threading.Thread(target=look)
        looks.start()
        try:
            yield
        finally:
            over.set()
            looks.join()

    def look(self) -> None:
        now = time.time()
        for agent in list(self.alive_at):
            if _lives(agent):
                self.alive_at[agent] = now

    def may_be_lost(self, job: int, ended: float) -> str:
        """Why nobody could learn how this job ended; empty where somebody could."""
        for orphaning in self.orphanings:
            if orphaning.job == job:
                if orphaning.at_start:
                    return AT_START
                if orphaning.agent is None or self.alive_at[orphaning.agent] <= ended:
                    return LEFT_ALONE
        return ""

    # --- ways to kill ------------------------------------------------------------------------

    def _engine(self) -> int:
        pid = engine_pid(self.home)
        # Most get so far as to serve: on a busy machine nothing would happen otherwise.
        if not pid or (self.random.random() > EARLY and not serves(self.home, pid)):
            return 0
        # Its agents notice that nobody speaks to them any more, and go.
        self._kill(pid)
        return 1

    def _agent(self) -> int:
        place = self._any_place()
        agents = self._processes(place, AGENT)
        if not agents:
            return 0
        self._kill(self.random.choice(agents))
        return 1

    def _session(self) -> int:
        """The sshd process that serves one connection."""
        place = self.random.choice(self.names)
        sessions = [
            pid for pid in self._processes(place, "sshd") if os.stat(f"/proc/{pid}").st_uid != 0
        ]
        if not sessions:
            return 0
        self._kill(self.random.choice(sessions))
        return 1

    def _supervisor(self) -> int:
        place = self._any_place()
        found = self._supervisors(place)
        if not found:
            return 0
        self.kill_supervisors([self.random.choice(found)])
        return 1

    def _agent_and_supervisors(self) -> int:
        place = self._any_place()
        agents, supervisors = self._processes(place, AGENT), self._supervisors(place)
        if not agents or not supervisors:
            return 0
        for pid in agents:
            self._kill(pid)
        self.kill_supervisors(supervisors)
        return len(supervisors) + len(agents)

    def kill_supervisors(self, pids: Iterable[int]) -> None:
        """Kill these, and write down whose commands go on without them."""
        for pid in pids:
            with contextlib.suppress(OSError):
                # Stopped first, so that what it has written is what it had when it was killed.
                os.kill(pid, signal.SIGSTOP)
                _await_stop(pid)
                try:
                    self._write_down(pid)
                finally:
                    self._kill(pid)

    def _write_down(self, supervisor: int) -> None:
        agent = _agent_of(supervisor)
        for job, life in _lives_of(supervisor):
            if _runs(life):
                self.orphanings.append(Orphaning(job, agent, "pid" not in life, time.time()))
        if agent is not None:
            self.alive_at.setdefault(agent, 0.0)

    # --- who is there ------------------------------------------------------------------------

    def _any_place(self) -> str:
        return self.random.choice((HERE, *self.names))

    def _supervisors(self, place: str) -> list[int]:
        """Those that are supervisors, not commands that have not become themselves yet."""
        return [
            pid
            for pid in self._processes(place, SUPERVISOR)
            if name_of(parent_of(pid)) != SUPERVISOR
        ]

    def _processes(self, place: str, name: str) -> list[int]:
        if place == HERE:
            return [pid for pid in belonging_to(self.home) if name_of(pid) == name]
        return processes_on(self.hosts, place, name)


def _agent_of(supervisor: int) -> Process | None:
    """The agent that gets the command of a killed supervisor; None where it is gone."""
    parent = parent_of(supervisor)
    with contextlib.suppress(OSError):
        if name_of(parent) == AGENT:
            return parent, _stat(parent)[1]
    return None


def _lives_of(supervisor: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """The job whose record a supervisor has open, and what that says: its present one."""
    for fd in Path(f"/proc/{supervisor}/fd").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            target = Path(os.readlink(fd))
            if target.name in ("life", "exit"):
                # Through the open file: its path is one of its host.
                text = fd.read_text()
                yield int(target.parent.name.split("-")[1]), json.loads(text) if text else {}


def _runs(life: dict[str, Any]) -> bool:
    """Whether the command may run, and nobody has written down how it ended."""
    return "spawning" in life and "ended" not in life and life.get("status") is None


def _await_stop(pid: int) -> None:
    """Until a process that was told to stop does nothing any more; not for ever: it may wait."""
    until = time.monotonic() + LONGEST_STOP_S
    while time.monotonic() < until and _stat(pid)[0] not in "TtZX":
        time.sleep(0.001)


def _lives(process: Process) -> bool:
    with contextlib.suppress(OSError):
        state, start = _stat(process[0])
        return start == process[1] and state not in "ZX"
    return False


def _stat(pid: int) -> tuple[str, int]:
    """What a process does, and when it started."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return fields[0], int(fields[19])
