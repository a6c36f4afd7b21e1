"""`tow exec`: a command beside a job."""

from __future__ import annotations

from towline.cli.commands.run import argv_of
from towline.cli.not_yet import check_terminal, say_input_is_lost
from towline.cli.options import Parser, split_command
from towline.cli.session import open_session
from towline.cli.terminal import note, tell
from towline.cli.terminal.output import JsonLines, Output
from towline.cli.terminal.wording import exit_code
from towline.client.names import job_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.client.session import Session

VALUED = ("-p", "--process")
EXAMPLES = """
tow exec 12 -- nvidia-smi
tow exec --process 3 12 ls -l
"""


def parser() -> Parser:
    parser = Parser(
        "exec",
        "[options] JOB [--] COMMAND...",
        "Run a command on a job's machine, in its folder and environment, and wait for it.",
        EXAMPLES,
    )
    parser.add_job()
    parser.add_argument("command", nargs="*", metavar="COMMAND", help="what to run there")
    parser.add_argument(
        "-p", "--process", metavar="N", type=int, help="beside this process of the job (0)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON lines for programs")
    return parser


def main(args: list[str]) -> int:
    before, rest = split_command(args, VALUED)
    between, command = split_command(rest[1:], VALUED)
    by_hand = "what needs no typing works: tow exec JOB -- ls -l; until then: ssh MACHINE"
    check_terminal(["-it" if word == "-t" else word for word in before + between], command, by_hand)
    asking = parser()
    options = asking.read([*before, *between, *rest[:1]])
    if not command:
        asking.error("which command? tow exec JOB -- COMMAND")
    say_input_is_lost("the command")
    session = open_session()
    job = job_number(session, options.job)
    body: dict[str, Any] = {"argv": argv_of(command)}
    if options.process is not None:
        body["process"] = options.process
    return _run(session, job, body, options.json)


def _run(session: Session, job: int, body: dict[str, Any], json: bool) -> int:
    output: Output | JsonLines = JsonLines() if json else Output()
    end: dict[str, Any] = {"exit_code": 1}
    for header, blob in session.frames("POST", f"/v1/jobs/{job}/exec", body):
        if "stream" in header:
            # One process writes here, so its lines need no name in front.
            output.stream({**header, "label": ""}, blob)
        elif "note" in header:
            note(header["note"])
        end = header.get("end", end)
    output.finish(end)
    if not json and (reason := end.get("reason")):
        first, *more = str(reason).splitlines()
        tell(("tow:", "red"), "\n  ".join([first, *more]))
    # The end is that of the command beside the job; the job itself may still be running.
    code = end.get("exit_code")
    return 1 if code is None else exit_code({"exit_code": code})
