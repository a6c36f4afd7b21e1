"""`tow results`: bring home what a job has made so far."""

from __future__ import annotations

from towline.cli.cwd import short_path
from towline.cli.meanwhile import shown
from towline.cli.options import Parser
from towline.cli.session import open_session
from towline.cli.terminal import printable, say, say_json, tell
from towline.cli.terminal.wording import count, size
from towline.client.names import meant

EXAMPLES = """
tow results 12
tow results 12 --back checkpoints
"""


def parser() -> Parser:
    parser = Parser(
        "results",
        "[--back PATH] [--json] JOB",
        "Bring home what a job has made or changed so far, into job_results/NUMBER/ of the folder\n"
        "it was submitted from. This happens by itself when a job ends. Nothing of yours is\n"
        "overwritten.",
        EXAMPLES,
    )
    parser.add_job(or_batch=True)
    parser.add_argument(
        "--back",
        action="append",
        default=[],
        metavar="PATH",
        help="only this path; may be repeated",
    )
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    asking = parser()
    options = asking.read(args)
    session = open_session()
    found = meant(session, options.job)
    if found.batch:
        if options.back:
            asking.error(f"--back is for one job, e.g. {found.batch}.1")
        from towline.cli.batch.actions import act_on

        return act_on("results", found.batch, json=options.json)
    target = f"/v1/jobs/{found.job}/results"
    with shown(session, target, f"results of job {found.job}"):
        done = session.call("POST", target, {"back": options.back}, repeat=True)
    elsewhere = session.take_home(found.job) is not None
    if options.json:
        say_json(done)
        return 0
    came = f"{count(done['files'], 'file')}, {size(done['bytes'])}"
    say(came if elsewhere else f"{came} in {short_path(done['folder'])}")
    for here, newer in done["conflicts"]:
        tell(f"kept {short_path(here)} as it was; the newer copy is {short_path(newer)}")
    for path in done["missing"]:
        made = ", ".join(map(printable, done["made"])) or "nothing"
        told = f"{printable(path)} was not made or changed: nothing of it came home"
        tell(f"{told} (it made: {made})")
    for name in done["refused"]:
        tell(f"left out {printable(name)}: it leads out of the folder, or cannot be read")
    for name, why in done["not_collected"]:
        tell(f"left out {printable(name)}: {why}")
    if more := done["uncollected"] - len(done["not_collected"]):
        tell(f"left out {more} more that could not be copied on their machine")
    return 0
