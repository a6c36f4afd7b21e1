"""`tow doctor`: check every cluster step by step."""

from __future__ import annotations

from towline.cli.options import Parser
from towline.cli.session import open_session
from towline.cli.terminal import mark, paint, printable, say, say_json
from towline.client.submission import this_folder
from towline.client.transport import with_query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EXAMPLES = """
tow doctor
tow doctor -c lab
tow doctor --json
"""


def parser() -> Parser:
    parser = Parser(
        "doctor",
        "[options]",
        "Check every cluster step by step and say how to mend what is wrong.\n"
        "Exits with 1 when something is.",
        EXAMPLES,
    )
    parser.add_argument("-c", "--cluster", metavar="NAME", help="check only this cluster")
    parser.add_argument("--json", action="store_true", help="print JSON lines for programs")
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    target = with_query("/v1/doctor", cwd=this_folder(), cluster=options.cluster)
    well = False
    place = ""
    for header, _ in open_session().frames("GET", target):
        well = bool(header.get("ok")) if header.get("done") else well
        if options.json:
            say_json(header)
        elif "step" in header:
            place = _show(header["step"], place)
    if not options.json:
        say("")
        say("all is well" if well else "something is wrong: see the ✗ above")
    return 0 if well else 1


def _show(step: dict[str, Any], place_before: str) -> str:
    """Print one step, below the name of its place when that is new."""
    names = (step.get("cluster"), step.get("machine"))
    place = " · ".join(printable(str(name)) for name in names if name)
    if place != place_before:
        say(paint(place, "bold", 1))
    text = printable(str(step.get("text") or ""))
    name = printable(str(step.get("name") or ""))
    say(f"  {mark(step.get('ok'))} {name}{text and f': {text}'}")
    if step.get("hint"):
        say(f"      {printable(str(step['hint']))}")
    return place
