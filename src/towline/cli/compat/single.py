"""The options of `execute_remote`, which also stand in the lines of batch files."""

from __future__ import annotations

from towline.cli.compat.copies import add_copies
from towline.cli.compat.program import ProgramOptions
from towline.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

#: Stands for a name that nobody chose.
RANDOM = "__random__"
_BEHIND_A_LIST = (
    "the command stands last, in quotes; right behind a list of paths, with -- before it"
)


class _LineOptions(ProgramOptions):
    """Options inside a batch file: what is wrong with them is said with their place."""

    where = ""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.where}{message}", _BEHIND_A_LIST)


def single_options(
    default: list[str] | None, machine_needed: bool = True, failing: str = ""
) -> ProgramOptions:
    """The parser; `failing` is what errors begin with where they are not those of a program."""
    kind = _LineOptions if failing else ProgramOptions
    parser = kind("execute_remote", "Run a command on a machine, and follow it.", _BEHIND_A_LIST)
    if isinstance(parser, _LineOptions):
        parser.where = failing
    add_copies(parser, default)
    parser.add_argument("--machine", required=machine_needed, help="the machine's file")
    parser.add_argument("--job-name", default=RANDOM, help="its results go to job_results/<name>")
    parser.add_argument("--verbose", action="store_true", help="say more about what is done")
    parser.add_argument("command", help="what to run, as one word")
    return parser


def random_name() -> str:
    """A name that nobody has chosen."""
    import os

    return os.urandom(12).hex().upper()
