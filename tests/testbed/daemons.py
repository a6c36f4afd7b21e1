"""Hosts with a queue: its daemons on them, its administrator, and the user who works there."""

import os
import signal
import subprocess
from pathlib import Path

from .hosts import Hosts
from .slot import ENVIRONMENT, TestbedError
from .waiting import wait_until


class QueueHosts(Hosts):
    """The first host is the access node; what can happen to hosts can happen to all of them."""

    #: The access node, and what its daemons and its administrator have in their environment.
    access = "h1"
    environment: tuple[str, ...] = (f"PATH={ENVIRONMENT['PATH']}",)

    def control(self, *argv: str) -> str:
        """Run a command of the queue as its administrator."""
        return self._command(self.access, *argv)

    def on_node(self, name: str, *argv: str) -> str:
        """Run a command on a node as its administrator."""
        return self._command(name, *argv)

    def worker(self, *argv: str) -> str:
        """Run a command on the access node as the user of the cluster."""
        done = self.run(self.access, argv)
        assert done.returncode == 0, done.stderr
        return done.stdout

    # Inner workings

    def _kill(self, program: str, name: str = "") -> None:
        pid = self._daemon_pid(program, name)
        if pid:
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: self._daemon_pid(program, name) == 0)

    def _daemon_pid(self, program: str, name: str = "") -> int:
        """Of the one in a host's own process table, as this machine numbers it."""
        inside = os.stat(f"/proc/{self.pid(name or self.access)}/ns/pid").st_ino
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    named = Path(f"/proc/{entry}/comm").read_text().strip() == program
                    if named and os.stat(f"/proc/{entry}/ns/pid").st_ino == inside:
                        return int(entry)
                except OSError:
                    continue
        return 0

    def _answer(self, *argv: str) -> str:
        """What a command on the access node says; nothing when it fails."""
        try:
            return self._command(self.access, *argv)
        except TestbedError:
            return ""

    def _command(self, name: str, *argv: str) -> str:
        enter = ("nsenter", f"--target={self.pid(name)}", "--all")
        clean = ("env", "-i", "--chdir=/", *self.environment, "timeout", "20")
        done = subprocess.run(
            [*enter, *clean, *argv],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
        )
        if done.returncode:
            raise TestbedError(f"{' '.join(argv)} on {name}: {(done.stderr or done.stdout)[-500:]}")
        return done.stdout


def tail(path: Path) -> str:
    """The last lines of a log, for who has to say what went wrong."""
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    return "\n".join([f"{path}:", *lines[-15:]])
