"""`tow why`: why a job waits."""

from __future__ import annotations

from towline.cli.engine import Engine
from towline.cli.jobs import job_number
from towline.cli.options import JOB_HELP, Parser
from towline.cli.table import show_table
from towline.cli.terminal import printable, say, say_json

EXAMPLES = """
tow why 12
tow why last --json
"""


def parser() -> Parser:
    parser = Parser(
        "why", "[--json] JOB", "Say why a job waits: the reason, machine by machine.", EXAMPLES
    )
    parser.add_argument("job", metavar="JOB", help=JOB_HELP)
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    engine = Engine()
    answer = engine.call("GET", f"/v1/jobs/{job_number(engine, options.job)}/why")
    if options.json:
        say_json(answer)
        return 0
    say("\n".join(map(printable, str(answer["text"]).splitlines())))
    machines = answer.get("machines") or []
    if machines:
        say("")
        rows = [[str(entry["machine"]), str(entry["reason"])] for entry in machines]
        show_table(["MACHINE", "REASON"], rows)
    return 0
