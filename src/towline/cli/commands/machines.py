"""`tow machines`: machines and what is free on them."""

from __future__ import annotations

from towline.cli.client import with_query
from towline.cli.engine import Engine
from towline.cli.here import this_folder
from towline.cli.options import Parser
from towline.cli.terminal import say, say_json

EXAMPLES = """
tow machines
tow machines -c lab
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
    parser.add_json()
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    target = with_query("/v1/machines", cwd=this_folder(), cluster=options.cluster)
    answer = Engine().call("GET", target)
    if options.json:
        say_json(answer)
    elif not answer["machines"]:
        say("no machines: tow clusters add NAME MACHINE... adds some")
    else:
        from towline.cli.machine_table import show_machines

        show_machines(answer["machines"])
    return 0
