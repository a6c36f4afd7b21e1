"""How the compatible commands read their options."""

from __future__ import annotations

import argparse
import sys

from towline.cli.terminal import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


class ProgramOptions(argparse.ArgumentParser):
    """The options of one command; `hint` says what is most often meant when they are wrong."""

    def __init__(self, program: str, about: str, hint: str = "") -> None:
        super().__init__(
            prog=program,
            description=about,
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        )
        self.hint = hint

    def error(self, message: str) -> NoReturn:
        tell(f"{self.prog}: {message}")
        if self.hint:
            tell(f"  {self.hint}")
        tell(f"  more: {self.prog} --help")
        sys.exit(2)
