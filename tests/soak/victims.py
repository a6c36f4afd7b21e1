"""Who is killed: Engines, agents, supervisors and sshd sessions of one TOWLINE_HOME and its hosts.

A job may be lost only when both were killed: its supervisor, while its command ran, and the agent
that had started that supervisor, before the command ended. Nobody is left then who could learn the
exit code. An agent that only leaves, because its Engine or its connection was killed, becomes a
guardian, and that counts as the agent. The killer writes down what it needs to tell such jobs from
others.
"""

import contextlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from e2e.engines import engine_pid, serves
from testbed.hosts import Hosts
from testbed.leftovers import belonging_to
from testbed.processes import children_of, name_of, parent_of, processes_on

HERE = "this"
#: Of the Engines that are just starting, this share is killed.
EARLY = 0.15
AGENT, GUARDIAN, SUPERVISOR = "tow-agent", "tow-guardian", "tow-supervisor"
#: A process that starts another stops only when that has begun.
LONGEST_STOP_S = 0.5
#: What was killed so shortly before or after may have to do with it.
AROUND_S = 10.0


#: A process, whatever has its number later: that and when it started.
Process = tuple[int, int]


class Orphaning(NamedTuple):
    """A supervisor was killed while the command of its job ran, or was just being started."""

    job: int
    #: Who started the supervisor, and has the command now, or was killed before; None where that
    #: one is gone without having been killed.
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
        #: The agents that it killed, and when; and the supervisors that these left behind.
        self.killed: dict[Process, float] = {}
        self.bereaved: dict[Process, Process] = {}
        self._ways: list[tuple[Callable[[], int], str, int]] = [
            (self._engine, "Engine", 6),
            (lambda: self._agent(AGENT), "agent", 3),
            (lambda: self._agent(GUARDIAN), "guardian", 1),
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

    def kill(self, pid: int) -> None:
        """Kill one, and write down whom it leaves behind if it is an agent."""
        name, process = name_of(pid), _process(pid)
        self.history.append(f"{time.time():.3f} {name} {pid}, child of {parent_of(pid)}")
        if name in (AGENT, GUARDIAN):
            # Stopped first, so that it starts no other supervisor meanwhile.
            os.kill(pid, signal.SIGSTOP)
            _await_stop(pid)
            self.bereaved |= dict.fromkeys(map(_process, children_of(pid)), process)
            self.killed[process] = time.time()
        os.kill(pid, signal.SIGKILL)

    def about(self, job: int) -> list[str]:
        """What it did to a job, for whoever wonders why that is lost."""
        found = [orphaning for orphaning in self.orphanings if orphaning.job == job]
        told = [
            f"{one}, its agent killed at {self.killed.get(one.agent or (0, 0))}" for one in found
        ]
        around = [
            line
            for line in self.history
            if any(abs(float(line.split()[0]) - one.at) < AROUND_S for one in found)
        ]
        return told + around

    def why_lost(self, job: int, ended: float) -> Orphaning | None:
        """What was done to a job of which nobody could learn how it ended; None where somebody
        could."""
        for one in self.orphanings:
            if one.job == job and one.agent and self.killed.get(one.agent, ended + 1.0) <= ended:
                return one
        return None

    # --- ways to kill ------------------------------------------------------------------------

    def _engine(self) -> int:
        pid = engine_pid(self.home)
        # Most get so far as to serve: on a busy machine nothing would happen otherwise.
        if not pid or (self.random.random() > EARLY and not serves(self.home, pid)):
            return 0
        # Its agents notice that nobody speaks to them any more, and go.
        self.kill(pid)
        return 1

    def _agent(self, name: str) -> int:
        place = self._any_place()
        agents = self._processes(place, name)
        if not agents:
            return 0
        self.kill(self.random.choice(agents))
        return 1

    def _session(self) -> int:
        """The sshd process that serves one connection."""
        place = self.random.choice(self.names)
        sessions = [
            pid for pid in self._processes(place, "sshd") if os.stat(f"/proc/{pid}").st_uid != 0
        ]
        if not sessions:
            return 0
        self.kill(self.random.choice(sessions))
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
        supervisors = self._supervisors(place)
        agents = self._processes(place, AGENT) + self._processes(place, GUARDIAN)
        if not agents or not supervisors:
            return 0
        for pid in agents:
            self.kill(pid)
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
                    self.kill(pid)

    def _write_down(self, supervisor: int) -> None:
        agent = _agent_of(supervisor) or self.bereaved.get(_process(supervisor))
        for job, life in _lives_of(supervisor):
            if _runs(life):
                self.orphanings.append(Orphaning(job, agent, "pid" not in life, time.time()))

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
    if parent <= 1:
        return None
    with contextlib.suppress(OSError):
        # Just when an agent becomes a guardian, it has the name of its program.
        if name_of(parent) in (AGENT, GUARDIAN) or name_of(parent).startswith("python"):
            return _process(parent)
    return None


def _process(pid: int) -> Process:
    return pid, _stat(pid)[1]


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


def _stat(pid: int) -> tuple[str, int]:
    """What a process does, and when it started."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return fields[0], int(fields[19])
