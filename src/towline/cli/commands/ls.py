"""`tow ls`: a job's files."""

from __future__ import annotations

import stat
import time

from towline.cli.options import Parser
from towline.cli.patience import patience
from towline.cli.session import domain_in, open_session
from towline.cli.terminal import note, paint, printable, say, say_json
from towline.cli.terminal.table import show_table
from towline.cli.terminal.wording import size
from towline.client.names import job_number
from towline.client.transport import with_query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MARKS = {"folder": "/", "dir": "/", "d": "/", "link": "@", "l": "@"}
EXAMPLES = """
tow ls 12
tow ls 12 checkpoints -l
tow @team ls home
tow @team ls group:staff sets -l
"""


def parser() -> Parser:
    parser = Parser(
        "ls",
        "[options] JOB [PATH]",
        "List the files of a job, in the folder it runs in. On a team's server also of its data:\n"
        "home, shared, group:NAME or user:NAME in the place of JOB.",
        EXAMPLES,
    )
    parser.add_job()
    parser.add_argument("path", nargs="?", default="", metavar="PATH", help="a folder or file")
    parser.add_argument("-l", "--long", action="store_true", help="also mode, size and time")
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    session = open_session()
    if (data := domain_in(session, options.job)) is not None:
        from towline.cli.data.moving import listed

        answer = listed(data, options.path)
    else:
        job = job_number(session, options.job)
        with patience(session, job):
            answer = session.call("GET", with_query(f"/v1/jobs/{job}/files", path=options.path))
    if options.json:
        say_json(answer)
        return 0
    entries = answer["entries"]
    if options.long:
        _show_long(entries)
    elif entries:
        say("\n".join(_name(entry) for entry in entries))
    if answer.get("more"):
        note("there are more files than these; name a folder to see the rest")
    return 0


def _name(entry: dict[str, Any]) -> str:
    kind = MARKS.get(str(entry.get("kind")), "")
    name = printable(str(entry["name"]))
    return paint(name, "cyan", 1) + kind if kind == "/" else name + kind


def _show_long(entries: list[dict[str, Any]]) -> None:
    rows = []
    for entry in entries:
        moment = time.localtime(entry.get("mtime") or 0)
        name = str(entry["name"]) + MARKS.get(str(entry.get("kind")), "")
        bits = stat.filemode(_mode(entry.get("mode")))[1:]
        rows.append(
            [bits, size(entry.get("size") or 0), time.strftime("%Y-%m-%d %H:%M", moment), name]
        )
    show_table(["MODE", "SIZE", "CHANGED", "NAME"], rows)


def _mode(value: Any) -> int:
    return int(value, 8) if isinstance(value, str) else int(value or 0)
