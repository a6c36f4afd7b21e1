"""The options of `qsub`: as typed, and as `#$` lines of a script."""

from __future__ import annotations

import re
import shlex
import time

from towline.errors import TowlineError

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
    "-i": ("PATH", "what it reads from its standard input"),
    "-w": ("e|w|n|v|p", "v only says whether it could run"),
    "-C": ("PREFIX", "what begins lines of options in the script (default: #$)"),
    "-A": ("ACCOUNT", "taken, and not used"),
    "-P": ("PROJECT", "taken, and not used"),
    "-r": ("y|n", "y: a queue may run it again when a host is lost; elsewhere without effect"),
    "-now": ("y|n", "start at once, or not at all"),
    "-a": ("MMDDhhmm", "do not begin before this time: [[CC]YY]MMDDhhmm[.SS]"),
    "-M": ("ADDRESS", "taken: nobody is written to"),
    "-m": ("WHEN", "taken: nobody is written to"),
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


class Refused(TowlineError):
    """Said as Grid Engine says it, with its exit code."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code_of_qsub = code


def rejected(text: str, code: int = 1) -> Refused:
    return Refused(f"Unable to run job: {text}\nExiting.", code)


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
            raise Refused(f"{lead}option {name} requires an argument", 7)
        place += count
        value = " ".join(values)
        if name == "-pe":
            _check_slots(values[1])
        known = found.get(name)
        found[name] = f"{known},{value}" if known and name in _REPEATED else value
    return found, words[place:]


def _check_slots(text: str) -> None:
    if not re.fullmatch(r"[0-9]+(-[0-9]*)?|-[0-9]+", text):
        raise Refused(
            "qsub: Numerical value invalid!\n"
            f'The initial portion of string "{text}" contains no decimal number',
            7,
        )


def read_script(text: str, prefix: str) -> dict[str, str]:
    """Options in the lines of a script that begin with a prefix."""
    found: dict[str, str] = {}
    for line in text.splitlines() if prefix else ():
        if not line.startswith(prefix):
            continue
        try:
            words = shlex.split(line[len(prefix) :], comments=True)
        except ValueError:
            words = line[len(prefix) :].split()
        lead = "Unable to read script file because of error: "
        options, _ = read_words(words, lead)
        found.update(options)
    return found


def variables(text: str, environ: dict[str, str]) -> dict[str, str]:
    """`A=1,B`: a comma always splits, and a name alone is taken from here."""
    found: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            wrong = f'qsub: Wrong variable list format -v "{text}" or environment variable not set'
            raise Refused(wrong, 7)
        found[name] = value if equals else environ.get(name, "")
    return found


def moment(text: str, now: float) -> float:
    """`[[CC]YY]MMDDhhmm[.SS]` as seconds since 1970; without a year, it is this one."""
    found = re.fullmatch(r"(\d\d)?(\d\d)?(\d{8})(?:\.(\d\d))?", text)
    try:
        if found is None:
            raise ValueError
        century, year, rest, seconds = found.groups()
        if century and not year:
            century, year = "20" if int(century) < 70 else "19", century
        whole = f"{century}{year}" if year else time.strftime("%Y", time.localtime(now))
        read = time.strptime(f"{whole}{rest}{seconds or '00'}", "%Y%m%d%H%M%S")
        return time.mktime(read)
    except (ValueError, OverflowError):
        raise Refused(
            "\nInvalid format of date/hour-minute field.\n"
            f'qsub: Wrong date/time format "{text}" specified to -a option',
            7,
        ) from None


class Tasks:
    """The tasks of an array."""

    def __init__(self, text: str) -> None:
        found = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", text)
        if not found:
            raise Refused(f'qsub: Invalid task id range "{text}"', 7)
        first = int(found[1])
        last = int(found[2] or first)
        self.first, self.last, self.step = min(first, last), max(first, last), int(found[3] or 1)
        if not self.first or not self.step:
            raise rejected("job rejected: 0 is an invalid task id")
        if len(self.numbers) > 75000:
            raise rejected("job rejected: you tried to submit a job with more than 75000 tasks")

    @property
    def numbers(self) -> range:
        return range(self.first, self.last + 1, self.step)

    def __str__(self) -> str:
        return f"{self.first}-{self.last}:{self.step}"


def check_name(name: str) -> str:
    if name[:1].isdigit():
        raise rejected(f'denied: "{name}" is not a valid object name (cannot start with a digit)')
    if name.lower() == "none":
        raise rejected('Keyword ("NONE") not allowed as objectname')
    if not name or not name.isascii() or re.search(r"[\s/:@*\\\[\]{}|()%'\"]", name):
        raise rejected(f'denied: "{name}" is not a valid object name')
    return name


_TIME, _MEMORY = ("h_rt", "s_rt"), ("h_vmem", "mem_free", "s_vmem", "virtual_free", "h_rss", "mem")
_GPUS = ("gpu", "gpus", "ngpus")
#: Known to every Grid Engine, and nothing that can be asked of machines here.
_IGNORED = ("arch", "h", "hostname", "h_cpu", "s_cpu", "h_data", "h_fsize", "slots", "num_proc")


def resources(text: str, others: list[str] | None = None) -> dict[str, str]:
    """What of `-l` is asked of the Engine; what only a site can know goes to the `others`."""
    found: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        if name in _TIME:
            if not re.fullmatch(r"\d+|\d*:\d*:\d+", value):
                raise rejected(f'attribute "{name}" is not a time value')
            hours, minutes, seconds = (["0", "0", *value.split(":")])[-3:]
            total = int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
            found["time"] = f"{total}s"
        elif name in _MEMORY:
            if not re.fullmatch(r"\d+(\.\d+)?[kKmMgGtT]?", value):
                raise rejected(f'attribute "{name}" is not a memory value')
            found["mem"] = value if value[-1:].isalpha() else f"{int(float(value)) // 1024 or 1}K"
        elif name in _GPUS:
            found["gpus"] = value or "1"
        elif others is not None:
            others.append(part)
        elif name not in _IGNORED:
            raise rejected(f'unknown resource "{name}"')
    return found
