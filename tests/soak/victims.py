"""Who is killed: Engines, agents, supervisors and sshd sessions of one TOWLINE_HOME and its hosts.

A job may be lost only when the agent that started it and its supervisor are both gone before it
ends: nobody is left then who could learn its exit code. The killer writes down what it needs to
tell such jobs from others.
"""

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import NamedTuple

from e2e.engines import engine_pid, serves
from testbed.hosts import Hosts
from testbed.leftovers import belonging_to
from testbed.processes import name_of, parent_of, processes_on

HERE = "this"
#: Of the Engines that are just starting, this share is killed.
EARLY = 0.15
AGENT, SUPERVISOR = "tow-agent", "tow-supervisor"


class Orphaning(NamedTuple):
    """A supervisor of a job was killed; `alone` when no agent was there to take its place."""

    job: int
    place: str
    at: float
    alone: bool


class Killer:
    """Kills one thing after the other, and remembers what it may have cost."""

    def __init__(self, home: Path, hosts: Hosts, names: tuple[str, ...], random: Random) -> None:
        self.home = home
        self.hosts = hosts
        self.names = names
        self.random = random
        self.kills: Counter[str] = Counter()
        #: When the agents of a place went.
        self.agents_gone: list[tuple[str, float]] = []
        self.orphanings: list[Orphaning] = []
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

    def may_be_lost(self, job: int, ended: float) -> bool:
        """Whether all who could have learned how this job ended were killed before."""
        for orphaning in self.orphanings:
            if orphaning.job == job and (
                orphaning.alone
                or any(
                    place == orphaning.place and orphaning.at <= at <= ended
                    for place, at in self.agents_gone
                )
            ):
                return True
        return False

    # --- ways to kill ------------------------------------------------------------------------

    def _engine(self) -> int:
        pid = engine_pid(self.home)
        # Most get so far as to serve: on a busy machine nothing would happen otherwise.
        if not pid or (self.random.random() > EARLY and not serves(self.home, pid)):
            return 0
        os.kill(pid, signal.SIGKILL)
        # Its agents notice that nobody speaks to them any more, and go.
        self._lose_agents(HERE, *self.names)
        return 1

    def _agent(self) -> int:
        place = self._any_place()
        agents = self._processes(place, AGENT)
        if not agents:
            return 0
        self._lose_agents(place)
        os.kill(self.random.choice(agents), signal.SIGKILL)
        return 1

    def _session(self) -> int:
        """The sshd process that serves one connection."""
        place = self.random.choice(self.names)
        sessions = [
            pid for pid in self._processes(place, "sshd") if os.stat(f"/proc/{pid}").st_uid != 0
        ]
        if not sessions:
            return 0
        self._lose_agents(place)
        os.kill(self.random.choice(sessions), signal.SIGKILL)
        return 1

    def _supervisor(self) -> int:
        place = self._any_place()
        found = self._supervisors(place)
        if not found:
            return 0
        self._kill_supervisors(place, [self.random.choice(found)], agent_too=False)
        return 1

    def _agent_and_supervisors(self) -> int:
        place = self._any_place()
        agents, supervisors = self._processes(place, AGENT), self._supervisors(place)
        if not agents or not supervisors:
            return 0
        for pid in agents:
            os.kill(pid, signal.SIGKILL)
        self._lose_agents(place)
        self._kill_supervisors(place, supervisors, agent_too=True)
        return len(supervisors) + len(agents)

    def _kill_supervisors(self, place: str, pids: Iterable[int], agent_too: bool) -> None:
        for pid in pids:
            with contextlib.suppress(OSError):
                # Stopped first, so that what it holds now is what it held when it was killed.
                os.kill(pid, signal.SIGSTOP)
                alone = agent_too or name_of(parent_of(pid)) != AGENT
                now = time.time()
                self.orphanings += [Orphaning(job, place, now, alone) for job in _jobs_of(pid)]
                os.kill(pid, signal.SIGKILL)

    def _lose_agents(self, *places: str) -> None:
        now = time.time()
        self.agents_gone += [(place, now) for place in places]

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


def _jobs_of(supervisor: int) -> set[int]:
    """The jobs whose records a supervisor has open: its present one."""
    found = set()
    for fd in Path(f"/proc/{supervisor}/fd").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            target = Path(os.readlink(fd))
            if target.name in ("life", "exit"):
                found.add(int(target.parent.name.split("-")[1]))
    return found
