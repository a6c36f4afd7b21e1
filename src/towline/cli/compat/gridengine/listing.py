"""Jobs and arrays of tasks as Grid Engine lists them."""

from __future__ import annotations

import fnmatch
import math
import re
import time

from towline.client.batches import batches, jobs_of
from towline.client.waiting import FINAL
from towline.model.names import shown_cluster

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from towline.client.session import Session

#: Where a job stands, in Grid Engine's letters.
LETTERS = {
    "new": "qw",
    "staging": "qw",
    "waiting": "qw",
    "queued": "qw",
    "starting": "t",
    "running": "r",
    "stopping": "dr",
}
SUSPENDED = "s"
#: Of what waits: the last is being deleted before it began.
WAITING = ("qw", "hqw", "Eqw", "Ehqw", "Rq", "hRq", "ERq", "dqw")


class Entry:
    """A job, or a task of an array."""

    def __init__(
        self, job: dict[str, Any], batch: dict[str, Any] | None = None, ended: bool = False
    ) -> None:
        self.job = int(job["id"])
        #: What `qsub` called it: of an array, the number of its first job.
        self.number = int(batch["first"]) if batch else self.job
        self.task = int(job["line"]) if batch else 0
        self.batch = str(batch["name"]) if batch else ""
        self.name = str(job["title"])
        self.user = str(job["owner"])
        self.state = "z" if ended else _letters(job, batch)
        self._machines = job.get("machines") or []
        self.cluster = shown_cluster(job["cluster"])
        own = job.get("queue") or {}
        # What was taken back into its queue waits since then.
        again = float(own.get("requeued_at") or 0.0) if self.is_waiting else 0.0
        self.at = again or float(job.get("started") or job["submitted"])
        #: What the cluster itself calls the queue, where it has one.
        self.among = str(own.get("partition") or "") or self.cluster
        place = f"{self.among}@{self._machines[0]}" if self._machines else ""
        self.queue = "" if self.is_waiting else place
        self.environment, self.slots = _parallel(str(job["request"]), asked_of_queue(job))
        self.view = job
        waits = (batch or {}).get("waits_for") or job.get("waits_for") or []
        #: What it waits for: of arrays, the names.
        self.awaited: list[int | str] = [one.get("batch") or int(one["job"]) for one in waits]
        rank = 0.5 + int(job.get("priority") or 0) / 4096
        self.priority = 0.0 if self.is_kept_back else rank

    @property
    def is_waiting(self) -> bool:
        """Also what is on its way to a place that is not known here yet."""
        return self.state in (*WAITING, "z") or (self.state == "t" and not self._machines)

    @property
    def is_kept_back(self) -> bool:
        """By somebody, by other jobs or until a time: Grid Engine counts all of them as holds."""
        later = float(self.view.get("begin") or 0.0) > time.time()
        return self.is_waiting and ("h" in self.state or later)


def _letters(job: dict[str, Any], batch: dict[str, Any] | None) -> str:
    held = bool(job.get("waits_for")) or (job.get("because") or {}).get("kind") == "held"
    if batch is not None and job["state"] == "queued":
        held = bool(batch.get("waits_for") or batch.get("held"))
    letters = LETTERS.get(job["state"], "qw")
    if letters == "dr" and not job.get("started"):
        return "dqw"
    if letters == "qw" and held:
        return "hqw"
    queue = job.get("queue") or {}
    # What a Grid Engine itself says of it: in error, or to be run again.
    is_grid = queue.get("kind") == "gridengine"
    own = str(queue.get("reason") or "") if is_grid else ""
    if letters == "r" and queue.get("suspended"):
        return SUSPENDED
    if letters == "qw" and is_grid and queue.get("partition") and not own:
        # It has a place, and is on its way there.
        return LETTERS["starting"]
    return own if letters == "qw" and own in WAITING else letters


def asked_of_queue(job: dict[str, Any]) -> dict[str, list[str]]:
    """The options that its queue was given, by name, each with all of its values."""
    words = [str(word) for part in (job.get("queue") or {}).get("options") or [] for word in part]
    found: dict[str, list[str]] = {}
    for word in words:
        if re.match("-+[A-Za-z]", word):
            name, equals, value = word.partition("=")
            last = found.setdefault(name, [])
            last += [value] if equals else []
        elif found:
            last.append(word)
    return found


def _parallel(request: str, asked: dict[str, list[str]]) -> tuple[str, int]:
    """The parallel environment, as far as it is known, and the slots of a job."""
    named = asked.get("-pe", [])
    if len(named) == 2:
        least = re.search(r"\d+", named[1])
        return named[0], max(1, int(least[0])) if least else 1
    slots = 0
    for count, inside in re.findall(r"(?:(\d+):)?\[([^\]]*)\]", request):
        cpus = re.search(r"cpus=([\d.]+)", inside)
        slots += int(count or 1) * max(1, math.ceil(float(cpus[1])) if cpus else 1)
    return ("smp" if slots > 1 else ""), max(1, slots)


class Entries:
    """All that has not ended."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.all = [Entry(job) for job in session.call("GET", "/v1/jobs?state=active")["jobs"]]
        numbers: dict[int | str, int] = {}
        for view in batches(session):
            numbers[view["name"]] = int(view["first"])
            if view["ended"] is None:
                found = jobs_of(session, view["name"], state="active")
                self.all += [Entry(job, found["batch"]) for job in found["jobs"]]
        for entry in self.all:
            entry.awaited = [numbers.get(one, one) for one in entry.awaited]
        self.all.sort(key=lambda entry: (entry.is_waiting, entry.number, entry.task))

    def ended(self) -> list[Entry]:
        """Those that ended lately, as `qstat -s z` shows them."""
        lately = self.session.call("GET", "/v1/jobs")["jobs"]
        found = [Entry(job, ended=True) for job in lately if job["state"] in FINAL]
        for view in batches(self.session):
            if view["ended"] is not None:
                jobs = jobs_of(self.session, view["name"])["jobs"]
                found += [Entry(job, view, ended=True) for job in jobs]
        return found

    def called(self, name: str) -> list[Entry]:
        """Those of a number, `number.task`, or of a name or pattern of names."""
        number, _, task = name.partition(".")
        if number.isdecimal() and (not task or re.fullmatch(r"[\d,:-]+", task)):
            mine = [entry for entry in self.all if entry.number == int(number)]
            chosen = task_numbers(task)
            return [entry for entry in mine if not task or entry.task in chosen]
        return [entry for entry in self.all if fnmatch.fnmatchcase(entry.name, name)]


def unknown_job(name: str, me: str) -> str:
    """What Grid Engine says of a name that nothing has."""
    if name.partition(".")[0].isdecimal():
        return f'denied: job "{name.partition(".")[0]}" does not exist'
    return f"The job {name} of user(s) {me} does not exist"


def task_numbers(text: str) -> set[int]:
    """`1,3-7:2` as the tasks that it names."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        if first.isdecimal():
            stop = int(last) if last.isdecimal() else int(first)
            found.update(range(int(first), stop + 1, max(1, int(step or 1))))
    return found


def task_text(tasks: Iterable[int]) -> str:
    """Tasks as Grid Engine writes them: `1,2`, `3-10:1`."""
    numbers = sorted(tasks)
    words: list[str] = []
    while numbers:
        run = [numbers[0]]
        step = numbers[1] - numbers[0] if len(numbers) > 1 else 1
        while len(run) < len(numbers) and numbers[len(run)] == run[-1] + step:
            run.append(numbers[len(run)])
        if len(run) < 3:
            run = run[:1]
            words.append(str(run[0]))
        else:
            words.append(f"{run[0]}-{run[-1]}:{step}")
        del numbers[: len(run)]
    return ",".join(words)


def folded(entries: Iterable[Entry], each: bool = False) -> list[tuple[Entry, str]]:
    """One line for each that runs; tasks that wait alike share one, unless `each` is wanted."""
    lines: list[tuple[Entry, str]] = []
    together: dict[tuple[int, str], list[Entry]] = {}
    for entry in entries:
        if not entry.task:
            lines.append((entry, ""))
        elif each or not entry.is_waiting:
            lines.append((entry, str(entry.task)))
        else:
            together.setdefault((entry.number, entry.state), []).append(entry)
    lines += [(some[0], task_text(one.task for one in some)) for some in together.values()]
    lines.sort(key=lambda line: _order(line[0]))
    return lines


def _order(entry: Entry) -> tuple[bool, float, int, int]:
    """What runs comes first; of what waits, what comes first."""
    rank = -entry.priority if entry.is_waiting else 0.0
    return entry.is_waiting, rank, entry.number, entry.task


def table(lines: list[tuple[Entry, str]], extended: bool = False, requests: bool = False) -> str:
    """Grid Engine's own columns, blank for blank; nothing at all for nothing."""
    if not lines:
        return ""
    if extended:
        return _EXTENDED + "".join(_extended(entry, tasks) for entry, tasks in lines)
    head = (
        "job-ID  prior   name       user         state submit/start at     queue"
        "                          slots ja-task-ID \n" + "-" * 113 + "\n"
    )
    asked = _asked if requests else lambda entry: ""
    return head + "".join(_line(entry, tasks) + asked(entry) for entry, tasks in lines)


def _asked(entry: Entry) -> str:
    """`-r`: the whole name, and what was asked for."""
    parallel = f"{entry.environment} {entry.slots}" if entry.environment else ""
    waits = ", ".join(map(str, entry.awaited))
    facts = [
        ("Full jobname:", entry.name),
        ("Master Queue:", entry.queue),
        ("Requested PE:", parallel),
        ("Granted PE:", parallel if entry.queue else ""),
    ]
    text = "".join(f"       {name:<17} {value}\n" for name, value in facts if value)
    asked = hard_resources(entry) or [""]
    text += f"       {'Hard Resources:':<17} {asked[0]}\n"
    text += "".join(f"{'':<25}{one}\n" for one in asked[1:])
    text += f"       {'Soft Resources:':<17} \n"
    text += f"       Predecessor Jobs: {waits}\n" if waits else ""
    return text + f"       {'Binding:':<17} NONE\n"


def hard_resources(entry: Entry, note: str = " (0.000000)", time_s: float = 0.0) -> list[str]:
    """Time, memory and GPUs in Grid Engine's words, and what a Grid Engine itself was asked for."""
    request, asked = str(entry.view["request"]), asked_of_queue(entry.view)
    found = [one for text in asked.get("-l") or [] for one in text.split(",")]
    if time_s:
        # Its queue's own limit is a minute later.
        found = [one for one in found if not one.startswith("h_rt=")] + [f"h_rt={time_s:.0f}"]
    if (memory := re.search(r"\bmem=([\d.]+[KMGT]?)", request)) and "-l" not in asked:
        found.append(f"h_vmem={memory[1]}")
    if gpus := re.search(r"[\[,](?:(\d+):)?gpu\b", request):
        found.append(f"gpu={gpus[1] or 1}")
    return [f"{one}{note}" for one in found]


_EXTENDED = (
    "job-ID  prior   ntckts  name       user         project          department state cpu        "
    "mem     io      tckts ovrts otckt ftckt stckt share queue                          slots "
    "ja-task-ID \n" + "-" * 192 + "\n"
)


def _extended(entry: Entry, tasks: str) -> str:
    """`-ext`; nobody has tickets here, and what a job used is not known while it runs."""
    used = "" if entry.is_waiting else "NA"
    tickets = min(0.5, entry.priority)
    return (
        f"{entry.number:7d} {entry.priority:7.5f} {tickets:7.5f} {entry.name[:10]:<10} "
        f"{entry.user[:12]:<12} {'NA':<16} {'defaultdep':<10} {entry.state[:5]:<5} {used:<10} "
        f"{used:<7} {used:<7} " + f"{0:5d} " * 5 + f"{'0.00':<5} {entry.queue[:30]:<30} "
        f"{entry.slots:5d} {tasks or ' ' * 7}\n"
    )


def _line(entry: Entry, tasks: str) -> str:
    at = time.strftime("%m/%d/%Y %H:%M:%S", time.localtime(entry.at))
    return (
        f"{entry.number:7d} {entry.priority:7.5f} {entry.name[:10]:<10} {entry.user[:12]:<12} "
        f"{entry.state[:5]:<5} {at} {entry.queue[:30]:<30} {entry.slots:5d} {tasks or ' ' * 7}\n"
    )
