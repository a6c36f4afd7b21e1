"""A worker: it waits on a port of its machine for calls, does one after the other, and answers.

A connection may break and another one come: what was called stays called, results are kept until
the program says that it has them, and no call begins twice. Which calls have begun is in a file
beside it, so that whoever finds the worker dead knows which ones did not.
"""

import os
import queue
import signal
import socket
import threading

from .calling import called
from .wire import (
    CALL,
    END,
    HAVE,
    KNOWN,
    LACKING,
    Channel,
    Closed,
    Forged,
    Frame,
    key_of,
    named,
    numbers_in,
    own_key,
    packed,
)

PORT, BEGUN, KEPT = "port", "begun", "kept"
#: Nobody asked for anything so many times, and nobody is connected: the program is gone.
ALONE_S, ALONE_TIMES = 300.0, 2
_GREETING_S = 20.0


class Worker:
    def __init__(self, folder: str, number: int) -> None:
        self._folder = folder + f"/{number}."
        self._key = key_of(own_key(), number)
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_TRUNC
        self._begun = os.open(self._folder + BEGUN, flags, 0o600)
        self._calls: queue.SimpleQueue[tuple[int, bytes] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        #: Calls that came, and the results that nobody has yet.
        self._known: set[int] = set()
        self._results: dict[int, Frame] = {}
        self._channel: Channel | None = None

    def run(self) -> None:
        """Take calls until there are no more, or nobody is there who could want them."""
        server = socket.create_server(("127.0.0.1", 0), backlog=4)
        with open(self._folder + PORT + ".part", "w") as file:
            file.write(str(server.getsockname()[1]))
        os.replace(self._folder + PORT + ".part", self._folder + PORT)
        threading.Thread(target=self._listen, args=(server,), daemon=True).start()
        while (call := self._next()) is not None:
            os.write(self._begun, call[0].to_bytes(8, "big"))
            kind, payload = called(call[1])
            self._made((kind, call[0], payload))
        self._keep()

    def _next(self) -> tuple[int, bytes] | None:
        alone = 0
        while alone < ALONE_TIMES:
            try:
                return self._calls.get(timeout=ALONE_S)
            except queue.Empty:
                alone = alone + 1 if self._channel is None else 0
        return None

    def _keep(self) -> None:
        """Leave behind the results that nobody has: whoever comes back reads them from here."""
        with self._lock:
            left = list(self._results.values())
        if left:
            path = self._folder + KEPT
            with open(path + ".part", "wb") as file:
                for kind, number, payload in left:
                    file.write(packed(self._key, kind, number, payload))
            os.replace(path + ".part", path)

    def _made(self, frame: Frame) -> None:
        with self._lock:
            self._results[frame[1]] = frame
            self._answer(frame)

    def _answer(self, frame: Frame) -> None:
        if self._channel is None:
            return
        try:
            self._channel.send(*frame)
        except Closed:
            self._channel = None

    def _listen(self, server: socket.socket) -> None:
        while True:
            connection, _ = server.accept()
            # Each has a thread: who does not have the key keeps nobody waiting.
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(_GREETING_S)
        channel = None
        try:
            channel = Channel(connection, self._key, is_worker=True)
            connection.settimeout(None)
            with self._lock:
                self._channel = channel
            while True:
                self._heard(channel, *channel.receive())
        except (Closed, Forged, OSError):
            pass
        with self._lock:
            if channel is not None and self._channel is channel:
                self._channel = None
        if channel is not None:
            channel.close()

    def _heard(self, channel: Channel, kind: bytes, number: int, payload: bytes) -> None:
        with self._lock:
            if kind == CALL and number not in self._known:
                self._known.add(number)
                self._calls.put((number, payload))
            elif kind == HAVE:
                self._results.pop(number, None)
                self._known.discard(number)
            elif kind == KNOWN:
                # The program is back: calls of it never came, or their results; others arrived.
                wanted = numbers_in(payload)
                for had in self._results.keys() - set(wanted):
                    del self._results[had]
                    self._known.discard(had)
                channel.send(LACKING, 0, named(n for n in wanted if n not in self._known))
                for frame in [self._results[n] for n in wanted if n in self._results]:
                    channel.send(*frame)
            elif kind == END:
                self._calls.put(None)


def main(folder: str, number: int) -> None:
    # Ctrl-C is for the program; what it wants of its workers it tells them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Worker(folder, number).run()
    # Threads of the functions may go on; the worker does not wait for them.
    os._exit(0)
