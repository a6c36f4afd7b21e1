"""`tow why`: why a job waits."""

from __future__ import annotations

from towline.cli.jobs import read_with_job
from towline.cli.options import Parser
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
    parser.add_job()
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    options, engine, job = read_with_job(parser(), args)
    answer = engine.call("GET", f"/v1/jobs/{job}/why")
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
