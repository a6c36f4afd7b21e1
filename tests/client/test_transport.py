"""Waiting for the Engine keeps nobody from being heard."""

import os
import signal
import threading
import time
from _socket import AF_UNIX, SOCK_STREAM, socket, socketpair
from collections.abc import Iterator

import pytest

from towline.client import transport
from towline.client.transport import Reply


class Pressed(Exception):
    pass


def pressed(*_: object) -> None:
    raise Pressed


@pytest.fixture
def reply() -> Iterator[tuple[Reply, socket]]:
    """An answer of which nothing but the head has come, and its other end."""
    ours, theirs = socketpair(AF_UNIX, SOCK_STREAM)
    theirs.send(b"HTTP/1.1 200 OK\r\n\r\n")
    with Reply(ours) as reply:
        yield reply, theirs
    theirs.close()


def test_a_signal_that_interrupts_no_call_is_heard_all_the_same(
    reply: tuple[Reply, socket],
) -> None:
    before = signal.signal(signal.SIGUSR2, pressed)
    # As if it came between the last look for signals and the call that waits: that goes on.
    signal.siginterrupt(signal.SIGUSR2, False)
    me = threading.get_native_id()
    over = threading.Event()

    def press() -> None:
        while not over.wait(0.05):
            if _waits(me):
                os.kill(os.getpid(), signal.SIGUSR2)
                return

    def free() -> None:
        """Whoever does not hear it waits for ever: the end of the answer frees it."""
        over.set()
        theirs.shutdown(2)

    answer, theirs = reply
    freed = threading.Timer(30, free)
    pressing = threading.Thread(target=press)
    pressing.start()
    freed.start()
    try:
        with pytest.raises(Pressed):
            answer.read()
        assert not over.is_set()
    finally:
        over.set()
        freed.cancel()
        pressing.join()
        signal.signal(signal.SIGUSR2, before)


def test_a_deadline_longer_than_a_look_is_kept(
    reply: tuple[Reply, socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "LOOK_UP_S", 0.01)
    reply[0].deadline = began = time.monotonic() + 0.05
    with pytest.raises(TimeoutError):
        reply[0].read()
    assert time.monotonic() >= began


def _waits(thread: int) -> bool:
    """Whether a thread is in a call that waits."""
    with open(f"/proc/self/task/{thread}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "S"
