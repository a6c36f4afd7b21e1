"""`combine_folders DEST SRC...`: the results of many jobs in one folder."""

from __future__ import annotations

from towline.cli.compat.combining import combine
from towline.cli.compat.program import ProgramOptions
from towline.cli.main import leave
from towline.cli.terminal import note
from towline.cli.terminal.wording import count
from towline.errors import TowlineError


def parser() -> ProgramOptions:
    parser = ProgramOptions(
        "combine_folders",
        "Put what is in several folders into one. Identical files become one, different paths are "
        "all taken; the same path with different content is an error, and nothing is written.",
    )
    parser.add_argument("dest", metavar="DEST", help="the folder to make, or to add to")
    parser.add_argument("sources", metavar="SRC", nargs="+", help="a folder to take from")
    return parser


def command(args: list[str]) -> int:
    options = parser().parse_args(args)
    try:
        added, all_in_all = combine(options.dest, options.sources)
    except OSError as error:
        raise TowlineError(
            f"cannot combine: {error.filename or options.dest}: {error.strerror}",
            "nothing was left behind",
        ) from None
    note(f"{options.dest} has {count(all_in_all, 'file')}, {added} of them new")
    return 0


def main() -> None:
    leave("combine_folders", command)


if __name__ == "__main__":
    main()
