"""A client that speaks to a real agent over pipes, for tests."""

import json
import os
import select
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HEAD = struct.Struct(">II")
REMOTE = Path(__file__).parents[2] / "src" / "towline" / "agent"
START = "import sys; sys.path.insert(0, {folder!r}); from remote.main import main; main({root!r})"
Frame = tuple[dict[str, Any], bytes]


class AgentError(Exception):
    def __init__(self, error: dict[str, str]) -> None:
        super().__init__(error["text"])
        self.code = error["code"]


class Driver:
    """One agent as a child process; `call` for replies, `events` collects the rest."""

    def __init__(
        self,
        root: Path,
        python: str = sys.executable,
        code: str = START,
        uid: int = 0,
        base: str = "",
        **env: str,
    ) -> None:
        self.root = root
        code = code.format(folder=str(REMOTE), root=str(root), uid=uid, base=base)
        self.process = subprocess.Popen(
            [python, "-B", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **env},
            bufsize=0,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.buffer = bytearray()
        self.number = 0
        self.frames: list[Frame] = []
        self.started: dict[str, tuple[int, float]] = {}
        self.ended: dict[str, dict[str, Any]] = {}
        self.end_count: dict[str, int] = {}
        self.held: set[str] = set()
        self.hello = self.wait_for(lambda: self.pop(lambda h: h.get("event") == "hello"))[0]

    # Frames

    def send(self, header: dict[str, Any], blob: bytes = b"") -> None:
        text = json.dumps(header).encode()
        self.send_raw(HEAD.pack(len(text), len(blob)) + text + blob)

    def send_raw(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self.stdin.fileno(), view) :]

    def ask(self, op: str, blob: bytes = b"", **fields: Any) -> int:
        self.number += 1
        self.send({"id": self.number, "op": op, **fields}, blob)
        return self.number

    def call(self, op: str, blob: bytes = b"", **fields: Any) -> dict[str, Any]:
        return self.call_blob(op, blob, **fields)[0]

    def call_blob(self, op: str, blob: bytes = b"", **fields: Any) -> Frame:
        return self.reply(self.ask(op, blob, **fields))

    def reply(self, number: int | None, seconds: float = 60) -> Frame:
        header, data = self.wait_for(lambda: self.pop(lambda h: h.get("re", 0) == number), seconds)
        if "error" in header:
            raise AgentError(header["error"])
        return header, data

    def pop(self, wanted: Any) -> Frame | None:
        for index, (header, _) in enumerate(self.frames):
            if wanted(header):
                return self.frames.pop(index)
        return None

    def receive(self, seconds: float) -> bool:
        """Take in what comes within `seconds`; False when the agent is gone."""
        ready, _, _ = select.select([self.stdout], [], [], seconds)
        if not ready:
            return True
        data = os.read(self.stdout.fileno(), 1 << 20)
        self.buffer += data
        while len(self.buffer) >= HEAD.size:
            json_size, blob_size = HEAD.unpack_from(self.buffer)
            middle = HEAD.size + json_size
            end = middle + blob_size
            if len(self.buffer) < end:
                break
            self.take(json.loads(self.buffer[HEAD.size : middle]), bytes(self.buffer[middle:end]))
            del self.buffer[:end]
        return bool(data)

    def take(self, header: dict[str, Any], blob: bytes) -> None:
        if header.get("event") != "jobs":
            self.frames.append((header, blob))
            return
        self.held.update(header["held"])
        for key, pid, at in header["started"]:
            self.started[key] = (pid, at)
        for key, ending in header["ended"]:
            self.ended[key] = ending
            self.end_count[key] = self.end_count.get(key, 0) + 1

    def wait_for(self, condition: Any, seconds: float = 60) -> Any:
        """The first true value of `condition`, taking in frames meanwhile."""
        until = time.monotonic() + seconds
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > until:
                raise AssertionError(f"nothing after {seconds} s; frames: {self.frames[:5]}")
            if not self.receive(0.1) and not condition():
                raise EOFError("the agent is gone")

    # Jobs

    def start(self, key: str, *argv: str, **fields: Any) -> None:
        answer = self.call("start", jobs=[{"key": key, "argv": list(argv), **fields}])
        for refusal in answer["refused"].values():
            raise AgentError(refusal)

    def end_of(self, *keys: str) -> dict[str, Any]:
        """The ending of the last of `keys`, once all have ended."""
        self.wait_for(lambda: all(key in self.ended for key in keys))
        return self.ended[keys[-1]]

    def run(self, key: str, *argv: str, **fields: Any) -> dict[str, Any]:
        self.start(key, *argv, **fields)
        return self.end_of(key)

    def output(self, key: str, stream: str = "out") -> bytes:
        """Everything the job wrote, as it comes, to its end."""
        data = b""
        while True:
            header, piece = self.call_blob(
                "read", key=key, stream=stream, offset=len(data), limit=262144, wait=True
            )
            data += piece
            if header["eof"]:
                return data

    def state(self, key: str) -> str:
        return str(self.call("observe", keys=[key])["states"][key]["state"])

    # The end

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.leave()

    def leave(self) -> None:
        """Hang up; the agent exits, its jobs go on."""
        self.stdin.close()
        try:
            self.process.wait(30)
        finally:
            self.stdout.close()
