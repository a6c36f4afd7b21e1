"""The options of `qsub`: as typed, and as `#$` lines of a script."""

from __future__ import annotations

import shlex

from towline.cli.compat.gridengine.submit.refusals import IN_SCRIPT, TYPED, Refused
from towline.cli.compat.gridengine.submit.values import (
    check_mail_letters,
    check_slots,
    check_yes_or_no,
    concurrency,
    priority,
)

#: Options that take a word, and what it is.
VALUED = {
    "-N": ("NAME", "its name (default: the script's)"),
    "-q": ("QUEUE", "the cluster of that name, or a queue of the default one"),
    "-v": ("A=1,B", "variables for it; a name alone takes its value from here"),
    "-o": ("PATH", "where its output goes (default: NAME.oNUMBER)"),
    "-e": ("PATH", "where its errors go (default: NAME.eNUMBER)"),
    "-j": ("y|n", "errors go where the output goes"),
    "-wd": ("FOLDER", "where it runs (default: your home)"),
    "-t": ("1-10:2", "an array of tasks, each with its SGE_TASK_ID"),
    "-tc": ("N", "so many tasks run at a time"),
    "-l": ("NAME=VALUE", "what it needs: h_rt, h_vmem, mem_free, gpu"),
    "-pe": ("NAME N", "a parallel environment: N CPUs"),
    "-hold_jid": ("JOBS", "begin once these jobs have ended"),
    "-sync": ("y|n", "wait for its end; exit with its exit code"),
    "-b": ("y|n", "it is a command, not a script"),
    "-shell": ("y|n", "with -b y: whether a shell reads the command"),
    "-p": ("N", "its priority, from -1023 to 0"),
    "-S": ("PROGRAM", "what runs the script (default: as its first line says)"),
    "-i": ("PATH", "what it reads as its standard input"),
    "-w": ("e|w|n|v|p", "v and p only say whether it could run"),
    "-C": ("PREFIX", "what begins lines of options in the script (default: #$)"),
    "-A": ("ACCOUNT", "taken, and not used"),
    "-P": ("PROJECT", "taken, and not used"),
    "-r": ("y|n", "y: a queue may run it again when a host is lost; elsewhere without effect"),
    "-now": ("y|n", "start at once, or not at all"),
    "-a": ("MMDDhhmm", "do not begin before this time: [[CC]YY]MMDDhhmm[.SS]"),
    "-M": ("ADDRESS", "whom -m writes to (default: you, on this machine)"),
    "-m": ("b|e|a|s|n", "write a mail when it begins, ends, is aborted"),
}
PLAIN = {
    "-h": "hold it until `tow qrls` lets it go",
    "-cwd": "run where you are",
    "-V": "with all of this shell's variables",
    "-terse": "print the number only",
    "-clear": "taken: no other file has options",
    "-verify": "show what would be submitted",
    "-notify": "taken: a stopped job has time to end in any case",
}
#: What a real Grid Engine has, and what is not done here.
NOT_HERE = {"-hold_jid_ad": "task by task", "-dl": "a deadline"}
_REPEATED = ("-v", "-l", "-hold_jid", "-q")


#: What is missing where an option is the last word; of others, its argument.
_ARGUMENT = {
    "-q": "queue list argument",
    "-v": "variable list argument",
    "-t": "a list of task id ranges",
    "-S": "path_name argument",
    "-pe": "pe_name argument",
}
_YES_OR_NO = ("-j", "-b", "-sync", "-now", "-r", "-shell")


def read_words(words: list[str], lead: str = "qsub: ") -> tuple[dict[str, str], list[str]]:
    """Options by name, several of one kind joined, and what follows them."""
    found: dict[str, str] = {}
    place = 0
    while place < len(words) and words[place].startswith("-") and words[place] != "-":
        name = words[place]
        place += 1
        if name in NOT_HERE:
            raise Refused(f"{lead}option {name} ({NOT_HERE[name]}) is not supported here", 1)
        if name in PLAIN:
            found[name] = "y"
            continue
        if name not in VALUED:
            raise Refused(f'{lead}invalid option argument "{name}"', 2)
        count = 2 if name == "-pe" else 1
        values = words[place : place + count]
        if len(values) < count:
            missing = _ARGUMENT.get(name, "argument") if not values else "range as 2nd argument"
            raise Refused(f"{lead}{name} option must have {missing}", 2)
        place += count
        _check(name, values[-1])
        value, known = " ".join(values), found.get(name)
        found[name] = f"{known},{value}" if known and name in _REPEATED else value
    return found, words[place:]


def _check(name: str, value: str) -> None:
    if name == "-pe":
        check_slots(value)
    elif name in _YES_OR_NO:
        check_yes_or_no(name, value)
    elif name == "-w" and value not in ("e", "w", "n", "v", "p"):
        raise Refused(f'qsub: invalid option argument "-w {value}"', 7)
    elif name == "-m":
        check_mail_letters(value)
    elif name == "-p":
        priority(value)
    elif name == "-tc":
        concurrency(value)


def read_script(text: str, prefix: str) -> dict[str, str]:
    """Options in the lines of a script that begin with a prefix."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines() if prefix else (), 1):
        if not line.startswith(prefix):
            continue
        try:
            words = shlex.split(line[len(prefix) :], comments=True)
        except ValueError:
            words = line[len(prefix) :].split()
        try:
            options, _ = read_words(words)
        except Refused as refused:
            own = refused.text.removeprefix(TYPED)
            said = IN_SCRIPT + own if own != refused.text else own
            raise Refused(f"{said}\nline {number}: {line}", refused.code_of_qsub) from None
        found.update(options)
    return found
