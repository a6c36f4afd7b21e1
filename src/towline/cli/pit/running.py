"""`pit run`: this folder, as it is now, becomes a job."""

from __future__ import annotations

import re

from towline.cli.pit import files
from towline.cli.pit.failures import Failed
from towline.cli.pit.session import PitSession
from towline.cli.pit.typed.names import job_number
from towline.cli.terminal import say
from towline.errors import Forbidden, Impossible, NotFound, RequestError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.cli.pit.typed.grammar import Typed

LONGEST_TITLE = 20
NOTHING_ASKED = (
    "No resources requested from cluster. Please provide them either through command line or "
    'through a ".pitrequest.txt" file in your project root.'
)
_NAME = r"[A-Za-z][A-Za-z0-9]*"
#: The ancestor's resources, and what Towline takes besides: `cpus=4`, `mem=10G`.
_RESOURCE = rf"(?:\d+:)?{_NAME}|[a-z_]+=[\w.]+"
_PROCESS = rf"\[(?:(?:{_RESOURCE})(?:,(?:{_RESOURCE}))*)?\]"
_REQUEST = re.compile(rf"(?:\d+:)?{_PROCESS}(?:,(?:\d+:)?{_PROCESS})*")


def run(typed: Typed) -> None:
    from towline.cli.pit.shapes import preamble
    from towline.cli.pit.version import keep_token_out, version_here
    from towline.client.submission import new_key
    from towline.config.paths import home_paths
    from towline.workspace.sending import Sender

    keep_token_out()
    version = version_here()
    request = requested(typed.word(1))
    ask = job_ask(typed, request, version.origin)
    session = PitSession()
    if "continue" in typed.options:
        ask["continued"] = _continued(session, typed.options["continue"])
    Sender(session, home_paths()).prepare(ask)
    try:
        job = session.submit_ask(ask, new_key())
    except RequestError as error:
        # It is written as it should be: no machine has so many.
        raise (error if "=" in request else Impossible(error.text)) from None
    shown = preamble(job["id"], version.shown, version.commit, version.lines, request)
    say("\n".join(shown))
    if "log" in typed.options:
        from towline.cli.pit.logs import print_log

        say("")
        print_log(session, job["id"])


def requested(typed: str | None) -> str:
    """What is asked of the cluster: as typed, or else as the project's file says."""
    request = typed if typed is not None else files.default_request()
    if not request:
        raise Failed(NOTHING_ASKED)
    if not _REQUEST.fullmatch(request):
        raise Failed("Problem parsing allocation", f"{request}: write it like 2:[8:gtx1070] or []")
    return request


def job_ask(typed: Typed, request: str, origin: str) -> dict[str, Any]:
    """What the server is asked to run."""
    from towline.client.submission import this_folder, umask

    title = typed.words[0]
    if len(title) > LONGEST_TITLE:
        raise Failed(f"Job title too long ({LONGEST_TITLE} characters max)")
    return {
        "argv": worker(typed.options.get("direct")),
        "cwd": this_folder(),
        "title": title,
        "request": request,
        "origin": origin,
        "private": "private" in typed.options,
        "ends_together": True,
        "results": False,
        # Whoever may read the job is not to be who submitted it.
        "exclude": [files.USER],
        "umask": umask(),
    }


def worker(direct: str | None) -> list[str]:
    """The command of every process: bash with the project's script, or what was typed instead."""
    import os

    place = os.path.join(os.path.dirname(os.path.abspath(__file__)), "remote", "worker.py")
    with open(place, encoding="utf-8") as file:
        source = file.read()
    return ["python3", "-c", source, *([] if direct is None else [direct])]


def _continued(session: PitSession, typed: str) -> int:
    number = job_number(typed)
    try:
        session.call("GET", f"/v1/jobs/{number}")
    except NotFound:
        raise Failed("The job to continue is not existing") from None
    except Forbidden:
        raise Failed("Continuing provided job not allowed for current user") from None
    return number
