"""The values of options of `qsub`: read, or refused as Grid Engine refuses them."""

from __future__ import annotations

import re
import time

from towline.cli.compat.gridengine.submit.refusals import Refused, no_number, rejected


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
    wrong = "format of date/hour-minute field"
    try:
        if found is None:
            raise ValueError
        century, year, rest, seconds = found.groups()
        if century and not year:
            century, year = "20" if int(century) < 70 else "19", century
        wrong = wrong if 1 <= int(rest[:2]) <= 12 else "month specification"
        whole = f"{century}{year}" if year else time.strftime("%Y", time.localtime(now))
        read = time.strptime(f"{whole}{rest}{seconds or '00'}", "%Y%m%d%H%M%S")
        return time.mktime(read)
    except (ValueError, OverflowError):
        raise Refused(
            f'\nInvalid {wrong}.\nqsub: Wrong date/time format "{text}" specified to -a option',
            7,
        ) from None


class Tasks:
    """The tasks of an array."""

    def __init__(self, text: str) -> None:
        found = re.fullmatch(r"(\d+)(?:-(\d+)(?::(-?\d+))?)?", text)
        if not found:
            raise no_number(text)
        first = int(found[1])
        last = int(found[2] or first)
        self.first, self.last, self.step = min(first, last), max(first, last), int(found[3] or 1)
        if self.step <= 0:
            raise Refused("qsub: Negative or zero step in range is not allowed", 7)
        if not self.first:
            raise rejected("job rejected: 0 is an invalid task id")
        if len(self.numbers) > 75000:
            raise rejected("job rejected: you tried to submit a job with more than 75000 tasks")

    @property
    def numbers(self) -> range:
        return range(self.first, self.last + 1, self.step)

    def __str__(self) -> str:
        return f"{self.first}-{self.last}:{self.step}"


_SIGNS = {":": "Colon", "@": "At", "*": "Asterisk", "\\": "Backslash"}


def check_name(name: str) -> str:
    if "/" in name:
        raise Refused("qsub: argument to -N option must not contain / ", 2)
    if not name:
        raise rejected("job rejected cause there is no job_name in the request")
    if name[:1].isdigit():
        raise rejected(f'denied: "{name}" is not a valid object name (cannot start with a digit)')
    if name.lower() == "none":
        raise rejected('Keyword ("NONE") not allowed as objectname')
    if sign := next((sign for sign in name if sign in _SIGNS), ""):
        raise rejected(f"{_SIGNS[sign]} ('{sign}') not allowed in objectname")
    if not name.isascii() or re.search(r"[\s'\"]", name):
        # Of these, Grid Engine itself only says that it cannot read the answer.
        raise rejected(
            f'denied: "{name}" is not a valid object name (a blank, a quote or not ASCII)'
        )
    return name


def check_yes_or_no(name: str, text: str) -> None:
    if text.lower() not in ("y", "yes", "n", "no"):
        raise Refused(f'qsub: invalid option argument "{name} {text}"', 7)


def check_slots(text: str) -> None:
    """The range behind the name of a parallel environment."""
    for number in text.lstrip("-").split("-") if text != "-" else [text]:
        if number and not number.isdecimal():
            raise no_number(number)
    if not re.search("[0-9]", text):
        raise no_number(text)
    if text.strip("-") == "0":
        raise rejected('"job" rejected: pe range must be greater than zero')


def check_mail_letters(text: str) -> None:
    """When somebody is written to: b(egin), e(nd), a(bort), s(uspended), n(ever)."""
    if not text or not set(text) <= set("beasn"):
        raise Refused(f'qsub: Wrong mail options list format "{text}" specified to -m option', 7)


def concurrency(text: str) -> int:
    if not text.isdecimal():
        raise Refused(
            f'qsub: invalid task concurrency number "{text}".'
            " Must be an integer greater or equal to 0.",
            7,
        )
    return int(text)


def priority(text: str) -> int:
    if not re.fullmatch(r"[+-]?\d+", text) or not -1023 <= int(text) <= 1024:
        must = "Must be an integer from -1023 to 1024"
        raise Refused(f'qsub: invalid priority "{text}".  {must}', 7)
    return int(text)


def allowed_priority(text: str) -> int:
    """Nobody comes before others by himself."""
    number = priority(text)
    if number > 0:
        denied = "job rejected: positive submission priority requires operator privileges"
        raise rejected(denied)
    return number


_TIME, _MEMORY = ("h_rt", "s_rt"), ("h_vmem", "mem_free", "s_vmem", "virtual_free", "h_rss", "mem")
_GPUS = ("gpu", "gpus", "ngpus")
#: Known to every Grid Engine, and nothing that can be asked of machines here.
_IGNORED = ("arch", "h", "hostname", "h_cpu", "s_cpu", "h_data", "h_fsize", "slots", "num_proc")


def resources(text: str, others: list[str] | None = None, slots: int = 1) -> dict[str, str]:
    """What of `-l` is asked of the Engine; what only a site can know goes to the `others`. GPUs are
    counted by slot."""
    found: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        if name in (*_TIME, *_MEMORY) and "=" in part and not value:
            raise rejected(f'denied: missing value for resource "{name}"')
        if name in _TIME:
            if not re.fullmatch(r"\d+|\d*:\d*:\d+", value):
                raise rejected(f'attribute "{name}" is not a time value')
            hours, minutes, seconds = (["0", "0", *value.split(":")])[-3:]
            total = int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
            found["time"] = f"{total}s"
        elif name in _MEMORY:
            if not re.fullmatch(r"\d+(\.\d+)?[kKmMgGtT]?", value):
                raise rejected(f'attribute "{name}" is not a memory value')
            if others is not None:
                # A Grid Engine counts it by slot, and by this very name.
                others.append(part)
                continue
            found["mem"] = value if value[-1:].isalpha() else f"{int(float(value)) // 1024 or 1}K"
        elif name in _GPUS:
            if not re.fullmatch(r"\d*", value):
                raise rejected(f'attribute "{name}" is not a integer value')
            if count := int(value or 1) * slots:
                found["gpus"] = str(count)
        elif others is not None:
            others.append(part)
        elif name not in _IGNORED:
            raise rejected(f'unknown resource "{name}"')
    return found
