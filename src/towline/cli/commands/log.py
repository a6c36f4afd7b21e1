"""`tow log`: a job's output."""

from __future__ import annotations

from towline.cli.follow import TerminalFollow
from towline.cli.options import Parser
from towline.cli.patience import patience
from towline.cli.session import open_session
from towline.cli.terminal import note
from towline.client.names import meant

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.client.session import Session

EXAMPLES = """
tow log 12
tow log -f last
tow log --stderr --tail 20 12
tow log --service tensorboard 12
"""


def parser() -> Parser:
    parser = Parser(
        "log",
        "[options] JOB",
        "Print what a job, or each job of a batch, wrote so far: its stdout to stdout, its stderr\n"
        "to stderr.",
        EXAMPLES,
    )
    parser.add_job(or_batch=True)
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the job ended")
    parser.add_argument("--service", metavar="NAME", help="that of a service of the job instead")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--stdout", action="store_true", help="only its stdout")
    only.add_argument("--stderr", action="store_true", help="only its stderr")
    parser.add_tail("only the last N lines of each; 64k, 1M are bytes")
    parser.add_argument("--json", action="store_true", help="print JSON lines for programs")
    return parser


def main(args: list[str]) -> int:
    asking = parser()
    options = asking.read(args)
    session = open_session()
    found = meant(session, options.job)
    if found.batch:
        if options.json or options.service or options.tail is not None:
            line = f"{found.batch}.1"
            asking.error(f"--json, --service and --tail are for one job, e.g. {line}")
        from towline.cli.batch.actions import act_on

        chosen = [f"--{name}" for name in ("follow", "stdout", "stderr") if getattr(options, name)]
        return act_on("log", found.batch, *chosen)
    stream = "out" if options.stdout else "err" if options.stderr else "all"
    shown = TerminalFollow(
        session,
        job_id=found.job,
        json=options.json,
        stream=stream,
        tail=options.tail,
        until_end=options.follow,
        service=options.service,
    )
    if options.follow:
        return shown.run()
    with patience(session, found.job):
        code = shown.run()
    if not shown.following.offsets and not options.service:
        _say_why_nothing(session, shown.following.view)
    return code


def _say_why_nothing(session: Session, view: dict[str, Any]) -> None:
    """Of a job that has not begun, say so instead of nothing."""
    if view.get("state") not in ("new", "staging", "waiting", "queued", "starting"):
        return
    told = session.call("GET", f"/v1/jobs/{view['id']}/why")
    note(f"job {view['id']} is {view['state']}: {str(told['text']).splitlines()[0]}")
