"""`tow services`: what runs beside jobs, and where to look at it."""

from __future__ import annotations

from towline.cli.options import JOB_HELP, Parser
from towline.cli.session import open_session
from towline.cli.terminal import say, say_json
from towline.cli.terminal.table import show_table
from towline.client.names import job_number
from towline.client.transport import with_query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

COLOUR_OF = {"up": "green", "failed": "red", "unreachable": "yellow"}
EXAMPLES = """
tow services
tow services 12
"""


def parser() -> Parser:
    parser = Parser(
        "services",
        "[--json] [JOB]",
        "List the services of jobs that have not ended, such as TensorBoard, with their URLs.",
        EXAMPLES,
    )
    parser.add_argument("job", nargs="?", metavar="JOB", help=JOB_HELP)
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    session = open_session()

    def reached_with(seen: dict[str, Any]) -> str:
        """A team's server opens no port for it: a command here does."""
        return f"{session.typed} open {seen['job']} {seen['name']}" if seen["state"] == "up" else ""

    job = None if options.job is None else job_number(session, options.job)
    answer = session.call("GET", with_query("/v1/services", job=job))
    if options.json:
        say_json(answer)
    elif not answer["services"]:
        say("no services: tow run --service tensorboard COMMAND starts one")
    else:
        rows = [
            [
                str(seen["job"]),
                seen["name"],
                seen["machine"],
                (seen["state"], COLOUR_OF.get(seen["state"], "")),
                seen["text"] or seen["url"] or reached_with(seen),
            ]
            for seen in answer["services"]
        ]
        show_table(["JOB", "SERVICE", "MACHINE", "STATE", "URL"], rows)
    return 0
