"""A stand-in for the Engine's API: canned answers on a unix socket, and what was asked."""

import json
import socket
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from towline.agent.frames import Unpacker
from towline.version import __version__

Frame = dict[str, Any] | tuple[dict[str, Any], bytes]


@dataclass
class Asked:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Answer:
    status: int = 200
    body: bytes = b"{}"
    #: Sent in chunks, cut at awkward places.
    pieces: list[bytes] | None = None
    #: Close the connection without the end of the body.
    broken: bool = False
    #: Wait for this before the end of the body.
    hold: threading.Event | None = None
    headers: dict[str, str] = field(default_factory=dict)


def answer(document: Any, status: int = 200) -> Answer:
    return Answer(status, json.dumps(document).encode())


def refusal(
    text: str, *, code: str = "usage", hint: str = "", exit: int = 2, **more: Any
) -> Answer:
    error = {"code": code, "text": text, "hint": hint, **more}
    return answer({"error": error, "exit": exit}, 409 if code == "version" else 400)


def stream(*frames: Frame, broken: bool = False, hold: threading.Event | None = None) -> Answer:
    return Answer(pieces=[_packed(frame) for frame in frames], broken=broken, hold=hold)


def out(
    text: str | bytes, offset: int = 0, *, stream: str = "out", label: str = "", process: int = 0
) -> Frame:
    blob = text.encode() if isinstance(text, str) else text
    header = {"stream": stream, "group": 0, "process": process, "label": label, "offset": offset}
    return header, blob


def job(id: int = 12, state: str = "running", **more: Any) -> dict[str, Any]:
    """The view of a job."""
    return {
        "id": id,
        "title": "train",
        "state": state,
        "exit_code": 0 if state == "done" else None,
        "cluster": "lab",
        "machines": ["gpu1"],
        "request": "[]",
        "submitted": 1000.0,
        "started": 1001.0,
        "ended": 1004.2 if state in ("done", "failed", "stopped", "lost") else None,
        "reason": "",
        "owner": "me",
        "command": ["python", "train.py"],
        "folder": "/home/me",
        "attempt": 1,
        "retries": 0,
        "priority": 0,
        **more,
    }


def batch(name: str = "sweep", count: int = 4, **more: Any) -> dict[str, Any]:
    """The view of a batch; `more` are numbers of jobs by state, and other fields."""
    states = ("queued", "starting", "running", "stopping", "done", "failed", "stopped", "lost")
    counts = {state: more.pop(state, 0) for state in states}
    over = sum(counts[state] for state in ("done", "failed", "stopped", "lost")) == count
    return {
        "name": name,
        "cluster": "lab",
        "owner": "me",
        "folder": "/home/me",
        "request": "[]",
        "submitted": 1000.0,
        "ended": 1012.5 if over else None,
        "count": count,
        "first": 12,
        "max_parallel": 0,
        "fail_fast": False,
        "stopped": False,
        "counts": counts,
        "rate": 0.0,
        "eta_s": None,
        "machines": {},
        "why": "",
        "home": True,
        "seq": 0,
        **more,
    }


def event(seq: int, number: int, state: str, text: str = "", **more: Any) -> list[Any]:
    """An event of the job with this number, which is of the line of the same number."""
    machine, gpus = more.get("machine", "h1"), more.get("gpus", [])
    kind, because = more.get("kind", "ended"), more.get("because", "told")
    reason = "" if text == state else text.removeprefix(f"{state}: ")
    about = [seq, 1000.0, number, number, state, machine, gpus, more.get("code")]
    return [*about, text, kind, because, reason]


def frame(*events: list[Any], view: dict[str, Any], over: bool = False) -> Frame:
    titles = {str(values[2]): f"cmd {values[3]}" for values in events}
    return {"events": list(events), "titles": titles, "batch": view, "over": over}


def _packed(frame: Frame) -> bytes:
    header, blob = frame if isinstance(frame, tuple) else (frame, b"")
    head = json.dumps(header).encode()
    return len(head).to_bytes(4, "big") + len(blob).to_bytes(4, "big") + head + blob


class Stub:
    """Answers each route in turn; the last answer given for a route is repeated."""

    def __init__(self, path: Path) -> None:
        self.asked: list[Asked] = []
        #: Many commands ask for batches beside jobs; most tests are about jobs.
        self._routes: dict[str, list[Answer]] = {"GET /v1/batches": [answer({"batches": []})]}
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(str(path))
        self._server.listen(32)
        self._threads: list[threading.Thread] = []
        self._holds: list[threading.Event] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def on(self, route: str, *answers: Answer) -> None:
        """`on("GET /v1/jobs", answer({...}))`."""
        self._routes[route] = list(answers)
        self._holds += [answer.hold for answer in answers if answer.hold]

    def asked_of(self, route: str) -> list[Asked]:
        method, path = route.split(" ", 1)
        return [asked for asked in self.asked if (asked.method, asked.path) == (method, path)]

    def close(self) -> None:
        for hold in self._holds:
            hold.set()
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._accepting.join(10)
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                asked = _read(connection)
                if asked:
                    self.asked.append(asked)
                    _send(connection, self._next(f"{asked.method} {asked.path}"))
            except (BrokenPipeError, ConnectionResetError):
                pass

    def _next(self, route: str) -> Answer:
        answers = self._routes.get(route)
        if not answers:
            return refusal(f"the stub has no answer to {route}", exit=99)
        return answers.pop(0) if len(answers) > 1 else answers[0]


def _read(connection: socket.socket) -> Asked | None:
    raw = b""
    while b"\r\n\r\n" not in raw:
        piece = connection.recv(65536)
        if not piece:
            return None
        raw += piece
    head, body = raw.split(b"\r\n\r\n", 1)
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += connection.recv(65536)
    if headers.get("transfer-encoding") == "chunked":
        body = _joined(connection, body)
    method, target, _ = first.split(" ")
    parts = urlsplit(target)
    query = {
        name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()
    }
    return Asked(method, unquote(parts.path), query, headers, body)


def _joined(connection: socket.socket, raw: bytes) -> bytes:
    """A body that comes in chunks."""
    while not raw.endswith(b"0\r\n\r\n"):
        raw += connection.recv(65536)
    body = b""
    while raw:
        size, _, rest = raw.partition(b"\r\n")
        body, raw = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return body


def unpacked(body: bytes) -> list[tuple[dict[str, Any], bytes]]:
    """The frames of a body."""
    return list(Unpacker().feed(body))


def _send(connection: socket.socket, answer: Answer) -> None:
    head = [f"HTTP/1.1 {answer.status} Whatever", f"Towline-Version: {__version__}"]
    head += [f"{name}: {value}" for name, value in answer.headers.items()]
    if answer.pieces is None:
        head += [f"Content-Length: {len(answer.body) + (10 if answer.broken else 0)}", "", ""]
        connection.sendall("\r\n".join(head).encode() + answer.body)
        return
    head += ["Transfer-Encoding: chunked", "", ""]
    connection.sendall("\r\n".join(head).encode())
    for piece in answer.pieces:
        # Frames and chunks have nothing to do with each other: cut each frame in two.
        for part in filter(None, (piece[:5], piece[5:])):
            connection.sendall(f"{len(part):x}\r\n".encode() + part + b"\r\n")
    if answer.hold:
        answer.hold.wait(60)
    if not answer.broken:
        connection.sendall(b"0\r\n\r\n")
