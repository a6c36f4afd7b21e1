"""Ports of the machine are reached over the one channel."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .driver import AgentError, Driver

WINDOW = 1 << 20


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[socket.socket], None]], int]]:
    """Serves one connection with the given function; gives the port."""
    threads = []
    listeners = []

    def start(handle: Callable[[socket.socket], None]) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def run() -> None:
            connection, _ = listener.accept()
            with connection:
                handle(connection)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        return int(listener.getsockname()[1])

    yield start
    for thread in threads:
        thread.join(20)
    for listener in listeners:
        listener.close()


def echo(connection: socket.socket) -> None:
    while data := connection.recv(65536):
        connection.sendall(data)


def exchange(agent: Driver, stream: int, data: bytes) -> bytes:
    """Send all within the window, acknowledge what comes, until the other end closes."""
    sent, acknowledged, back, eof_sent = 0, 0, b"", False
    while True:
        while sent < len(data) and sent - acknowledged < WINDOW:
            piece = data[sent : sent + min(65536, WINDOW - (sent - acknowledged))]
            agent.send({"stream": stream}, piece)
            sent += len(piece)
        if sent == len(data) and not eof_sent:
            agent.send({"stream": stream, "eof": True})
            eof_sent = True
        header, piece = agent.wait_for(lambda: agent.pop(lambda h: h.get("stream") == stream))
        acknowledged += header.get("credit", 0)
        back += piece
        if piece:
            agent.send({"stream": stream, "credit": len(piece)})
        if header.get("close"):
            return back


def test_megabytes_go_through_and_come_back(agent: Driver, serve) -> None:  # type: ignore[no-untyped-def]
    agent.call("dial", stream=1, port=serve(echo))
    data = os.urandom(5 << 20)
    assert exchange(agent, 1, data) == data


def test_two_streams_do_not_mix(agent: Driver, serve) -> None:  # type: ignore[no-untyped-def]
    for stream in (1, 2):
        agent.call("dial", stream=stream, port=serve(echo))
    assert exchange(agent, 1, b"one") == b"one"
    assert exchange(agent, 2, b"two") == b"two"


def test_no_more_than_the_window_comes_unasked(agent: Driver, serve) -> None:  # type: ignore[no-untyped-def]
    def flood(connection: socket.socket) -> None:
        try:
            connection.sendall(bytes(8 * WINDOW))
        except OSError:
            pass

    agent.call("dial", stream=1, port=serve(flood))
    assert received(agent, WINDOW)[-1][0].get("more"), "it is held up, and says so"
    agent.call("observe", keys=[])
    assert agent.pop(lambda header: "stream" in header) is None
    # Over a long way the other side grants more than it has taken.
    agent.send({"stream": 1, "credit": 3 * WINDOW})
    received(agent, 3 * WINDOW)
    agent.call("observe", keys=[])
    assert agent.pop(lambda header: "stream" in header) is None
    agent.send({"stream": 1, "close": True})


def received(agent: Driver, size: int) -> list[tuple[dict[str, Any], bytes]]:
    """The frames of a stream that hold exactly so many bytes."""
    frames = []
    while sum(len(data) for _, data in frames) < size:
        frames.append(agent.wait_for(lambda: agent.pop(lambda header: "stream" in header)))
    assert sum(len(data) for _, data in frames) == size
    return frames


def credit_of(agent: Driver, at_least: int) -> int:
    """How much the agent allows in all, once it is this much."""
    total = 0
    while total < at_least:
        frame = agent.wait_for(lambda: agent.pop(lambda header: header.get("credit")))
        total += frame[0]["credit"]
    return total


def test_who_is_held_up_by_a_long_way_gets_a_wider_window(agent: Driver, serve) -> None:  # type: ignore[no-untyped-def]
    def take(connection: socket.socket) -> None:
        while connection.recv(65536):
            pass

    agent.call("dial", stream=1, port=serve(take))
    agent.send({"stream": 1}, bytes(WINDOW))
    assert credit_of(agent, WINDOW) == WINDOW
    for window in (WINDOW, 2 * WINDOW, 4 * WINDOW, 8 * WINDOW):
        agent.send({"stream": 1, "more": True})
        assert credit_of(agent, window) == window
    agent.send({"stream": 1, "more": True})
    agent.call("observe", keys=[])
    assert agent.pop(lambda header: "credit" in header) is None, "sixteen windows are enough"
    agent.send({"stream": 1, "close": True})


def test_a_port_that_takes_nothing_gets_no_wider_window(agent: Driver, serve) -> None:  # type: ignore[no-untyped-def]
    done = threading.Event()
    agent.call("dial", stream=1, port=serve(lambda connection: done.wait(20)))
    sent = 0
    # What the kernel takes for the port is passed on; the rest waits here.
    while sent < 64 * WINDOW:
        agent.send({"stream": 1}, bytes(WINDOW))
        sent += WINDOW
        agent.call("observe", keys=[])
        passed_on = 0
        while frame := agent.pop(lambda header: "credit" in header):
            passed_on += frame[0]["credit"]
        if passed_on < WINDOW // 2:
            break
    agent.send({"stream": 1, "more": True})
    agent.call("observe", keys=[])
    assert agent.pop(lambda header: "credit" in header) is None
    done.set()
    agent.send({"stream": 1, "close": True})


def test_a_closed_port_is_refused(agent: Driver) -> None:
    port = agent.call("free_port")["port"]
    with pytest.raises(AgentError) as refused:
        agent.call("dial", stream=1, port=port)
    assert refused.value.code == "refused"


@pytest.mark.parametrize("host", ["10.0.0.1", "example.org", "0.0.0.0", ""])
def test_only_the_machine_itself_can_be_dialled(agent: Driver, host: str) -> None:
    with pytest.raises(AgentError) as refused:
        agent.call("dial", stream=1, port=80, host=host)
    assert refused.value.code == "denied"


def test_localhost_is_also_the_address_of_version_six(agent: Driver) -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
        agent.call("dial", stream=1, port=listener.getsockname()[1], host="localhost")
        connection, _ = listener.accept()
        connection.close()
