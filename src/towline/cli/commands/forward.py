"""`tow forward`: a port of a job, reached from this machine."""

from __future__ import annotations

import signal
import time

from towline.cli.options import JOB_HELP, Parser
from towline.cli.session import open_session
from towline.cli.terminal import note, say, say_json
from towline.cli.terminal.table import show_table
from towline.cli.terminal.wording import FINAL
from towline.client.names import job_number
from towline.client.session import ApiError
from towline.client.transport import Gone
from towline.errors import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from types import FrameType
    from typing import Any

    from towline.client.session import Session

LOOK_EVERY_S = 2.0
EXAMPLES = """
tow forward 12 6006
tow forward 12 8888 --local 9999
tow forward -d 12 6006
tow forward --list
tow forward --stop 6006
"""


def parser() -> Parser:
    parser = Parser(
        "forward",
        "[options] JOB PORT",
        "Reach a port of a job, such as TensorBoard's, from this machine, until Ctrl-C.",
        EXAMPLES,
    )
    parser.add_argument("job", nargs="?", metavar="JOB", help=JOB_HELP)
    parser.add_argument(
        "port", nargs="?", type=_ports, metavar="PORT", help="the port over there; or HERE:PORT"
    )
    parser.add_argument(
        "--local", type=int, metavar="N", default=0, help="the port here (the same, or any free)"
    )
    parser.add_argument("-d", "--detach", action="store_true", help="return; it stays open")
    parser.add_argument("--list", action="store_true", help="list the open ones")
    parser.add_argument("--stop", type=int, metavar="N", help="close the one on port N here")
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    asking = parser()
    options = asking.read(args)
    session = open_session()
    if session.takes_home:
        return _through_server(asking, session, options)
    if options.list:
        return _list(session, options.json)
    if options.stop is not None:
        answer = session.call("DELETE", f"/v1/forwards/{options.stop}")
        say_json(answer) if options.json else say(f"port {options.stop} is closed")
        return 0
    if options.port is None:
        asking.error("which port of which job? tow forward JOB PORT")
    here, options.port = options.port
    options.local = options.local or here
    job = job_number(session, options.job)
    _warn_if_ended(session, job)
    if options.detach:
        _tell(job, options.port, _open(session, job, options.port, options.local), options.json)
        return 0
    return _stay(session, job, options)


def _through_server(asking: Parser, session: Session, options: Namespace) -> int:
    """A port of a job on a team's server: no Engine here would keep it open without us."""
    from towline.cli.ports import lead, listen, until_left

    if options.list or options.stop is not None or options.detach:
        asking.error("ports of a team's server are open while `tow forward` runs, and no longer")
    if options.port is None:
        asking.error("which port of which job? tow forward JOB PORT")
    here, port = options.port
    job = job_number(session, options.job)
    listener = listen(options.local or here)
    lead(listener, session, job, port=port)  # type: ignore[arg-type]
    _tell(job, port, listener.getsockname()[1], options.json)
    until_left()
    return 0


def _ports(text: str) -> tuple[int, int]:
    """`8000` or, as ssh has it, `9000:8000`; 0 here is for whoever opens it to choose."""
    from argparse import ArgumentTypeError

    here, _, there = text.rpartition(":")
    if not there.isdecimal() or not (here or "0").isdecimal():
        raise ArgumentTypeError(f"a port is a number, not {text!r}; or HERE:PORT")
    return int(here or 0), int(there)


def _warn_if_ended(session: Session, job: int) -> None:
    view = session.call("GET", f"/v1/jobs/{job}")
    if view["state"] in FINAL:
        note(f"job {job} has ended: whatever listens on its machine now is not the job")


def _tell(job: int, port: int, local: int, json: bool) -> None:
    if json:
        say_json({"job": job, "port": port, "local": local})
    else:
        say(f"http://localhost:{local} -> job {job} port {port}")


def _open(session: Session, job: int, port: int, local: int) -> int:
    body = {"port": port, "local": local}
    answer = session.call("POST", f"/v1/jobs/{job}/forward", body)
    return int(answer["local"])


def _list(session: Session, json: bool) -> int:
    answer = session.call("GET", "/v1/forwards")
    if json:
        say_json(answer)
    elif not answer["forwards"]:
        say("nothing is forwarded: tow forward JOB PORT")
    else:
        rows = [
            [str(entry[key]) for key in ("local", "job", "port")] for entry in answer["forwards"]
        ]
        show_table(["HERE", "JOB", "PORT"], rows)
    return 0


def _stay(session: Session, job: int, options: Namespace) -> int:
    """Keep it open, also over a restart of the Engine, until somebody ends us."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    local = _open(session, job, options.port, options.local)
    try:
        _tell(job, options.port, local, options.json)
        while True:
            time.sleep(LOOK_EVERY_S)
            if not _is_open(session, local):
                _open(session, job, options.port, local)
    except KeyboardInterrupt:
        return 0
    finally:
        try:
            session.call("DELETE", f"/v1/forwards/{local}")
        except ApiError:
            pass  # It was closed already, with its job.
        except EngineError:
            note(f"port {local} may still be open: tow forward --list")


def _is_open(session: Session, local: int) -> bool:
    try:
        forwards: list[dict[str, Any]] = session.call("GET", "/v1/forwards")["forwards"]
    except Gone:
        return False
    return any(entry["local"] == local for entry in forwards)


def _leave(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
