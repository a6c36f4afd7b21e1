"""`execute_remote --machine M 'command'`: one command on one machine, followed to its end."""

from __future__ import annotations

from towline.cli.compat.copies import (
    EVERYTHING,
    backwards,
    checked_name,
    existing_results,
    forwards,
)
from towline.cli.compat.machine_files import read_machine
from towline.cli.compat.needs import NEXT_TO_NOTHING, by_interactive_bash
from towline.cli.compat.single import RANDOM, random_name, single_options
from towline.cli.compat.submission import batch_base, machine_limits
from towline.cli.main import leave
from towline.cli.session import open_session
from towline.cli.terminal import note
from towline.errors import UsageError


def command(args: list[str]) -> int:
    options = single_options(EVERYTHING).parse_args(args)
    name = random_name() if options.job_name == RANDOM else checked_name(options.job_name)
    if existing_results(name):
        raise UsageError(
            f"results of a job {name} are in job_results already",
            "move or remove them, or give another --job-name",
        )
    ask = {
        **batch_base(NEXT_TO_NOTHING, forwards(options.copy_forwards)),
        "argv": by_interactive_bash(options.command),
        "title": options.command,
        "back": backwards(options.copy_backwards),
        "whole": True,
        "name": name,
    }
    session = open_session()
    entry = {options.machine: read_machine(options.machine)}
    found = machine_limits(session, entry, NEXT_TO_NOTHING, each=True)[options.machine]
    if options.verbose:
        note(f"{options.machine} is {found['name']}; results go to job_results/{name}")
    from towline.cli.follow import TerminalFollow
    from towline.client.submission import new_key

    return TerminalFollow(session, ask={**ask, "cluster": found["cluster"]}, key=new_key()).run()


def main() -> None:
    leave("execute_remote", command)


if __name__ == "__main__":
    main()
