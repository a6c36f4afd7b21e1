"""A machine whose agent says whatever a test wants: for what becomes of it here."""

import asyncio
import json
import sys
from typing import Any

import pytest

from towline.agent.link import Link
from towline.errors import HostError, Unreachable

HELLO = {"event": "hello", "time": 0, "root": "/nowhere", "user": "me", "cpus": 4}
#: It answers each operation with what `says` has for it, and then says what is to come after that.
#: In an answer, "KEY" stands for every key that was asked for.
AGENT = r"""
import base64, io, json, struct, sys, time, zlib
says, size, *words = sys.argv[1:]
says = json.loads(says)
early = io.BytesIO(zlib.decompress(base64.b64decode("".join(words))))
early.seek(int(size))
stdout = sys.stdout.buffer
def read(size):
    got = early.read(size)
    return got + sys.stdin.buffer.read(size - len(got))
def say(header):
    raw = header.encode("latin-1") if isinstance(header, str) else json.dumps(header).encode()
    stdout.write(struct.pack(">II", len(raw), 0) + raw)
    stdout.flush()
def filled(answer, keys):
    if isinstance(answer, dict) and "KEY" in answer:
        return {key: answer["KEY"] for key in keys}
    if isinstance(answer, dict):
        return {name: filled(value, keys) for name, value in answer.items()}
    return answer
stdout.write(b"TOWLINE1 have\n")
hello = says["hello"]
if isinstance(hello, dict) and hello.get("time") == 0:
    hello["time"] = time.time()
say(hello)
while True:
    head = read(8)
    if len(head) < 8:
        break
    size, rest = struct.unpack(">II", head)
    asked = json.loads(read(size))
    read(rest)
    answer = says["answers"].get(asked["op"], {})
    keys = asked.get("keys") or [job["key"] for job in asked.get("jobs", ())]
    say(dict(filled(answer, keys), re=asked["id"]))
    for event in says["after"].get(asked["op"], ()):
        say(event)
"""


class HostileHost:
    """`answers` and `after` are by operation; a `str` is sent as it is, in place of JSON."""

    def __init__(self, name: str = "evil") -> None:
        self.name = name
        self.hello: Any = dict(HELLO)
        self.answers: dict[str, Any] = {
            "probe": {"raw": {}},
            "observe": {"states": {"KEY": {"state": "unknown"}}},
            "void": {"states": {"KEY": {"state": "unknown"}}},
        }
        self.after: dict[str, list[Any]] = {}
        #: How often it was called.
        self.dials = 0

    async def prepare(self) -> None:
        self.dials += 1

    def channel(self, boot: str, *arguments: str) -> list[str]:
        says = {"hello": self.hello, "answers": self.answers, "after": self.after}
        return [sys.executable, "-I", "-S", "-c", AGENT, json.dumps(says), *arguments]

    def failure(self, returncode: int | None, stderr: str) -> HostError:
        return Unreachable(f"{self.name}: {stderr[-500:]}")

    def login(self) -> list[str] | None:
        return ["ssh", self.name]


def watch_processes(monkeypatch: pytest.MonkeyPatch) -> list[asyncio.SubprocessTransport]:
    """Every process that links start from now on: a test leaves none behind."""
    found: list[asyncio.SubprocessTransport] = []
    made = Link.connection_made

    def connection_made(link: Link, transport: asyncio.SubprocessTransport) -> None:
        found.append(transport)
        made(link, transport)

    monkeypatch.setattr(Link, "connection_made", connection_made)
    return found
