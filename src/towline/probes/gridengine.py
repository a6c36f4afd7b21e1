"""What Grid Engine's commands print about jobs: qsub, qstat, qalter and qacct. Pure.

Texts are those of a real 8.1.9; what another Grid Engine says differently is left out, or counts as
unknown.
"""

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

#: Between what people call a job and the name under which it was handed over.
MARK = ".tow."
#: How the accounts name our jobs.
ACCOUNT = "tow."

_TICKET = re.compile(r"^\s*(\d+)(?:\.\d+-\d+:\d+)?\s*$|Your job(?:-array)? (\d+)", re.MULTILINE)
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?\Z")
#: Most tasks that one list of them is taken to mean.
_MOST_TASKS = 100_000
_PASSING = (
    "unable to send message to qmaster",
    "unable to contact qmaster",
    "commlib error",
    "got select error",
    "got send error",
    "got read error",
    "unable to read qmaster name",
    "timed out",
    "temporarily unavailable",
    "try again later",
)
_FULL = re.compile(r"only \d+ jobs are allowed|max_u_jobs|max_jobs|job limit", re.IGNORECASE)
_ERROR = re.compile(r"^error reason\s+(\d+):\s*(.*)$")
#: `11/16/2026 10:34:29 [7799:66]: error: can't chdir to ..` without what only its admin wants.
_STAMP = re.compile(r"^\S+ \S+ \[\d+:\d+\]:\s*(?:error:\s*)?")
_TOLD_OFF = "scheduler job information is turned off"


class Listed(Struct, frozen=True):
    """One line of `qstat -xml`: a job, or tasks of one that stand alike."""

    number: str
    name: str
    state: str
    queue: str = ""
    tasks: tuple[int, ...] = ()

    @property
    def host(self) -> str:
        return self.queue.partition("@")[2]

    @property
    def is_waiting(self) -> bool:
        """Letters are a set; whatever is not known is still there."""
        return not self.queue or bool({"q", "w"} & set(self.state))

    @property
    def has_error(self) -> bool:
        return "E" in self.state

    @property
    def is_suspended(self) -> bool:
        """By somebody, with its queue, or because its host has too much to do."""
        return not self.is_waiting and bool({"s", "S", "T"} & set(self.state))


class Why(Struct, frozen=True):
    """What `qstat -j` says of a job that waits."""

    #: Task -> why it is in error state; a job that is no array has the task 1.
    errors: dict[int, str] = {}
    reasons: tuple[str, ...] = ()
    #: The site does not collect reasons.
    is_off: bool = False


class JobAccount(Struct, frozen=True):
    """One record of qacct: one run of a job or task."""

    number: str
    task: str
    account: str
    host: str
    failed: int
    #: What `failed` means, in Grid Engine's words.
    failure: str
    exit_status: int
    wallclock_s: float
    #: What was asked for, as far as it decides where it may run.
    category: str = ""

    @property
    def id(self) -> str:
        return f"{self.number}_{self.task}" if self.task else self.number


# --- submitting ----------------------------------------------------------------------------------


def read_ticket(text: str) -> str:
    """The number, wherever a site's own lines put it; empty when there is none."""
    found = _TICKET.search(text)
    return (found[1] or found[2]) if found else ""


def complaint(error: str) -> str:
    """What a command complained about, in one line."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    lines = [line for line in lines if line != "Exiting."]
    told = next((line for line in lines if line.startswith("Unable to run job:")), "")
    told = told.removeprefix("Unable to run job:").strip() or next(iter(lines), "")
    return re.sub(r"^Job \d+ ", "", told) or "it gave no reason"


def is_passing(error: str) -> bool:
    """Asking again later can help."""
    text = error.lower()
    return any(sign in text for sign in _PASSING)


def is_full(error: str) -> bool:
    return _FULL.search(error) is not None


# --- listing -------------------------------------------------------------------------------------


def list_words(user: str) -> list[str]:
    """A user's own settings may change the columns, but not this."""
    return ["qstat", "-xml", "-u", user, "-s", "prs"]


def read_list(text: str) -> list[Listed]:
    """ValueError where it is no whole list: then nothing may be taken to be gone."""
    from xml.etree import ElementTree  # not quick to load, and only some have a Grid Engine

    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as problem:
        raise ValueError(f"qstat's list cannot be read: {problem}") from None
    return [listed for one in root.iter("job_list") if (listed := _listed(one)) is not None]


def _listed(one: "Element") -> Listed | None:
    told = {part.tag: (part.text or "").strip() for part in one}
    number = told.get("JB_job_number", "")
    if not number.isdecimal():
        return None
    tasks = tuple(tasks_in(told.get("tasks", "")))
    name = told.get("full_job_name") or told.get("JB_name", "")
    return Listed(number, name, told.get("state", ""), told.get("queue_name", ""), tasks)


def tasks_in(text: str) -> Iterator[int]:
    """`2,4-10:3` -> 2, 4, 7, 10."""
    for part in filter(None, text.split(",")):
        found = _RANGE.match(part.strip())
        if found is None:
            continue
        first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
        yield from range(first, min(last, first + _MOST_TASKS) + 1, max(1, step))


def mark_of(name: str) -> str:
    """The name under which a job was handed over; empty for one that is not ours."""
    return name.rpartition(MARK)[2] if MARK in name else ""


def numbers(ids: Iterable[str]) -> list[str]:
    """`12`, `13_5`, `13_6` as qdel takes them: 12 13.5-6."""
    tasks: dict[str, list[int]] = {}
    for id in ids:
        number, _, task = id.partition("_")
        tasks.setdefault(number, []).extend([int(task)] if task else [])
    found: list[str] = []
    for number, some in tasks.items():
        found += [f"{number}.{span}" for span in spans(some)] if some else [number]
    return found


def spans(tasks: Iterable[int]) -> list[str]:
    """1, 2, 3, 5 -> 1-3, 5."""
    found: list[list[int]] = []
    for task in sorted(set(tasks)):
        if found and found[-1][1] == task - 1:
            found[-1][1] = task
        else:
            found.append([task, task])
    return [str(first) if first == last else f"{first}-{last}" for first, last in found]


# --- why jobs wait -------------------------------------------------------------------------------


def why_words(numbers: Iterable[str]) -> list[str]:
    return ["qstat", "-j", ",".join(numbers)]


def read_whys(text: str) -> dict[str, Why]:
    """Number -> why; jobs are told apart by the line that begins each."""
    found = {}
    for part in re.split(r"^=+$", text, flags=re.MULTILINE):
        number = re.search(r"^job_number:\s+(\d+)", part, re.MULTILINE)
        if number:
            found[number[1]] = _why(part.splitlines())
    return found


def _why(lines: list[str]) -> Why:
    errors, reasons, inside = {}, [], False
    for line in lines:
        if error := _ERROR.match(line):
            errors[int(error[1])] = _STAMP.sub("", error[2])
        inside = line.startswith("scheduling info:") or (inside and line.startswith(" "))
        if inside:
            reasons.append(line.removeprefix("scheduling info:").strip())
    off = any(_TOLD_OFF in reason for reason in reasons)
    told = tuple(dict.fromkeys(filter(None, reasons)))
    return Why(errors, () if off else told, off)


def check_words(numbers: Iterable[str]) -> list[str]:
    """Ask what keeps jobs from running where the site does not collect reasons."""
    script = 'for n; do qalter -w p "$n" 2>&1; done; :'
    return ["sh", "-c", script, "sh", *numbers]


def read_checks(text: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if told := re.match(r"Job (\d+) (.*)", line):
            found.setdefault(told[1], []).append(told[2])
    return {number: tuple(reasons) for number, reasons in found.items()}


_NEVER_MEANT = ("requests unknown resource", "not contained in its hard queue list")


def in_words(reasons: Iterable[str]) -> str:
    """Why a job waits, for people; empty where nothing tells."""
    told = list(dict.fromkeys(reasons))
    if any(reason.startswith("All queues dropped") for reason in told):
        full = [one for one in told if not re.search(r"dropped because it is (full|over)", one)]
        told = [one for one in full if not one.startswith("All queues dropped")]
        told = told or ["all places are taken, or its hosts are too busy"]
    told = [re.sub(r"^queue instance (.*) dropped because it", r"\1", one) for one in told]
    plain = [one for one in told if one != "Job is in error state"]
    # Hosts that it was never meant for may be many: what keeps it from the others comes first.
    plain.sort(key=lambda one: any(words in one for words in _NEVER_MEANT))
    return "; ".join(plain[:3])[:500]


# --- accounts ------------------------------------------------------------------------------------


def account_words(numbers: Iterable[str]) -> list[str]:
    """One job a call: of several it takes the first, without a word."""
    script = 'command -v qacct >/dev/null || exit 127; for n; do qacct -j "$n"; done; :'
    return ["sh", "-c", script, "sh", *numbers]


def read_accounts(text: str) -> list[JobAccount]:
    """The last run of each job and task."""
    found: dict[str, JobAccount] = {}
    for part in re.split(r"^=+$", text, flags=re.MULTILINE):
        told = dict(re.findall(r"^(\w+)[ \t]+(.*?)[ \t]*$", part, re.MULTILINE))
        if told.get("jobnumber", "").isdecimal():
            one = _account(told)
            found[one.id] = one
    return list(found.values())


def _account(told: dict[str, str]) -> JobAccount:
    failed, _, failure = told.get("failed", "").partition(":")
    status = re.match(r"-?\d+", told.get("exit_status", ""))
    wallclock = re.match(r"[\d.]+", told.get("ru_wallclock", ""))
    task = told.get("taskid", "")
    return JobAccount(
        told["jobnumber"],
        task if task.isdecimal() else "",
        told.get("account", ""),
        told.get("hostname", ""),
        int(failed) if failed.strip().isdecimal() else 0,
        failure.strip(),
        int(status[0]) if status else 0,
        float(wallclock[0]) if wallclock else 0.0,
        told.get("category", ""),
    )
