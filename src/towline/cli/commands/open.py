"""`tow open`: a service of a job, in the browser."""

from __future__ import annotations

import os
import time

from towline.cli.options import Parser
from towline.cli.session import read_with_job
from towline.cli.terminal import note, say, say_json
from towline.client.transport import with_query
from towline.errors import NotFound, TowlineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.client.session import Session

LOOK_EVERY_S = 0.3
PATIENCE_S = 60.0
EXAMPLES = """
tow open 12
tow open last jupyter
"""


def parser() -> Parser:
    parser = Parser(
        "open",
        "[--json] JOB [NAME]",
        "Open a service of a job in the browser, once it answers; with no browser, or in a\n"
        "pipe, print its URL.",
        EXAMPLES,
    )
    parser.add_job()
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="which of them (default: the first)"
    )
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    options, session, job = read_with_job(parser(), args)
    seen = answering(session, job, options.name)
    if session.takes_home:
        return _through_server(session, seen, options.json)
    return _show(seen, options.json)


def _show(seen: dict[str, Any], json: bool) -> int:
    if json:
        say_json(seen)
    elif not os.isatty(1) or not _shown(seen["url"]):
        say(seen["url"])
    else:
        note(f"opened {seen['url']}")
    return 0


def _through_server(session: Session, seen: dict[str, Any], json: bool) -> int:
    """A service of a job on a team's server is reached while this command runs."""
    from towline.cli.ports import lead, listen, until_left

    listener = listen(0)
    lead(listener, session, seen["job"], service=seen["name"])  # type: ignore[arg-type]
    local = listener.getsockname()[1]
    _show({**seen, "local": local, "url": f"http://localhost:{local}{seen['path']}"}, json)
    note("Ctrl-C ends it")
    until_left()
    return 0


def answering(session: Session, job: int, name: str | None) -> dict[str, Any]:
    """The service, once it is up."""
    until = time.monotonic() + PATIENCE_S
    told = False
    while True:
        seen = _one(session.call("GET", with_query("/v1/services", job=job))["services"], name)
        if seen["state"] == "up":
            return seen
        where = f"{seen['name']} of job {job}"
        if seen["state"] == "failed":
            raise TowlineError(
                f"{where} does not run: {seen['text']}",
                f"what it printed: tow log --service {seen['name']} {job}",
            )
        if time.monotonic() > until:
            text = f" ({seen['text']})" if seen["text"] else ""
            raise TowlineError(
                f"{where} is {seen['state']}{text} and does not answer", f"tow services {job}"
            )
        if not told:
            note(f"{where} is {seen['state']}; waiting until it answers")
            told = True
        time.sleep(LOOK_EVERY_S)


def _one(services: list[dict[str, Any]], name: str | None) -> dict[str, Any]:
    for seen in services:
        if name in (None, seen["name"]):
            return seen
    names = ", ".join(seen["name"] for seen in services)
    raise NotFound(f"the job has no service {name!r}", f"it has: {names}")


def _shown(url: str) -> bool:
    """True when a browser took it; one inside the terminal does not count."""
    import sys
    import webbrowser

    screens = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    if sys.platform != "darwin" and not any(os.environ.get(name) for name in screens):
        return False
    try:
        return webbrowser.open(url)
    except webbrowser.Error:
        return False
