"""`execute_to --machines M... 'command'`: one command on each of several machines."""

from __future__ import annotations

import threading

from towline.cli.batch.follow import OutputOnly
from towline.cli.compat.copies import (
    add_copies,
    backwards,
    checked_name,
    existing_results,
    forwards,
)
from towline.cli.compat.machine_files import is_machine_file, machine_entries
from towline.cli.compat.needs import NEXT_TO_NOTHING, by_interactive_bash
from towline.cli.compat.program import ProgramOptions
from towline.cli.compat.single import RANDOM, random_name
from towline.cli.compat.submission import batch_base, machine_limits
from towline.cli.follow import TerminalFollow
from towline.cli.main import leave
from towline.cli.session import open_session
from towline.cli.terminal import note, tell
from towline.cli.terminal.wording import duration, ending, exit_code
from towline.client.submission import new_key
from towline.errors import TowlineError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from towline.client.session import Session


def parser() -> ProgramOptions:
    parser = ProgramOptions(
        "execute_to",
        "Run a command on every one of several machines, in a new folder there, and show what it "
        "prints with the machine in front. Ends with 1 if it failed anywhere.",
        hint="the command stands last, in quotes: execute_to --machines M1.yaml M2.yaml 'command'",
    )
    add_copies(parser, None)
    parser.add_argument(
        "--machines", nargs="+", required=True, metavar="FILE", help="the machines' files"
    )
    parser.add_argument(
        "--job-name", default=RANDOM, help="results, if any, go to job_results/<name>_<number>"
    )
    parser.add_argument("--verbose", action="store_true", help="say more about what is done")
    parser.add_argument("command", nargs="?", help="what to run, as one word")
    return parser


class Labelled(OutputOnly):
    """What a job writes, each line with its machine in front."""

    #: Lines of different machines do not mix.
    turn = threading.Lock()

    def __init__(self, label: str) -> None:
        super().__init__()
        self.label = label

    def stream(self, header: dict[str, Any], blob: bytes) -> None:
        with self.turn:
            super().stream({**header, "label": self.label}, blob)


class OnMachine(TerminalFollow):
    """The command on one machine, followed in a thread of its own."""

    def __init__(self, session: Session, file: str, ask: dict[str, Any]) -> None:
        super().__init__(session, ask=ask, key=new_key())
        self.file = file
        self.output = Labelled(file)
        self.code = 1
        self.told = ""

    def run(self) -> int:
        try:
            self.code = self._to_the_end()
        except TowlineError as error:
            self.told = error.text
        return self.code

    def _ended(self, view: dict[str, Any]) -> int:
        self.output.finish(None)
        code = exit_code(view)
        took = duration(view)
        how = view["state"] if code == 0 else f"{view['state']}: {ending(view)}".rstrip(": ")
        self.told = how + (f" ({took})" if took else "")
        return code


def command(args: list[str]) -> int:
    asking = parser()
    options = asking.parse_args(args)
    if options.command is None and not is_machine_file(options.machines[-1]):
        # argparse takes it for one more machine.
        options.command = options.machines.pop()
    if not options.machines or not (options.command or "").strip():
        asking.error("a command and the machines to run it on are needed")
    entries = dict(zip(options.machines, machine_entries(options.machines), strict=True))
    asks = {file: _ask(options, place) for place, file in enumerate(entries)}
    session = open_session()
    machines = machine_limits(session, entries, NEXT_TO_NOTHING, each=True)
    followed = [
        OnMachine(session, file, {**asks[file], "cluster": found["cluster"]})
        for file, found in machines.items()
        if not found["reason"]
    ]
    away = [file for file, found in machines.items() if found["reason"]]
    if options.verbose:
        for file, found in machines.items():
            note(f"{file} is {found['name']}")
    try:
        _follow_all(followed)
    except KeyboardInterrupt:
        jobs = " ".join(str(f.job_id) for f in followed if f.job_id is not None and not f.told)
        tell("")
        note(f"the commands go on; to look: tow status; to stop them: tow stop {jobs}".rstrip())
        raise
    return _summary(followed, away)


def _ask(options: Namespace, place: int) -> dict[str, Any]:
    chosen = options.job_name != RANDOM
    name = checked_name(f"{options.job_name}_{place}") if chosen else random_name()
    wants_back = bool(options.copy_backwards)
    if wants_back and existing_results(name):
        raise UsageError(
            f"results of a job {name} are in job_results already",
            "move or remove them, or give another --job-name",
        )
    return {
        **batch_base(NEXT_TO_NOTHING, forwards(options.copy_forwards or [])),
        "argv": by_interactive_bash(options.command),
        "title": options.command,
        "back": backwards(options.copy_backwards or []),
        "whole": wants_back,
        "results": wants_back,
        "name": name,
    }


def _follow_all(followed: list[OnMachine]) -> None:
    threads = [threading.Thread(target=one.run, daemon=True) for one in followed]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            # With a time-out, so that Ctrl-C is heard meanwhile.
            thread.join(0.2)


def _summary(followed: list[OnMachine], away: list[str]) -> int:
    for one in followed:
        tell(f"{one.file}:", (one.told, "red" if one.code else "green"))
    for file in away:
        tell(f"{file}:", ("not reached", "red"))
    failed = [one.file for one in followed if one.code] + away
    total = len(followed) + len(away)
    if failed:
        tell(f"{len(failed)} of {total} failed: {', '.join(failed)}")
    return 1 if failed else 0


def main() -> None:
    leave("execute_to", command)


if __name__ == "__main__":
    main()
