"""What was typed behind `qsub`: options, a script and its arguments."""

from __future__ import annotations

import os
import sys

from towline.cli.compat.gridengine.submit.options import read_script, read_words
from towline.cli.compat.gridengine.submit.refusals import Refused
from towline.cli.compat.gridengine.submit.values import Tasks, allowed_priority, check_name
from towline.client.submission import this_folder

#: The kernel takes no longer variable.
LONGEST_SCRIPT = 120_000


class Wanted:
    """One submission: its options, its script and its arguments."""

    def __init__(self, words: list[str]) -> None:
        typed, rest = read_words(words)
        self.binary = typed.get("-b", "n")[:1].lower() == "y"
        self.script, default, self.beside = "", "", ""
        if self.binary:
            if not rest:
                raise Refused("qsub: command required for a binary job", 2)
            self.argv, default = rest, os.path.basename(rest[0].split(" ")[0])
        else:
            self.script, default = _script(rest)
            self.argv = rest[1:]
            #: Where the script is, and what it may import.
            self.beside = os.path.dirname(os.path.abspath(rest[0])) if rest else ""
        embedded = {} if self.binary else read_script(self.script, typed.get("-C", "#$"))
        self.options = {**embedded, **typed}
        self.name = check_name(self.options.get("-N", default))
        self.tasks = Tasks(self.options["-t"]) if "-t" in self.options else None
        allowed_priority(self.options.get("-p", "0"))
        if self.on("-now") and self.tasks:
            raise Refused("qsub: option -now y is not supported here with -t", 1)
        self.here = this_folder()
        self.folder = self._folder()
        #: The folder goes with the job; without -cwd and -wd only the script does.
        self.travels = "-cwd" in self.options or "-wd" in self.options

    def on(self, option: str, default: str = "n") -> bool:
        return self.options.get(option, default)[:1].lower() == "y"

    def _folder(self) -> str:
        if "-wd" in self.options:
            return os.path.abspath(os.path.expanduser(self.options["-wd"]))
        return self.here if "-cwd" in self.options else os.path.expanduser("~")


def _script(rest: list[str]) -> tuple[str, str]:
    """The text of the script, and what a job of it is called."""
    lead = "Unable to read script file because of error: "
    path = rest[0] if rest else "-"
    if path == "-":
        text = sys.stdin.read() if not sys.stdin.isatty() else ""
        if not text:
            raise Refused(f"{lead}no input read from stdin", 4)
        return text, "STDIN"
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            text = file.read()
    except IsADirectoryError:
        text = f'error: fread("{path}") failed: Is a directory'
        raise Refused(f"{text}\n{lead}error reading from file {path}", 4) from None
    except OSError as error:
        raise Refused(f"{lead}error opening {path}: {error.strerror}", 14) from None
    if len(text) > LONGEST_SCRIPT:
        raise Refused(f"{lead}{path} is longer than {LONGEST_SCRIPT} characters", 4)
    return text, os.path.basename(path)
