"""Machines that are far away: an ssh configuration in which every byte takes its time.

As a program it is a ProxyCommand: `far.py HOST PORT SECONDS` passes on what it gets so many
seconds later, in both directions, without limiting how much is on its way.
"""

import contextlib
import os
import selectors
import socket
import sys
import time
from collections import deque
from pathlib import Path

_PIECE = 1 << 18


def far_config(ssh_config: Path, round_trip_s: float, folder: Path) -> Path:
    """A copy of an ssh configuration in which all hosts are that far away."""
    proxy = f"{sys.executable} -S -E {__file__} %h %p {round_trip_s / 2}"
    far = folder / f"ssh_config.{round_trip_s * 1000:.0f}ms"
    far.write_text(f"{ssh_config.read_text()}\n  ProxyCommand {proxy}\n")
    return far


class _Pipe:
    """One direction: what was read, and when it is due on the other side."""

    def __init__(self, source: int, sink: int, delay_s: float) -> None:
        self.source = source
        self.sink = sink
        self.delay_s = delay_s
        self.on_its_way: deque[tuple[float, memoryview]] = deque()
        self.ended = False

    def read(self) -> None:
        piece = os.read(self.source, _PIECE)
        self.ended = not piece
        self.on_its_way.append((time.monotonic() + self.delay_s, memoryview(piece)))

    def is_due(self, now: float) -> bool:
        return bool(self.on_its_way) and self.on_its_way[0][0] <= now

    def write(self) -> bool:
        """Pass on what is due; False at the end."""
        due, piece = self.on_its_way.popleft()
        if not piece:
            return False
        try:
            written = os.write(self.sink, piece)
        except BlockingIOError:
            written = 0
        if written < len(piece):
            self.on_its_way.appendleft((due, piece[written:]))
        return True


def _wait(pipes: list[_Pipe], selector: selectors.BaseSelector) -> list[tuple[int, int]]:
    """Until something can be read, or what is due can be written; the ready descriptors."""
    now = time.monotonic()
    for pipe in pipes:
        wanted = {pipe.source: selectors.EVENT_READ * (not pipe.ended)}
        wanted[pipe.sink] = selectors.EVENT_WRITE * pipe.is_due(now)
        for fd, events in wanted.items():
            known = selector.get_map().get(fd)
            if known is None and events:
                selector.register(fd, events)
            elif known is not None and not events:
                selector.unregister(fd)
    due = [pipe.on_its_way[0][0] - now for pipe in pipes if pipe.on_its_way]
    later = [seconds for seconds in due if seconds > 0]
    return [(key.fd, events) for key, events in selector.select(min(later) if later else None)]


def main(host: str, port: str, delay_s: str) -> None:
    connection = socket.create_connection((host, int(port)), timeout=10)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setblocking(False)
    # One descriptor for each direction: each is looked at for one thing only.
    incoming, outgoing = connection.fileno(), os.dup(connection.fileno())
    os.set_blocking(1, False)
    pipes = [_Pipe(0, outgoing, float(delay_s)), _Pipe(incoming, 1, float(delay_s))]
    selector = selectors.PollSelector()
    while True:
        for fd, _ in _wait(pipes, selector):
            for pipe in pipes:
                if fd == pipe.source:
                    pipe.read()
                elif fd == pipe.sink and not pipe.write():
                    return


if __name__ == "__main__":
    # One end is gone, and so is the way.
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        main(*sys.argv[1:4])
