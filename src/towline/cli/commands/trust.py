"""`tow trust`: whether a project's file may decide what runs where."""

from __future__ import annotations

import os
import time

from towline.cli.cwd import whole_path
from towline.cli.options import Parser
from towline.cli.session import open_session
from towline.cli.terminal import printable, say, say_json
from towline.cli.terminal.table import show_table
from towline.cli.terminal.wording import ago
from towline.cli.trusting import wishes
from towline.client.transport import with_query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.client.session import Session

EXAMPLES = """
tow trust
tow trust --show
tow trust --list
tow trust --revoke ~/src/project
"""
FILE = "towline.toml"


def parser() -> Parser:
    parser = Parser(
        "trust",
        "[--show | --list | --revoke] [--json] [FOLDER]",
        "Let the towline.toml of a folder decide what runs where: its clusters, set-up text,\n"
        "variables and defaults. It is trusted as it is now; once it says something else, you are\n"
        "asked again. What it says about which files travel counts without this.",
        EXAMPLES,
    )
    parser.add_argument("folder", nargs="?", metavar="FOLDER", help="where (default: here)")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--show", action="store_true", help="only show what it wants")
    chosen.add_argument("--list", action="store_true", help="list the files that are trusted")
    chosen.add_argument("--revoke", action="store_true", help="trust it no more")
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    session = open_session()
    folder = whole_path(options.folder or ".")
    if os.path.basename(folder) == FILE:
        folder = os.path.dirname(folder)
    if options.list:
        return _list(session, options.json)
    if options.revoke:
        done = session.call("POST", "/v1/trust/revoke", {"cwd": folder})
        _tell(done, options.json, f"trusted no more: {printable(done['file'])}")
        return 0
    if options.show:
        return _show(session, folder, options.json)
    project = session.call("POST", "/v1/trust", {"cwd": folder}, repeat=True)["project"]
    _tell(project, options.json, _trusted(project))
    return 0


def _tell(document: Any, json: bool, text: str) -> None:
    say_json(document) if json else say(text)


def _trusted(project: dict[str, Any]) -> str:
    if not project["settings"]:
        return f"{printable(project['file'])} needs no trust: it only says which files travel"
    return "\n".join([f"trusted: {printable(project['file'])}", *_wishes(project)])


def _wishes(project: dict[str, Any]) -> list[str]:
    return [f"  {line}" for line in wishes(project["settings"])]


def _show(session: Session, folder: str, json: bool) -> int:
    project = session.call("GET", with_query("/v1/trust", cwd=folder))["project"]
    if json:
        say_json(project)
    elif project is None:
        say(f"no {FILE} holds in {printable(folder)}")
    elif not project["settings"] or project["trusted"]:
        say(_trusted(project))
    else:
        say("\n".join([f"not trusted: {printable(project['file'])}", *_wishes(project)]))
    return 0


def _list(session: Session, json: bool) -> int:
    found = session.call("GET", "/v1/trust")
    if json:
        say_json({"trusted": found["trusted"]})
        return 0
    now = time.time()
    rows = [[printable(one["file"]), ago(one["at"], now)] for one in found["trusted"]]
    if rows:
        show_table(["FILE", "TRUSTED"], rows)
    else:
        say("no towline.toml is trusted")
    return 0
