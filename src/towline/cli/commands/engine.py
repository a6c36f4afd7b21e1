"""`tow engine`: the background process behind `tow`."""

from __future__ import annotations

import time

from towline.cli.options import Parser
from towline.cli.session import open_session
from towline.cli.terminal import say, say_json, write
from towline.cli.terminal.wording import ago, count
from towline.errors import NotFound

EXAMPLES = """
tow engine
tow engine stop
tow engine log -n 100
"""
MOST_LOG = 1 << 20


def parser() -> Parser:
    parser = Parser(
        "engine",
        "[status | stop | log] [options]",
        "The Engine is the process in the background that every `tow` talks to. It starts and\n"
        "ends by itself; jobs never depend on it.",
        EXAMPLES,
    )
    parser.add_argument(
        "action", nargs="?", default="status", choices=["status", "stop", "log"], help="what to do"
    )
    parser.add_argument(
        "-n", metavar="N", dest="lines", type=int, default=40, help="lines of its log (40)"
    )
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    session = open_session()
    if options.action == "log":
        return _log(session.paths.log_file, options.lines)
    if options.action == "stop":
        stopped = session.retire()
        if options.json:
            say_json({"stopped": stopped})
        else:
            say("the Engine has ended; jobs go on" if stopped else "there is no Engine running")
        return 0
    about = session.running()
    if options.json:
        say_json(about)
    elif about is None:
        say("there is no Engine running; the next command starts one")
    else:
        since = ago(about["started"], time.time()) if about.get("started") else "earlier"
        jobs = count(about.get("jobs_active", 0), "active job")
        say(f"Engine {about.get('version')}, process {about.get('pid')}, started {since}")
        say(f"{jobs} · socket {session.paths.socket}")
    return 0


def _log(path: str, lines: int) -> int:
    try:
        with open(path, "rb") as log:
            log.seek(max(0, log.seek(0, 2) - MOST_LOG))
            last = log.read().splitlines(keepends=True)[-lines:] if lines > 0 else []
    except FileNotFoundError:
        raise NotFound("the Engine has written no log yet", f"it would be {path}") from None
    write(1, b"".join(last))
    return 0
