"""`pit exec` and `pit forward`: beside a process of a running job."""

from __future__ import annotations

import re

from towline.cli.pit.failures import Failed
from towline.cli.pit.session import PitSession
from towline.cli.pit.typed.names import job_number
from towline.cli.terminal import say, write

TYPE_CHECKING = False
if TYPE_CHECKING:
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
    import threading

    from towline.cli.ports import lead, listen

    number = job_number(typed.words[0])
    wanted = pairs(typed.words[1:])
    if not wanted:
        raise Failed("Which port?", f"write it behind: pit forward {number} 6006")
    session = PitSession()
    worker = running_worker(session, number, typed)
    listening = []
    for here, there in wanted:
        listening.append((listen(here), there))
        say(f"Forwarding port {there} of worker {worker} to port {here} on localhost...")
    say("Hit Ctrl-C to stop forwarding.")
    for listener, there in listening:
        lead(listener, session, number, port=there, process=worker)
    threading.Event().wait()
