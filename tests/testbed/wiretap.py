"""Listens on the Engine's socket: everything that commands send to it, byte for byte."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path


class Wiretap:
    def __init__(self, path: Path) -> None:
        #: All that was sent to the Engine.
        self.heard = bytearray()
        self._engine = path.with_suffix(".real")
        # A socket can be moved: those who know its new name still reach the Engine.
        path.rename(self._engine)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, what: object, *args: object) -> None:
        assert callable(what)
        thread = threading.Thread(target=what, args=args)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                engine = socket.socket(socket.AF_UNIX)
                engine.connect(str(self._engine))
                self._sockets += [client, engine]
                self._start(self._pass_on, client, engine, self.heard)
                self._start(self._pass_on, engine, client, bytearray())

    def _pass_on(self, source: socket.socket, target: socket.socket, heard: bytearray) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                heard += data
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def close(self, path: Path) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._engine.rename(path)
        for thread in self._threads:
            thread.join(10)
        for one in self._sockets:
            one.close()


@contextlib.contextmanager
def wiretapped(path: Path) -> Iterator[Wiretap]:
    """Between commands and the Engine whose socket this is."""
    tap = Wiretap(path)
    try:
        yield tap
    finally:
        tap.close(path)
