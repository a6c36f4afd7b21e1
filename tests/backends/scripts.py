"""What jobs of the contract do, step by step: as shell text, or played in memory."""

import shlex
from dataclasses import dataclass

_SERVE = """\
import os, socket, sys
listener = socket.create_server(("127.0.0.1", 0))
with open("port.new", "w") as file:
    file.write(str(listener.getsockname()[1]))
os.rename("port.new", "port")
while True:
    connection, _ = listener.accept()
    connection.sendall(sys.argv[1].encode())
    connection.close()
"""


@dataclass(frozen=True)
class Say:
    """Print a line."""

    text: str
    stream: str = "out"

    def __str__(self) -> str:
        return f"echo {shlex.quote(self.text)}" + (" >&2" if self.stream == "err" else "")


@dataclass(frozen=True)
class Make:
    """Write a file."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"printf %s {shlex.quote(self.text)} > {shlex.quote(self.path)}"


@dataclass(frozen=True)
class Await:
    """Wait until somebody put a file there."""

    path: str

    def __str__(self) -> str:
        return f"while [ ! -e {shlex.quote(self.path)} ]; do sleep 0.05; done"


@dataclass(frozen=True)
class Serve:
    """Say something to whoever connects, at the port that the file `port` names, to the end."""

    text: str

    def __str__(self) -> str:
        code = shlex.quote(_SERVE)
        return f"python3 -c {code} {shlex.quote(self.text)} & trap 'kill {'$'}!' EXIT"


@dataclass(frozen=True)
class Exit:
    code: int

    def __str__(self) -> str:
        return f"exit {self.code}"


Step = Say | Make | Await | Serve | Exit


class Script:
    def __init__(self, *steps: Step) -> None:
        self.steps = steps

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))
