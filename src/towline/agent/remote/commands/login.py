"""The environment that logging in gives: read once, by the user's own login shell.

A program that sshd starts knows little of what the user set up for logins: neither the site's
/etc/profile.d nor ~/.bash_profile was read. What such a shell exports becomes the agent's own
environment, and so that of all it starts. A shell that prints, fails or hangs costs nothing but
time: then everything stays as sshd gave it.
"""

import json
import os
import sys

from . import process
from .call import CommandCall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from ..loop import Loop
    from ..typed import Environ, Message, Reaped, Told

#: So long do first jobs wait for a profile that hangs.
MOST_S = 10.0
#: Around what we want, in all that a profile may print.
MARK = "TOWLINE-LOGIN "
#: Without single quotes, `!` and `$`: it goes through any shell.
TELL = (
    "import json,os; "
    'told={k.decode("utf-8","surrogateescape"): v.decode("utf-8","surrogateescape")'
    " for k,v in os.environb.items()}; "
    'print("\\n%s"+json.dumps(told))' % MARK
)
#: A bash that sshd starts reads ~/.bashrc, and what is exported there we have, but for functions:
#: the `sh` that starts us drops them. So they are told once more, after all the rest.
WITH_RC = "%(tell)s; [ -r ~/.bashrc ] && . ~/.bashrc > /dev/null 2>&1; exec %(tell)s"
FUNCTION = "BASH_FUNC_"
#: How shells are told to behave as at a login and to run a line.
WORDS = {name: [b"-l", b"-c"] for name in ("bash", "zsh", "sh", "dash", "ash", "ksh", "fish")}
WORDS.update({name: [b"-c"] for name in ("csh", "tcsh")})
#: They are about the shell that told, not about what comes after it.
OWN = (b"_", b"SHLVL", b"PWD", b"OLDPWD")


class LoginShell:
    """Reads it in the background; `when_known` has things wait for that."""

    def __init__(self, loop: "Loop", note: "Told") -> None:
        self.loop = loop
        self.note = note
        self.call: "CommandCall | None" = None
        self.waiting: "list[Callable[[], None]]" = []
        #: What the doctor is told: empty where all is well.
        self.problem = ""
        loop.children_ended.append(self.children_ended)

    def read(self) -> None:
        argv = login_words(shell_of_user())
        try:
            self.call = CommandCall(self.loop, argv, MOST_S, self.heard)
        except (process.CannotStart, OSError) as problem:
            self.problem = "the login shell cannot be started: %s" % problem

    @property
    def is_pending(self) -> bool:
        return self.call is not None

    def when_known(self, work: "Callable[[], None]") -> None:
        if self.is_pending:
            self.waiting.append(work)
        else:
            work()

    def children_ended(self, ended: "Reaped") -> None:
        if self.call is not None and self.call.pid in ended:
            self.call.ended(ended[self.call.pid][0])

    def heard(self, answer: "Message") -> None:
        self.call = None
        told = environment_in(answer["out"])
        if told:
            take_over(told)
        else:
            late = answer["code"] < 0
            why = "within %g s" % MOST_S if late else "(exit code %d)" % answer["code"]
            self.problem = "the login shell does not tell its environment %s" % why
            self.note(self.problem)
        waiting, self.waiting = self.waiting, []
        for work in waiting:
            work()


def shell_of_user() -> str:
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_shell
    except (ImportError, KeyError):
        return ""


def login_words(shell: str) -> "list[bytes]":
    """The user's shell where it is one we know, else bash or sh."""
    for place in (shell, "/bin/bash", "/bin/sh"):
        words = WORDS.get(os.path.basename(place))
        if words and os.path.exists(place):
            break
    tell = "'%s' -I -c '%s'" % (sys.executable or "/usr/bin/python3", TELL)
    line = WITH_RC % {"tell": tell} if os.path.basename(place) == "bash" else "exec " + tell
    return [os.fsencode(place)] + (words or [b"-c"]) + [os.fsencode(line)]


def environment_in(text: str) -> "Environ":
    """What was told among what a profile printed; nothing where that cannot be read."""
    told = [line[len(MARK) :] for line in text.splitlines() if line.startswith(MARK)]
    try:
        first, *more = [dict(json.loads(one)) for one in told] or [{}]
    except (ValueError, TypeError):
        return {}
    found = {
        name: value for one in more for name, value in one.items() if name.startswith(FUNCTION)
    }
    found.update(first)
    return {
        name.encode("utf-8", "surrogateescape"): value.encode("utf-8", "surrogateescape")
        for name, value in found.items()
    }


def take_over(told: "Environ") -> None:
    """All that is started from now on has it."""
    environ = os.environb
    for name in [name for name in environ if name not in told and name not in OWN]:
        del environ[name]
    for name, value in told.items():
        if name not in OWN:
            environ[name] = value
