"""Machines without a process: what they say goes straight into the Engine's end of the channel."""

import asyncio
import json
import struct
from collections.abc import Callable
from typing import Any, cast

from towline.agent.frames import encode_json
from towline.agent.link import Link
from towline.errors import HostError, Unreachable

HEAD = struct.Struct(">II")
HELLO = {"event": "hello", "time": 1.8e9, "root": "/x", "user": "me", "cpus": 8}
RAW = {
    "time": 1.8e9,
    "meminfo": "MemTotal: 16000000 kB\nMemAvailable: 15000000 kB\n",
    "stat": "cpu 1 1 1 1 1 1 1 1",
    "loadavg": "0.1 0.1 0.1 1/100 1",
    "jobs": {},
}


def frame(header: Any, blob: bytes = b"") -> bytes:
    body = header if isinstance(header, bytes) else encode_json(header)
    return HEAD.pack(len(body), len(blob)) + body + blob


class Pipe:
    """The process behind a link, as far as the link looks at it: both its ends at once."""

    def __init__(self, link: Link, machine: "Machine") -> None:
        self.link = link
        self.machine = machine
        self.buffer = bytearray()
        self.over = False

    def get_pipe_transport(self, _fd: int) -> "Pipe":
        return self

    def get_returncode(self) -> int | None:
        return 0 if self.over else None

    def is_closing(self) -> bool:
        return self.over

    def terminate(self) -> None:
        self.close()

    def close(self) -> None:
        if not self.over:
            self.over = True
            asyncio.get_running_loop().call_soon(self.link.connection_lost, None)

    def say(self, data: bytes) -> None:
        if not self.over:
            self.link.pipe_data_received(1, data)

    def write(self, data: bytes) -> None:
        if self.link._unpacker is None:
            return  # the code of the agent
        self.buffer += data
        while len(self.buffer) >= HEAD.size:
            size, blob = HEAD.unpack_from(self.buffer)
            if len(self.buffer) < HEAD.size + size + blob:
                return
            asked = json.loads(bytes(self.buffer[HEAD.size : HEAD.size + size]))
            del self.buffer[: HEAD.size + size + blob]
            asyncio.get_running_loop().call_soon(self.machine.asked, self, asked)


class Machine:
    """A host; what it answers is up to `asked`."""

    def __init__(self, name: str) -> None:
        self.name = self.place = name
        self.hello: Any = HELLO
        self.pipe: Pipe | None = None

    async def prepare(self) -> None: ...

    def channel(self, boot: str, *arguments: str) -> list[str]:
        return []

    def failure(self, returncode: int | None, stderr: str) -> HostError:
        return Unreachable(f"{self.name}: the connection broke")

    def login(self) -> list[str] | None:
        return ["ssh", self.name]

    def target(self) -> tuple[str, ...]:
        return ("me", self.name, "22")

    def open(self, link: Link) -> None:
        self.pipe = pipe = Pipe(link, self)
        link.connection_made(cast("asyncio.BaseTransport", pipe))
        pipe.say(b"TOWLINE1 have\n")
        pipe.say(self.hello if isinstance(self.hello, bytes) else frame(self.hello))

    def asked(self, pipe: Pipe, asked: dict[str, Any]) -> None:
        raise NotImplementedError


class Honest(Machine):
    """Every job that it is given runs at once and ends well."""

    def asked(self, pipe: Pipe, asked: dict[str, Any]) -> None:
        answer: dict[str, Any] = {}
        if asked["op"] == "probe":
            answer = {"raw": RAW}
        elif asked["op"] in ("observe", "void"):
            answer = {"states": {key: {"state": "unknown"} for key in asked["keys"]}}
        pipe.say(frame({**answer, "re": asked["id"]}))
        if asked["op"] == "start":
            keys = [job["key"] for job in asked["jobs"]]
            started = [[key, 1, 1.8e9] for key in keys]
            ended = [[key, {"code": 0, "started": 1.8e9, "ended": 1.8e9}] for key in keys]
            pipe.say(frame({"event": "jobs", "started": started, "ended": ended}))


class Evil(Machine):
    """Says what it is given to say, in answers and unasked, with the keys that are asked for."""

    def __init__(self, name: str, keys: Callable[[], list[str]]) -> None:
        super().__init__(name)
        self.keys = keys
        #: What it answers, by operation, and how many messages it has sent.
        self.answers: dict[str, list[Any]] = {}
        self.sent = 0

    def open(self, link: Link) -> None:
        self.sent += 1
        super().open(link)

    def asked(self, pipe: Pipe, asked: dict[str, Any]) -> None:
        waiting = self.answers.get(asked["op"]) or [{}]
        answer = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if answer == "KNOWN":
            answer = {"states": {key: {"state": "running"} for key in asked["keys"]}}
        self.say(pipe, {**answer, "re": asked["id"]} if isinstance(answer, dict) else answer)

    def say(self, pipe: Pipe | None, message: Any) -> None:
        if pipe is not None and not pipe.over:
            self.sent += 1
            if isinstance(message, bytes):
                pipe.say(message)
            else:
                pipe.say(frame(self.filled(message)))

    def filled(self, message: Any) -> Any:
        """With real keys where a made-up one stands."""
        keys = self.keys()
        if isinstance(message, str):
            made_up = keys and message in ("KEY0", "KEY1", "KEY2", "KEY3")
            return keys[int(message[3:]) % len(keys)] if made_up else message
        if isinstance(message, list | tuple):
            return [self.filled(one) for one in message]
        if isinstance(message, dict):
            return {self.filled(name): self.filled(value) for name, value in message.items()}
        return message
