"""`tow gc`: remove what ended jobs left on machines."""

from __future__ import annotations

from towline.cli.options import Parser
from towline.cli.session import open_session
from towline.cli.terminal import say, say_json, tell
from towline.cli.terminal.table import show_table
from towline.cli.terminal.wording import count, size
from towline.model.names import shown_cluster

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EXAMPLES = """
tow gc --dry-run
tow gc
tow gc --all
"""


def parser() -> Parser:
    parser = Parser(
        "gc",
        "[--all] [--dry-run] [--json]",
        "Remove what is no longer needed: the folders of jobs that ended long ago, and contents\n"
        "that no job refers to. Never what has not ended or has results that are not home yet.\n"
        "This happens by itself once a day; [cleanup] in the configuration says after how long.",
        EXAMPLES,
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="the folders of all jobs that have ended and whose results are home, now",
    )
    parser.add_argument("--dry-run", action="store_true", help="only show what would go")
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    wish = {"dry_run": options.dry_run, "everything": options.all}
    done = open_session().call("POST", "/v1/gc", wish, repeat=True)
    silent = [machine for machine in done["machines"] if machine["error"]]
    if options.json:
        say_json(done)
    else:
        _show(done)
        for machine in silent:
            tell(f"tow: {machine['error']}")
            if machine["hint"]:
                tell(f"  {machine['hint']}")
    return 1 if silent else 0


def _show(done: dict[str, Any]) -> None:
    rows = [_row(one) for one in done["machines"] if one["folders"] or not one["error"]]
    if rows:
        show_table(["MACHINE", "JOB FOLDERS", "SNAPSHOTS", "SIZE"], rows)
    here = done["here"]
    word = "would go" if done["dry_run"] else "went"
    total = here["bytes"] + sum(machine["bytes"] for machine in done["machines"])
    if here["blobs"]:
        text = f"{count(here['blobs'], 'content')}, {size(here['bytes'])}"
        say(f"snapshots kept here: {text}")
    say(f"{size(total)} {word}" if total else f"nothing {word}")


def _row(machine: dict[str, Any]) -> list[str]:
    folders = machine["folders"]
    return [
        shown_cluster(machine["machine"]),
        f"{folders} of {count(len(machine['jobs']), 'job')}" if folders else "0",
        str(machine["snapshots"]),
        size(machine["bytes"]),
    ]
