"""Bad input never ends the agent, unless the stream cannot be followed any more."""

import json
import os
import random
import select
import struct
from typing import Any

import pytest

from towline.agent.frames import Unpacker
from towline.agent.remote import frames

from .driver import HEAD, AgentError, Driver


def raw(text: bytes, blob: bytes = b"") -> bytes:
    return HEAD.pack(len(text), len(blob)) + text + blob


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"5", b"null", b"\xff\xfe", b"[" * 100_000, b'{"id": 1, "op": NaN']
)
def test_a_header_that_is_no_object_is_refused(agent: Driver, text: bytes) -> None:
    agent.send_raw(raw(text))
    with pytest.raises(AgentError) as refused:
        agent.reply(None)
    assert refused.value.code == "bad_frame"
    assert agent.run("a", "true")["code"] == 0


def test_nonsense_requests_are_refused_one_by_one(agent: Driver) -> None:
    nonsense = [None, 5, "x", [], {}, -1, 1e99, [None], {"a": []}, True]
    operations = "start exec go stop void observe forget read cancel list stat get put walk"
    operations += " missing blob snapshot have_snapshot watch dial nope"
    names = "jobs keys key path offset limit stream ids hash id entries every_s port argv new_key"
    chance = random.Random(1)
    for operation in operations.split():
        for _ in range(20):
            fields = {name: chance.choice(nonsense) for name in names.split() if name != "id"}
            number = agent.ask(operation, b"blob", **fields)
            try:
                agent.reply(number)
            except AgentError:
                pass
    for header in ({"stream": []}, {"stream": {}}, {"stream": 5, "credit": "x"}, {"op": {}}):
        agent.send(header)
    assert agent.run("a", "true")["code"] == 0


def test_a_frame_in_single_bytes_is_a_frame(agent: Driver) -> None:
    for byte in raw(json.dumps({"id": 77, "op": "observe", "keys": []}).encode()):
        os.write(agent.stdin.fileno(), bytes([byte]))
    assert agent.reply(77)[0]["states"] == {}


@pytest.mark.parametrize("head", [(1 << 31, 0), (2, (8 << 20) + 1)])
def test_an_impossible_size_ends_the_connection_but_not_the_jobs(
    agent: Driver, head: tuple[int, int]
) -> None:
    agent.start("a", "sleep", "300")
    agent.wait_for(lambda: "a" in agent.started)
    agent.send_raw(struct.pack(">II", *head))
    header, _ = agent.wait_for(lambda: agent.pop(lambda h: h.get("event") == "error"))
    assert header["code"] == "protocol"
    with pytest.raises(EOFError):
        agent.wait_for(lambda: False)
    os.kill(agent.started["a"][0], 0)
    os.kill(agent.started["a"][0], 15)
    agent.process.wait(30)  # whoever stayed for it goes with it


def test_goodbye_ends_the_agent(agent: Driver) -> None:
    agent.call("bye")
    assert agent.process.wait(20) == 0


@pytest.mark.parametrize("most", [1000, 70_000, 1 << 20])
def test_long_and_short_frames_arrive_as_they_were_however_they_are_cut(most: int) -> None:
    chance = random.Random(most)
    sizes = (0, 10, 70_000, 300_000, 5, 64 << 10, 0)
    sent = [({"n": n}, chance.randbytes(size)) for n, size in enumerate(sizes)]
    read, write = os.pipe()
    os.set_blocking(write, False)
    outbox, there, here = frames.FrameQueue(write), frames.Decoder(), Unpacker()
    for header, blob in sent:
        outbox.add_frame(header, blob)
    got_there: list[Any] = []
    got_here: list[Any] = []
    done = False
    while not done:
        done = outbox.flush()
        # A pipe holds less than all of it: what did not fit is written later.
        while select.select([read], [], [], 0)[0]:
            data = os.read(read, chance.randint(1, most))
            got_there += there.feed(data)
            got_here += here.feed(data)
    assert outbox.size == 0
    assert [(header, bytes(blob)) for header, blob in got_there] == sent
    assert got_here == sent
    os.close(read)
    os.close(write)
