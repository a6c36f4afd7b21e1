"""The way to a node's ports is open to those who know the secret in the job's folder, only."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from towline.agent.remote.run import relay

from .driver import AgentError, Driver

SECRET = b"s" * 32


@pytest.fixture
def port() -> Iterator[int]:
    """One that answers every connection with a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"hello from inside")

        thread = threading.Thread(target=serve)
        thread.start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(20)


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Callable[[], socket.socket]]:
    """A connection to the relay, as one who comes over the network has it."""
    server = relay.Relay(str(tmp_path), 0, (0, 0))
    server.secret = SECRET
    threads, sockets = [], []

    def knock() -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.settimeout(20)
        sockets.append(ours)
        server.free.acquire()
        threads.append(threading.Thread(target=server.serve, args=(theirs,)))
        threads[-1].start()
        return ours

    yield knock
    for each in sockets:
        each.close()
    for thread in threads:
        thread.join(20)


def received(connection: socket.socket) -> bytes:
    data = b""
    while piece := connection.recv(65536):
        data += piece
    return data


def test_who_knows_the_secret_is_let_through(door: Callable[[], socket.socket], port: int) -> None:
    connection = door()
    challenge = connection.recv(relay.CHALLENGE)
    connection.sendall(relay.answer_to(challenge, SECRET, port))
    assert received(connection) == b"\0hello from inside"


def test_who_does_not_is_turned_away_without_a_word(
    door: Callable[[], socket.socket], port: int
) -> None:
    connection = door()
    challenge = connection.recv(relay.CHALLENGE)
    connection.sendall(relay.answer_to(challenge, b"x" * 32, port))
    assert received(connection) == b""


def test_an_answer_holds_for_one_connection_and_one_port(
    door: Callable[[], socket.socket], port: int
) -> None:
    first = door()
    answer = relay.answer_to(first.recv(relay.CHALLENGE), SECRET, port)
    second = door()
    second.recv(relay.CHALLENGE)
    second.sendall(answer)
    assert received(second) == b""
    first.sendall(relay.PORT.pack(port ^ 1) + answer[relay.PORT.size :])
    assert received(first) == b""


def test_a_port_that_nobody_serves_is_refused(door: Callable[[], socket.socket], port: int) -> None:
    connection = door()
    with socket.create_server(("127.0.0.1", 0)) as unused:
        free = unused.getsockname()[1]
    connection.sendall(relay.answer_to(connection.recv(relay.CHALLENGE), SECRET, free))
    assert received(connection) == b"\1"


def test_the_agent_asks_for_a_way_and_then_takes_it(
    agent: Driver, root: Path, door: Callable[[], socket.socket], port: int
) -> None:
    """The job runs elsewhere, as its folder says."""
    folder = root / "jobs" / "k"
    folder.mkdir(parents=True)
    (folder / "elsewhere").touch()
    with pytest.raises(AgentError) as refused:
        agent.call("dial", stream=1, key="k", port=port)
    assert refused.value.code == "opening" and (folder / "relay.wanted").exists()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        about = {"host": "localhost", "port": listener.getsockname()[1], "secret": SECRET.hex()}
        (folder / "relay").write_text(json.dumps(about))
        number = agent.ask("dial", stream=2, key="k", port=port)
        outside, _ = listener.accept()
        inside = door()
        for source, target in ((outside, inside), (inside, outside)):
            threading.Thread(target=relay.copy, args=(source, target), daemon=True).start()
        agent.reply(number)
        data = b""
        while data != b"hello from inside":
            data += agent.wait_for(lambda: agent.pop(lambda h: h.get("stream") == 2))[1]
        outside.close()


def test_the_agent_is_told_when_it_is_turned_away(agent: Driver, root: Path, port: int) -> None:
    folder = root / "jobs" / "k"
    folder.mkdir(parents=True)
    (folder / "elsewhere").touch()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        about = {"host": "localhost", "port": listener.getsockname()[1], "secret": SECRET.hex()}
        (folder / "relay").write_text(json.dumps(about))
        number = agent.ask("dial", stream=2, key="k", port=port)
        outside, _ = listener.accept()
        outside.sendall(b"c" * relay.CHALLENGE)
        outside.close()
        with pytest.raises(AgentError) as refused:
            agent.reply(number)
    assert refused.value.code == "refused"
