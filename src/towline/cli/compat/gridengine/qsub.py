"""`tow qsub`: a job as Grid Engine's users submit it, on any kind of cluster."""

from __future__ import annotations

import sys

from towline.cli.compat.gridengine.submit import job_script, mail
from towline.cli.compat.gridengine.submit.asking import ask_for, is_here
from towline.cli.compat.gridengine.submit.refusals import Refused, rejected
from towline.cli.compat.gridengine.submit.streams import check_streams, streams
from towline.cli.compat.gridengine.submit.values import concurrency
from towline.cli.compat.gridengine.submit.wanted import Wanted
from towline.cli.session import open_session
from towline.client.submission import new_key
from towline.errors import TowlineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.cli.compat.gridengine.submit.values import Tasks
    from towline.client.session import Session


def main(words: list[str]) -> int:
    try:
        return submit(Wanted(words))
    except Refused as error:
        sys.stderr.write(error.text + "\n")
        return error.code_of_qsub
    except TowlineError as error:
        # A queue's own words are Grid Engine's, where it is one.
        text = getattr(error, "said", "") or error.text
        # Of what is said of `tow run`, -o is something else here.
        hint = f"\n{error.hint}" if error.hint and not error.hint.startswith("-o ") else ""
        sys.stderr.write(f"Unable to run job: {text}{hint}\nExiting.\n")
        return 1


def submit(wanted: Wanted) -> int:
    session = open_session()
    ask = ask_for(session, wanted)
    if not (is_here(ask) and "-hold_jid" in wanted.options):
        # What it waits for on this machine may make the folder.
        check_streams(wanted)
    if wanted.options.get("-w", "n") in ("v", "p") or "-verify" in wanted.options:
        return _verify(session, ask)
    letter = mail.wanted_here(wanted, ask)
    if wanted.tasks is None:
        number = int(session.submit_ask(ask, new_key())["id"])
        said = f'Your job {number} ("{wanted.name[:100]}") has been submitted'
        terse = str(number)
    else:
        number = _submit_array(session, wanted, wanted.tasks, ask)
        terse = f"{number}.{wanted.tasks}"
        said = f'Your job-array {terse} ("{wanted.name[:100]}") has been submitted'
    print(terse if wanted.on("-terse") else said, flush=True)
    if wanted.on("-now"):
        from towline.cli.compat.gridengine.submit.at_once import start_at_once

        if not start_at_once(session, number):
            return 1
    if letter or not is_here(ask):
        from towline.cli.compat.gridengine.outputs import see_to

        see_to(number, wanted.tasks, ("", "") if is_here(ask) else streams(wanted), letter)
    if not wanted.on("-sync"):
        return 0
    from towline.cli.compat.gridengine.submit.sync import wait

    return wait(session, number, wanted.tasks)


def _verify(session: Session, ask: dict[str, Any]) -> int:
    """Only say whether it could run."""
    try:
        session.call("POST", "/v1/plan", ask, repeat=True)
    except TowlineError as error:
        said = getattr(error, "said", "") or error.text
        raise rejected(f"{said}\nverification: no suitable queues") from None
    print("verification: found suitable queue(s)")
    return 0


def _submit_array(session: Session, wanted: Wanted, tasks: Tasks, ask: dict[str, Any]) -> int:
    lines = [
        {
            "argv": ask["argv"],
            "title": wanted.name,
            "number": task,
            "env": {"SGE_TASK_ID": str(task), job_script.OFFSET: str(place)},
        }
        for place, task in enumerate(tasks.numbers)
    ]
    most = concurrency(wanted.options.get("-tc", "0"))
    batch = {"name": wanted.name, "base": ask, "lines": lines, "max_parallel": most}
    return int(session.once("/v1/batches", batch, new_key())["batch"]["first"])
