"""`tow login`: a password or second factor, once."""

from __future__ import annotations

from towline.cli.login import log_in
from towline.cli.options import Parser
from towline.cli.session import open_session
from towline.cli.terminal import interactive, say, say_json
from towline.client.transport import with_query
from towline.errors import UsageError

EXAMPLES = """
tow login lab
tow login gpu1
"""


def parser() -> Parser:
    parser = Parser(
        "login",
        "[--json] NAME",
        "Log in to a machine, or all machines of a cluster, that want a password or a second\n"
        "factor. ssh asks on this terminal, once; the connection stays open for the Engine.",
        EXAMPLES,
    )
    parser.add_argument("name", metavar="NAME", help="a cluster or a machine")
    parser.add_argument("--json", action="store_true", help="only print what would be typed")
    return parser


def main(args: list[str]) -> int:
    options = parser().read(args)
    session = open_session()
    answer = session.call("GET", with_query("/v1/machines/login", name=options.name))
    if options.json:
        say_json(answer)
        return 0
    if not answer["logins"]:
        say(f"{options.name} needs no login")
        return 0
    if not interactive():
        raise UsageError("a password can only be typed on a terminal", f"tow login {options.name}")
    return 0 if log_in(session, answer["logins"]) else 1
