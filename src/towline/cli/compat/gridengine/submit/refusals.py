"""What `qsub` refuses, said as Grid Engine says it."""

from __future__ import annotations

from towline.errors import TowlineError

#: Before what is wrong with what was typed; in a script, that is said of the script.
TYPED, IN_SCRIPT = "qsub: ", "Unable to read script file because of error: "


class Refused(TowlineError):
    """Said as Grid Engine says it, with its exit code."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code_of_qsub = code


def rejected(text: str, code: int = 1) -> Refused:
    return Refused(f"Unable to run job: {text}\nExiting.", code)


def no_number(text: str) -> Refused:
    """Where a number was to be, and there is none."""
    return Refused(
        "qsub: Numerical value invalid!\n"
        f'The initial portion of string "{text}" contains no decimal number',
        7,
    )
