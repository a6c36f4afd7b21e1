"""`tow machines`: machines and what is free on them."""

from __future__ import annotations

from towline.cli.options import Parser
from towline.cli.session import open_session
from towline.cli.terminal import printable, say, say_json, tell
from towline.client.submission import this_folder
from towline.client.transport import with_query

EXAMPLES = """
tow machines
tow machines -c lab
tow machines --disk
tow machines --json | jq '.machines[] | select(.state == "offline")'
"""


def parser() -> Parser:
    parser = Parser(
        "machines",
        "[options]",
        "List machines, and the nodes of a Slurm, with the CPUs, memory and GPUs that are free\n"
        "on them now.",
        EXAMPLES,
    )
    parser.add_argument("-c", "--cluster", metavar="NAME", help="only machines of this cluster")
    parser.add_argument(
        "--disk", action="store_true", help="what Towline takes on their disks, and what is free"
    )
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    if options.disk:
        return _disk(options.cluster, options.json)
    target = with_query("/v1/machines", cwd=this_folder(), cluster=options.cluster)
    answer = open_session().call("GET", target)
    if options.json:
        say_json(answer)
    elif not answer["machines"]:
        say("no machines: tow clusters add NAME MACHINE... adds some")
    else:
        from towline.cli.terminal.machine_table import show_machines

        show_machines(answer["machines"])
    return 0


def _disk(cluster: str | None, json: bool) -> int:
    """What is used on each machine; measuring it takes a moment."""
    answer = open_session().call("GET", with_query("/v1/disk", cwd=this_folder(), cluster=cluster))
    silent = [machine for machine in answer["machines"] if "error" in machine]
    if json:
        say_json(answer)
        return 1 if silent else 0
    from towline.cli.terminal.table import show_table
    from towline.cli.terminal.wording import size

    rows = [
        [
            printable(machine["machine"]),
            str(machine["folders"]),
            *(size(machine[figure]) for figure in ("jobs", "contents", "free")),
        ]
        for machine in answer["machines"]
        if "error" not in machine
    ]
    if rows:
        show_table(["MACHINE", "JOB FOLDERS", "THEIR SIZE", "CONTENTS", "FREE"], rows)
    for machine in silent:
        tell(("tow:", "red"), printable(machine["error"]))
    return 1 if silent else 0
