"""A worker as the program sees it: a job, and a connection to it, made again when it breaks."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from towline.client.events import events
from towline.client.job import FINAL, Job
from towline.client.transport import Gone
from towline.errors import HostError, NotFound, TowlineError
from towline.functions.remote.wire import (
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
    unpacked,
)

if TYPE_CHECKING:
    from towline.functions.payload import Payload

_SOON_S, _LATER_S = 0.05, 2.0
_CONNECTING_S = 60.0


class Call(Protocol):
    """What a worker is told of a call."""

    number: int
    payload: bytes


class Owner(Protocol):
    """Whoever has workers: asked for calls, told of results."""

    def ready(self, worker: Worker) -> None: ...

    def arrived(self, worker: Worker, call: Any, kind: bytes, payload: bytes) -> None: ...

    def over(self, worker: Worker) -> None: ...


class Worker:
    """One job that takes calls; a thread of it looks after the connection."""

    def __init__(self, owner: Owner, job: Job, payload: Payload, number: int) -> None:
        self.owner = owner
        self.job = job
        self._key = key_of(payload.key, number)
        self._place = f"{payload.inside}/{number}."
        #: Calls that it was given and whose results are not here, in their order.
        self.given: dict[int, Any] = {}
        self.was_ready = False
        #: Why it is no use any more, where its job does not say.
        self.error: TowlineError | None = None
        self._outbox: queue.SimpleQueue[tuple[bytes, int, bytes] | None] | None = None
        self._lock = threading.Lock()
        self._ending = False
        self._seen = 0
        self.thread = threading.Thread(target=self._live, name=f"worker {job.id}", daemon=True)

    def give(self, call: Call) -> None:
        """Send it a call; at once, or when it is connected again."""
        with self._lock:
            self.given[call.number] = call
            self._put(CALL, call.number, call.payload)

    def end(self) -> None:
        """Tell it that there is no more to do."""
        with self._lock:
            if not self._ending and not self.was_ready:
                # It may wait for a place for long: then it need not begin any more.
                threading.Thread(target=self.job.stop, daemon=True).start()
            self._ending = True
            self._put(END, 0, b"")

    def begun(self) -> set[int] | None:
        """The calls that it began in its life; None when nobody can tell."""
        try:
            return set(numbers_in(self.job.read(self._place + "begun")))
        except TowlineError:
            return None

    def kept(self) -> list[Frame]:
        """The results that it left behind because nobody was there."""
        try:
            return unpacked(self._key, self.job.read(self._place + "kept"))
        except (TowlineError, Forged):
            return []

    # --- its thread ---------------------------------------------------------------------------

    def _live(self) -> None:
        try:
            while (port := self._port()) is not None:
                self._converse(port)
        except TowlineError as error:
            self.error = error
        except Forged as error:
            self.error = TowlineError(
                f"what answers for job {self.job.id} is not its worker", str(error)
            )
        finally:
            self.owner.over(self)

    def _port(self) -> int | None:
        """A port here that leads to it; None when its job has ended."""
        pause_s = _SOON_S
        while self.job.refresh()["state"] not in FINAL:
            if self.job.facts["state"] == "running":
                # It has no port yet; or its machine is not reached now.
                with contextlib.suppress(NotFound, HostError, Gone):
                    there = int(self.job.read(self._place + "port"))
                    target = f"/v1/jobs/{self.job.id}/forward"
                    answer = self.job.session.call("POST", target, {"port": there}, repeat=True)
                    return int(answer["local"])
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _LATER_S)
            else:
                self._await_running()
        return None

    def _await_running(self) -> None:
        for event in events(self.job.session, since=self._seen, job=self.job.id):
            self._seen = event.seq
            if event.data.get("state") in ("running", *FINAL):
                return

    def _converse(self, port: int) -> None:
        """Talk to it until the connection is over."""
        channel = None
        try:
            connection = socket.create_connection(("127.0.0.1", port), timeout=_CONNECTING_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            channel = Channel(connection, self._key, is_worker=False)
            connection.settimeout(None)
            outbox = self._open_outbox()
            threading.Thread(target=_send_all, args=(outbox, channel), daemon=True).start()
            self.was_ready = True
            self.owner.ready(self)
            while True:
                self._heard(*channel.receive())
        except (Closed, OSError):
            # A moment for the Engine that comes back, or the job that ends.
            time.sleep(_SOON_S)
        finally:
            with self._lock:
                if self._outbox is not None:
                    self._outbox.put(None)
                self._outbox = None
            if channel is not None:
                channel.close()

    def _open_outbox(self) -> queue.SimpleQueue[tuple[bytes, int, bytes] | None]:
        """What is sent first: which calls are waited for."""
        with self._lock:
            outbox: queue.SimpleQueue[tuple[bytes, int, bytes] | None] = queue.SimpleQueue()
            self._outbox = outbox
            self._put(KNOWN, 0, named(self.given))
            if self._ending:
                self._put(END, 0, b"")
        return outbox

    def _put(self, kind: bytes, number: int, payload: bytes) -> None:
        if self._outbox is not None:
            self._outbox.put((kind, number, payload))

    def _heard(self, kind: bytes, number: int, payload: bytes) -> None:
        with self._lock:
            if kind == LACKING:
                for lacking in filter(self.given.__contains__, numbers_in(payload)):
                    self._put(CALL, lacking, self.given[lacking].payload)
                return
            self._put(HAVE, number, b"")
            call = self.given.pop(number, None)
        if call is not None:
            self.owner.arrived(self, call, kind, payload)


def _send_all(outbox: queue.SimpleQueue[tuple[bytes, int, bytes] | None], channel: Channel) -> None:
    with contextlib.suppress(Closed):
        while (frame := outbox.get()) is not None:
            channel.send(*frame)
