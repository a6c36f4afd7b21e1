"""What Slurm's commands print, in the formats asked for here, and what its words mean. Pure.

Each question is a pair: the words that ask it, and the function that reads the answer. A line that
cannot be read is left out, never an error: Slurm's word is a second opinion.
"""

import math
import re
from collections.abc import Iterable

from msgspec import Struct

# --- jobs: squeue, sacct, scontrol -------------------------------------------------------------


class SlurmEntry(Struct, frozen=True):
    """One job as Slurm's commands list it."""

    #: The number of the whole job, also for a part of a heterogeneous one; a task of an array has
    #: one like `12_7`.
    id: str
    state: str
    reason: str = ""
    #: When it started or is expected to, as Slurm writes it; empty when that is not known.
    start: str = ""
    nodes: str = ""
    comment: str = ""
    exit_code: str = ""
    #: The folder it was told to run in.
    folder: str = ""
    partition: str = ""
    account: str = ""
    time_limit: str = ""

    def start_at(self) -> float:
        """The same as a moment; 0 where it is not known, or written for another time zone."""
        return float(self.start) if self.start.isdecimal() else 0.0


_QUEUE_FIELDS = "%i|%T|%r|%S|%N|%P|%a|%l|%Z|%k"
#: Moments as seconds since 1970: what the access node calls noon is not noon everywhere.
_PLAIN_TIMES = ["env", "SLURM_TIME_FORMAT=%s"]
_ACCOUNT_FIELDS = "JobID,State,ExitCode,Start,NodeList,WorkDir"
_NOTHING = frozenset({"", "(null)", "N/A", "None", "Unknown", "None assigned"})
_ID = re.compile(r"(\d+(?:_\d+)?)(?:[+.]\S*)?$")


def queue_words(user: str) -> list[str]:
    """All jobs of a user that the controller still knows, ended ones too: one call for all."""
    which = ["--states=all", "--array", f"--user={user}"]
    return [*_PLAIN_TIMES, "squeue", "--noheader", *which, f"--format={_QUEUE_FIELDS}"]


def read_queue(text: str) -> list[SlurmEntry]:
    found = []
    for line in text.splitlines():
        fields = line.strip().split("|", 9)
        if len(fields) == 10 and (number := _ID.match(fields[0])):
            state, reason, start, nodes, *rest, folder, comment = map(_said, fields[1:])
            found.append(
                SlurmEntry(
                    number[1], _state(state), reason, start, nodes, comment, "", folder, *rest
                )
            )
    return found


def account_words(ids: Iterable[str]) -> list[str]:
    """Jobs by number, from the accounting: the controller may have forgotten them."""
    asked = f"--jobs={','.join(ids)}"
    form = f"--format={_ACCOUNT_FIELDS}"
    return ["sacct", "--noheader", "--parsable2", "--allocations", "--duplicates", asked, form]


def read_accounts(text: str) -> list[SlurmEntry]:
    """A job that was requeued is listed once per run; the last line of it counts."""
    found: dict[str, SlurmEntry] = {}
    for line in text.splitlines():
        fields = line.strip().split("|", 5)
        if len(fields) == 6 and (number := _ID.match(fields[0])):
            state, code, start, nodes, folder = map(_said, fields[1:])
            found[number[1]] = SlurmEntry(
                number[1], _state(state), start=start, nodes=nodes, exit_code=code, folder=folder
            )
    return list(found.values())


def read_all_states(text: str, job_id: str) -> list[str]:
    """The states of all runs of one job, the earliest first."""
    fields = (line.strip().split("|", 5) for line in text.splitlines())
    return [_state(one[1]) for one in fields if len(one) == 6 and one[0] == job_id]


def detail_words(job_id: str) -> list[str]:
    return ["scontrol", "--oneliner", "show", "job", job_id]


def read_details(text: str) -> list[SlurmEntry]:
    found = []
    for line in text.splitlines():
        facts = dict(re.findall(r"(\w+)=(\S*)", line))
        number = facts.get("HetJobId") or facts.get("ArrayJobId") or facts.get("JobId", "")
        if "ArrayTaskId" in facts:
            number += f"_{facts['ArrayTaskId']}"
        if _ID.match(number) and "JobState" in facts:
            found.append(
                SlurmEntry(
                    number,
                    _state(facts["JobState"]),
                    _said(facts.get("Reason", "")),
                    _said(facts.get("StartTime", "")),
                    _said(facts.get("NodeList", "")),
                    _said(facts.get("Comment", "")),
                    facts.get("ExitCode", ""),
                )
            )
    return found


def read_plain_number(text: str) -> str:
    """Of a job, or a task of an array, that details were asked of; empty when there is none."""
    found = re.search(r"\bJobId=(\d+)", text)
    return found[1] if found else ""


def read_ticket(text: str) -> str:
    """The job's number from what `sbatch --parsable` printed; empty when there is none."""
    for line in reversed(text.splitlines()):
        number, _, _ = line.strip().partition(";")
        if number.isdigit():
            return number
    return ""


# --- the site ----------------------------------------------------------------------------------


def config_words() -> list[str]:
    return ["scontrol", "show", "config"]


def read_array_limit(text: str) -> int | None:
    """How many tasks an array may have at this site; None when it does not say."""
    found = re.findall(r"^MaxArraySize\s*=\s*(\d+)|\bmax_array_tasks=(\d+)", text, re.MULTILINE)
    return min((int(size or tasks) for size, tasks in found), default=None)


def read_memory_s(text: str) -> float:
    """For how long the controller remembers jobs that ended; for ever where it does not say."""
    found = re.search(r"^MinJobAge\s*=\s*(\d+)", text, re.MULTILINE)
    return float(found[1]) if found and int(found[1]) else math.inf


def association_words(user: str) -> list[str]:
    """The accounts that a user may spend from."""
    form = "format=account,qos"
    return ["sacctmgr", "--noheader", "--parsable2", "show", "associations", f"user={user}", form]


def read_associations(text: str) -> list[tuple[str, list[str]]]:
    fields = (line.strip().split("|") for line in text.splitlines())
    return [(one[0], list(filter(None, one[1].split(",")))) for one in fields if len(one) == 2]


class SlurmSite(Struct, frozen=True):
    """What a site says of itself."""

    #: How many tasks an array may have; None when it does not say.
    longest: int | None
    #: For how long the controller remembers a job that ended.
    memory_s: float
    #: When the controller was started, and when it said so, as Slurm writes times.
    booted: str
    as_of: str


def read_site(text: str) -> SlurmSite:
    as_of = re.search(r"^Configuration data as of (\S+)", text, re.MULTILINE)
    booted = re.search(r"^BOOT_TIME\s*=\s*(\S+)", text, re.MULTILINE)
    return SlurmSite(
        read_array_limit(text),
        read_memory_s(text),
        booted[1] if booted else "",
        as_of[1] if as_of else "",
    )


# --- numbers of arrays -------------------------------------------------------------------------


def spans(numbers: Iterable[int], width: int = 1) -> str:
    """1, 2, 3, 7 -> `1-3,7`; with zeros in front where numbers are written so wide."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    words = ([f"{number:0{width}d}" for number in sorted({*ends})] for ends in found)
    return ",".join(map("-".join, words))


def joined(ids: Iterable[str]) -> list[str]:
    """Numbers for one command line, those of an array as one word: `12_[1-3,7]`."""
    found: dict[str, list[int]] = {}
    for one in ids:
        number, _, task = one.partition("_")
        found.setdefault(number, []).extend([int(task)] if task else [])
    return [f"{n}_[{spans(tasks)}]" if tasks else n for n, tasks in sorted(found.items())]


def _said(text: str) -> str:
    return "" if text.strip() in _NOTHING else text.strip()


def _state(text: str) -> str:
    """`CANCELLED by 1000` and `CANCELLED+` are both CANCELLED."""
    words = text.split()
    return words[0].rstrip("+").upper() if words else "UNKNOWN"


# --- what the words mean -----------------------------------------------------------------------

#: In these the job is in the queue and has nothing running.
WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"})
#: In these it has ended, and the controller will do nothing more for it.
ENDED = {
    "COMPLETED": "",
    "FAILED": "",
    "CANCELLED": "cancelled in Slurm",
    "REVOKED": "cancelled in Slurm",
    "TIMEOUT": "stopped at its time limit",
    "DEADLINE": "it could not end before its deadline, so Slurm ended it",
    "OUT_OF_MEMORY": "killed because it used more memory than it asked for (--mem)",
    "NODE_FAIL": "its node failed",
    "BOOT_FAIL": "its node could not be started",
    "PREEMPTED": "Slurm took its place for another job; --requeue starts it again by itself",
}

_REASONS = {
    "Priority": "other jobs are before it in Slurm's queue",
    "Resources": "it is next, as soon as what it needs is free",
    "Dependency": "it waits for another job to end",
    "DependencyNeverSatisfied": "it waits for a job that did not end as required",
    "BeginTime": "it may start only at a later time",
    "JobHeldUser": "it is held; `scontrol release` lets it go",
    "JobHeldAdmin": "an administrator holds it",
    "JobArrayTaskLimit": "as many of its batch as may run at once are running",
    "PartitionDown": "its partition is switched off",
    "PartitionInactive": "its partition does not start jobs now",
    "PartitionNodeLimit": "it asks for more nodes than its partition allows",
    "PartitionTimeLimit": "it asks for more time than its partition allows",
    "PartitionConfig": "it asks for more than its partition has now",
    "ReqNodeNotAvail": "no node of that kind is up now",
    "Nodes required for job are DOWN": "no node of that kind is up now",
    "NodeDown": "a node it needs is down",
    "BadConstraints": "no node can do what it asks for",
    "Licenses": "a licence it needs is not free",
    "Reservation": "its reservation has not begun",
    "Cleaning": "Slurm clears up after its last run",
    "InvalidAccount": "its account is not valid; choose one with -o account=NAME",
    "InvalidQOS": "its quality of service is not valid; choose one with -o qos=NAME",
    "QOSMaxJobsPerUserLimit": "you have as many jobs running as your quality of service allows",
    "AssocMaxJobsLimit": "your account has as many jobs running as it may",
    "AssocGrpCPUMinutesLimit": "your account has used up its CPU time",
    "AssocGrpGRES": "your account uses as many GPUs as it may",
    "QOSMaxGRESPerUser": "you use as many GPUs as your quality of service allows",
    "launch failed requeued held": "it failed to start and is held; `scontrol release` lets it go",
}


def why_waiting(listed: SlurmEntry) -> str:
    """Slurm's reason in words; its own word is kept beside them."""
    if not listed.reason:
        return "in Slurm's queue"
    word = listed.reason.partition(",")[0].strip("()")
    words = _REASONS.get(word) or _by_family(word)
    return f"{words} (Slurm: {listed.reason})" if words else f"Slurm: {listed.reason}"


def _by_family(word: str) -> str:
    """Slurm has some hundred limits whose names say what they are."""
    if word.startswith("QOS"):
        return "a limit of its quality of service is reached"
    if word.startswith("Assoc"):
        return "a limit of your account is reached"
    return "a limit of the cluster is reached" if word.endswith("Limit") else ""


#: What Slurm's commands say when asking again later can help.
_PASSING = (
    "socket timed out",
    "unable to contact slurm controller",
    "temporarily unable",
    "temporarily unavailable",
    "connection refused",
    "connection reset",
    "connection timed out",
    "transport endpoint is not connected",
    "zero bytes were transmitted",
    "unexpected message received",
    "communication connection failure",
    "rate limit",
    "backup controller",
    "slurm controller is in standby",
    "slurmdbd",
    "munge",
    "protocol authentication error",
)
#: What `sbatch --test-only` says when nodes are drained, down or busy, though sbatch takes the job.
_NOT_NOW = (
    "requested node configuration is not available",
    "requested partition configuration not available now",
    "required node not available",
    "nodes required for job are down",
    "requested nodes are busy",
    "node not responding",
)
#: The same for limits on how many jobs may be in the queue: room comes when jobs end.
_FULL = (
    "submitjob",
    "maxsubmit",
    "job submit limit",
    "max job count",
    "job queue full",
    "maximum number of jobs",
)


def is_passing(error: str) -> bool:
    """A trouble of the moment: nothing is wrong with what was asked."""
    text = error.lower()
    return any(sign in text for sign in _PASSING)


def is_not_now(error: str) -> bool:
    """No node can take it at the moment; whether one ever could is another question."""
    text = error.lower()
    return any(sign in text for sign in _NOT_NOW)


def is_full(error: str) -> bool:
    text = error.lower().replace(" ", "")
    return any(sign.replace(" ", "") in text for sign in _FULL)


def has_no_accounting(error: str) -> bool:
    return "accounting storage is disabled" in error.lower()


def expected(answer: str) -> str:
    """When and where a job would start, from what `sbatch --test-only` said."""
    told = re.search(r"to start at (\S+)T(\S+) using .* on (?:nodes )?(\S+)", answer)
    return f"it would start on {told[3]} on {told[1]} at {told[2]}" if told else complaint(answer)


def complaint(error: str) -> str:
    """What sbatch complained about, in one line, without its prefixes."""
    lines = [re.sub(r"^\w+: (error: |fatal: )?", "", line) for line in error.splitlines()]
    useful = [line.strip() for line in lines if line.strip() and "--help" not in line]
    plain = [re.sub(r"^(Batch job submission failed|allocation failure): ", "", s) for s in useful]
    return "; ".join(dict.fromkeys(plain))[:500] or "it said nothing"
