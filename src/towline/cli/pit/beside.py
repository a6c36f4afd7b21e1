"""`pit exec` and `pit forward`: beside a process of a running job."""

from __future__ import annotations

import re

from towline.cli.pit.failures import Failed
from towline.cli.pit.session import PitSession
from towline.cli.pit.typed.names import job_number
from towline.cli.terminal import say, write
from towline.errors import TowlineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

    from towline.cli.pit.typed.grammar import Typed

_PAIR = re.compile(r"(?:(\d{1,5}):)?(\d{1,5})")


def execute(typed: Typed) -> None:
    """A command's exit code is its own; this ends with 0 all the same."""
    number, command = job_number(typed.words[0]), typed.rest
    if not command:
        raise Failed(
            "There is no command to run", f"write it behind: pit exec {number} -- nvidia-smi"
        )
    session = PitSession()
    worker = running_worker(session, number, typed)
    body = {"argv": command, "process": worker}
    for header, blob in session.frames("POST", f"/v1/jobs/{number}/exec", body):
        if "stream" in header:
            write(1 if header["stream"] == "out" else 2, blob)
        elif "end" in header and header["end"].get("reason"):
            raise Failed(header["end"]["reason"])


def running_worker(session: PitSession, number: int, typed: Typed) -> int:
    worker = typed.options.get("worker", "0")
    job = session.call("GET", f"/v1/jobs/{number}")
    there = worker.isdecimal() and int(worker) < len(job["processes"])
    if job["state"] != "running" or not there:
        raise Failed("Worker not active", f"job {number} is {job['state']}")
    return int(worker)


def pairs(words: list[str]) -> list[tuple[int, int]]:
    """Ports here and there; `6006` is the same on both sides."""
    found = []
    for word in words:
        pair = _PAIR.fullmatch(word)
        if pair is None or not 0 < int(pair[2]) < 65536:
            raise Failed("Wrong port pair format", "write 6006, or HERE:THERE as in 8080:80")
        found.append((int(pair[1] or pair[2]), int(pair[2])))
    return found


def forward(typed: Typed) -> None:
    import socket
    import threading

    number = job_number(typed.words[0])
    wanted = pairs(typed.words[1:])
    if not wanted:
        raise Failed("Which port?", f"write it behind: pit forward {number} 6006")
    session = PitSession()
    worker = running_worker(session, number, typed)
    listening = []
    for here, there in wanted:
        try:
            listening.append((socket.create_server(("127.0.0.1", here)), there))
        except OSError as error:
            raise Failed(f"cannot listen on port {here}: {error.strerror}") from None
        say(f"Forwarding port {there} of worker {worker} to port {here} on localhost...")
    say("Hit Ctrl-C to stop forwarding.")
    for server, there in listening:
        where = f"/v1/jobs/{number}/connect?port={there}&process={worker}"
        threading.Thread(target=_serve, args=(session, server, where), daemon=True).start()
    threading.Event().wait()


def _serve(session: PitSession, server: socket.socket, where: str) -> None:
    import threading

    while True:
        connection, _ = server.accept()
        threading.Thread(target=_join, args=(session, connection, where), daemon=True).start()


def _join(session: PitSession, local: socket.socket, where: str) -> None:
    """Carry one connection, both ways, in one request."""
    from towline.cli.pit.joint import carry

    try:
        remote = session.connect()
    except TowlineError:
        return local.close()
    try:
        remote.settimeout(None)
        lines = [f"POST {where} HTTP/1.1", f"Host: {session.host}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in session.headers().items()]
        head = "\r\n".join([*lines, "Transfer-Encoding: chunked", "", ""])
        remote.sendall(head.encode("latin-1"))
        carry(local, remote)
    except OSError:
        pass  # either side may leave at any time
    finally:
        local.close()
        remote.close()
    return None
