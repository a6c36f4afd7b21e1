"""What people expect of jobs and does not work yet: said, rather than done half in silence."""

from __future__ import annotations

import os
import stat

from towline.cli.terminal import interactive, note
from towline.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

#: What asks for a terminal elsewhere.
FOR_A_TERMINAL = ("-i", "-it", "-ti", "--interactive", "--tty", "--pty")
#: Without arguments, these are for somebody who types.
SHELLS = ("bash", "sh", "zsh", "fish", "dash", "ksh", "tcsh")
TYPED_INTO = (*SHELLS, "python", "python3", "ipython", "ipython3", "R", "julia", "node")
#: So much of a script is looked at.
LOOKED_AT = 64 * 1024
#: Options that take no value here, so that what follows is the command.
UNTIL_THEN = "until then, by hand: ssh MACHINE"


def check_terminal(options: Sequence[str], command: Sequence[str], hint: str = UNTIL_THEN) -> None:
    """Refuse what needs a terminal: a job has none yet."""
    asked_for = next((word for word in options if word in FOR_A_TERMINAL), "")
    if asked_for:
        raise UsageError(f"{asked_for}: jobs have no terminal yet, and their input is empty", hint)
    if len(command) == 1 and command[0] in TYPED_INTO and interactive():
        raise UsageError(
            f"`{command[0]}` waits for somebody to type, but jobs have no terminal yet", hint
        )


def say_input_is_lost(what: str) -> bool:
    """Say so when something is piped in, which nobody will read; True when it was said."""
    if not _has_input():
        return False
    note(f"what is piped in does not reach {what}: its input is empty; give it a file instead")
    return True


def _has_input() -> bool:
    """Whether something is there to be read on stdin, as far as can be seen without reading it."""
    try:
        found = os.fstat(0)
        if stat.S_ISREG(found.st_mode):
            # Further on, a loop of the shell reads it.
            return found.st_size > 0 and os.lseek(0, 0, os.SEEK_CUR) == 0
        return stat.S_ISFIFO(found.st_mode) and _waiting() > 0
    except OSError:
        return False


def _waiting() -> int:
    """How many bytes of a pipe can be read at once."""
    from array import array
    from fcntl import ioctl
    from termios import FIONREAD

    count = array("i", [0])
    ioctl(0, FIONREAD, count)
    return count[0]


def say_directives(command: Sequence[str]) -> None:
    """Of a script with #SBATCH lines, say that they are not read, and what to type for them."""
    script = _script(command)
    if not script:
        return
    from towline.model.sbatch_words import directives, in_our_words

    found = directives(script[1])
    if not found:
        return
    import shlex

    words = [word for name, value in found for word in in_our_words(name, value)]
    said = f"; as options: {shlex.join(words)}" if words else ""
    note(f"the #SBATCH lines of {script[0]} are not read{said}")


def _script(command: Sequence[str]) -> tuple[str, str] | None:
    """The script that a command runs, and how it begins."""
    first = os.path.basename(command[0])
    name = next((w for w in command[1:] if not w.startswith("-")), "") if first in SHELLS else ""
    try:
        with open(name or command[0], "rb") as file:
            head = file.read(LOOKED_AT)
    except (OSError, ValueError):
        return None
    return (name or command[0], head.decode("utf-8", "replace")) if b"#SBATCH" in head else None


def check_is_list(data: bytes, source: str) -> None:
    """Refuse a script where a list of commands is expected: each line would be a job."""
    if not data.startswith(b"#!"):
        return
    name = "FILE" if source == "stdin" else source
    raise UsageError(
        f"{source} is a script, not a list of commands: it begins with #!",
        f"to run it as one job: tow run bash {name}; if each line is a command of its own, take "
        "its first line out",
    )
