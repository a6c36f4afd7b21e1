"""`tow snapshots`: what git keeps of the dirty trees that were submitted."""

from __future__ import annotations

import time

from towline.cli.options import Parser
from towline.cli.session import open_session
from towline.cli.terminal import say, say_json
from towline.cli.terminal.table import show_table
from towline.cli.terminal.wording import ago
from towline.client.submission import this_folder
from towline.client.transport import with_query

EXAMPLES = """
tow snapshots
tow snapshots --prune 30d
"""


def parser() -> Parser:
    parser = Parser(
        "snapshots",
        "[--prune AGE] [--json]",
        "List the records towline/dirty/... of this repository: each is the exact version that\n"
        "jobs were submitted with from a dirty tree. They are not branches, and never pushed.",
        EXAMPLES,
    )
    parser.add_argument(
        "--prune", metavar="AGE", help="forget those older than this, e.g. 30d or 12h; 0: all"
    )
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    session, cwd = open_session(), this_folder()
    if options.prune is not None:
        body = {"cwd": cwd, "older_than": options.prune}
        done = session.call("POST", "/v1/snapshots/prune", body)
        if options.json:
            say_json(done)
        else:
            say("\n".join(f"forgot {name}" for name in done["forgotten"]) or "nothing to forget")
        return 0
    found = session.call("GET", with_query("/v1/snapshots", cwd=cwd))
    if options.json:
        say_json(found)
    elif not found["snapshots"]:
        say("no snapshots: jobs from a clean tree are found by their commit (tow show JOB)")
    else:
        now = time.time()
        show_table(
            ["RECORD", "COMMIT", "WHEN", "TITLE"],
            [
                [entry["branch"], entry["commit"][:10], ago(entry["at"], now), entry["title"]]
                for entry in found["snapshots"]
            ],
        )
    return 0
