"""The process that one job runs under: it outlives agent and connection, and records its ending.

It is forked by the agent, takes one job at a time from it through a socket, and then the next.
When the agent is gone it finishes its present job and exits.
"""

import os
import select
import shutil
import signal

from .. import frames, machine
from ..commands import process_tree
from ..content import outside
from ..records import endings, record
from .execution import Execution, trouble
from .station import Station

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any

    from ..home import Home
    from ..typed import Message


class Supervisor:
    def __init__(self, home: "Home", sock: "socket.socket") -> None:
        self.home = home
        self.sock = sock
        self.decoder = frames.Decoder()
        self.todo: "list[tuple[str, bytes]]" = []
        #: Jobs that have ended, of which something is to be collected.
        self.to_collect: "list[str]" = []
        self.agent_gone = False
        self.present: "Execution | None" = None
        #: Stops of jobs that are still to begin, by key; None is the job's own grace.
        self.early_stops: "dict[str, float | None]" = {}
        self.station = Station()
        agent = os.getppid()
        self.station.heir = [agent, process_tree.start_of(agent)]
        self.station.poll.register(sock, select.POLLIN)
        signal.signal(signal.SIGTERM, lambda *_: self.terminated())
        signal.signal(signal.SIGUSR1, lambda *_: self.nudged())

    # What comes from outside

    def serve(self) -> None:
        while True:
            while self.todo or self.to_collect:
                if self.to_collect:
                    self.collect(self.to_collect.pop(0))
                else:
                    self.run(*self.todo.pop(0))
            if self.agent_gone:
                return
            self.wait(None)

    def wait(self, seconds: "float | None") -> None:
        """Until something happened, or the time is over."""
        if self.station.wait(seconds):
            self.receive()

    def receive(self) -> None:
        try:
            data = self.sock.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self.lose_agent()
            return
        for header, blob in self.decoder.feed(data):
            if "run" in header:
                self.todo.append((header["run"], blob))
            elif "collect" in header:
                self.to_collect.append(header["collect"])
            elif self.present is not None and header.get("stop") == self.present.key:
                self.present.stop(header["grace_s"])
            elif any(header.get("stop") == key for key, _ in self.todo):
                # Read together with its start: a busy machine let us not run in between.
                self.early_stops[header["stop"]] = header["grace_s"]

    def terminated(self) -> None:
        if self.present is not None:
            self.present.stop(None)

    def nudged(self) -> None:
        if self.present is not None:
            self.present.look_for_stop()

    def tell(self, **message: "Any") -> None:
        if self.present is not None:
            self.send(dict(message, key=self.present.key))

    def send(self, message: "Message") -> None:
        if self.agent_gone:
            return
        try:
            self.sock.sendall(frames.encode(message))
        except OSError:
            self.lose_agent()

    def lose_agent(self) -> None:
        self.agent_gone = True
        self.station.poll.unregister(self.sock)

    # One job

    def run(self, key: str, raw: bytes) -> None:
        execution = self.present = Execution(self.home, key, raw, self.station, self)
        if key in self.early_stops:
            execution.stop(self.early_stops.pop(key))
        try:
            life = self.claim_here(execution)
        except OSError as problem:
            self.tell(ended=trouble(problem))
            return
        if life is None:
            self.tell(known=True)
            return
        end, pid = execution.live(life)
        execution.write_down(life, end)
        os.close(life)
        end.update(endings.said(end, execution.folder))
        message: "Message" = {"ended": end}
        if pid:
            message["started"] = [pid, end["started"]]
        if outside.is_pending(execution.record):
            message["busy"] = True
            self.to_collect.append(key)
        self.tell(**message)
        self.present = None

    def collect(self, key: str) -> None:
        """Take along what a job wrote outside of its folder; its end is known already."""
        outside.collect(self.home, key)
        self.send({"free": True})

    def claim_here(self, execution: "Execution") -> "Any":
        try:
            return self.claim(execution)
        except FileNotFoundError:
            self.home.make()  # somebody removed it
            return self.claim(execution)

    def claim(self, execution: "Execution") -> "Any":
        """The locked `life` of a job never started; None when somebody else has or had it."""
        try:
            # In this order: an older agent's record would be in the job's folder.
            os.mkdir(execution.folder, 0o700)
            os.mkdir(execution.record, 0o700)
        except FileExistsError:
            return self.claim_again(execution)
        life = record.open_life(execution.record, create=True)
        if record.lock(life) and not os.path.exists(execution.record + "/exit"):
            return life
        os.close(life)
        return None

    def claim_again(self, execution: "Execution") -> "Any":
        folder = execution.record = self.home.record(execution.key)
        if os.path.exists(folder + "/exit"):
            return None
        for place in (folder, execution.folder):
            os.makedirs(place, 0o700, exist_ok=True)
        life = record.open_life(folder, create=True)
        if (
            not machine.is_another(record.read_life(life).get("identity"))
            and record.lock(life)
            and record.is_current(folder, life)
            and not os.path.exists(folder + "/exit")
            and "spawning" not in record.read_life(life)
        ):
            execution.look_for_stop()
            if record.released(folder) != "void":
                for made in ("/src", "/keep"):
                    shutil.rmtree(execution.folder + made, ignore_errors=True)
                return life
            record.write_exit(folder, life, endings.ending("void", "it never started"), b"{}")
        os.close(life)
        return None
