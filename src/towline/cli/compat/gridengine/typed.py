"""What the help of Grid Engine's commands shows; they read their words as Grid Engine does."""

from __future__ import annotations

from towline.cli.options import Parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def parser_of(
    name: str,
    about: tuple[str, str, str],
    valued: Mapping[str, tuple[str, str]],
    plain: Mapping[str, str],
    words: tuple[str, str],
) -> Parser:
    """Its usage, description and examples, its options with and without a word, what follows."""
    parser = Parser(name, *about, own_h="-h" in valued or "-h" in plain)
    for flag, (metavar, text) in valued.items():
        names = tuple(metavar.split(" "))
        parser.add_argument(
            flag,
            nargs=len(names) if len(names) > 1 else None,
            metavar=names if len(names) > 1 else metavar,
            help=text,
        )
    for flag, text in plain.items():
        parser.add_argument(flag, action="store_true", help=text)
    parser.add_argument("words", nargs="...", metavar=words[0], help=words[1])
    return parser


def wants_help(args: list[str]) -> bool:
    return bool(args) and args[0] in ("--help", "-help")
