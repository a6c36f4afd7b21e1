"""What a queue tells a job on its node, and is asked there: all that runners know of the queues.

Each kind has variables and commands of its own, and the same functions. Which one it is shows in
the environment that it gives a job.
"""

import json
import os
import re
import shlex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from ..typed import Message

    #: The words of a program, and the processes that it starts.
    Step = tuple[list[str], range]
    ClaimedRun = Callable[[], "int | None"]

WORDS_S = 10.0
#: Where queues put what a job prints outside of its processes; of a task, with its number.
OUTPUTS = ("slurm%s.out", "grid%s.out")
#: Where a queue names the GPUs of a job, besides where programs look for them.
GPU_VARIABLES = ("SLURM_JOB_GPUS", "GPU_DEVICE_ORDINAL")
#: So often a runner looks whether it is to stop, where the queue itself says so too.
SELDOM_S = 5.0


#: What the first program of a job tells those that it starts on nodes.
OURS: "tuple[bytes, ...]" = (b"TOWLINE_BEGAN", b"TOWLINE_RUN")


class Slurm:
    title = "Slurm"
    look_s = SELDOM_S
    #: Folders on the node that the queue made for the job, best first.
    scratch: "tuple[bytes, ...]" = (b"SLURM_TMPDIR", b"TMPDIR")
    prefixes: "tuple[bytes, ...]" = (b"SLURM_", b"CUDA_", b"GPU_")
    names: "tuple[bytes, ...]" = ()
    #: Which of the processes on this node we are, where the queue does not say.
    index = 0
    #: It tells a job which of a node's GPUs it has.
    names_gpus = True

    def task(self) -> str:
        return os.environ["SLURM_ARRAY_TASK_ID"]

    def entry(self, is_task: bool) -> str:
        if is_task:
            return "%s_%s" % (os.environ["SLURM_ARRAY_JOB_ID"], self.task())
        return os.environ.get("SLURM_JOB_ID", "")

    def restarts(self, _claimed_run: "ClaimedRun") -> int:
        return int(os.environ.get("SLURM_RESTART_COUNT") or 0)

    def process(self) -> int:
        return int(os.environ["SLURM_PROCID"])

    def process_here(self) -> int:
        return int(os.environ.get("SLURM_LOCALID") or 0)

    def node_name(self) -> str:
        return os.environ.get("SLURMD_NODENAME", "")

    def exit_code(self, code: int) -> int:
        return code

    def steps(self, parts: "list[Message]", command: "list[str]") -> "list[Step]":
        found = []
        for index, part in enumerate(parts):
            words = ["srun", "--ntasks=%d" % part["count"], "--cpus-per-task=%d" % part["cpus"]]
            words += ["--export=ALL", "--kill-on-bad-exit=0", "--wait=0", "--input=none"]
            words += ["--het-group=%d" % index] if len(parts) > 1 else []
            first = part["first"]
            ranks = range(first, first + part["count"])
            found.append((words + command + [str(first)], ranks))
        return found

    def step_environ(self) -> "dict[str, str]":
        """So that an `srun` in the user's own script need not wait for these steps to end."""
        return dict(os.environ, SLURM_OVERLAP="1")

    def requeue(self, number: str) -> bool:
        return answer(["scontrol", "requeue", number]) is not None

    def ran_out(self, number: str) -> bool:
        """It says no other reason while a job ends."""
        text = answer(["scontrol", "--oneliner", "show", "job", number]) or ""
        facts = dict(word.partition("=")[::2] for word in text.split())
        ran_s, limit_s = seconds(facts.get("RunTime", "")), seconds(facts.get("TimeLimit", ""))
        return ran_s is not None and limit_s is not None and ran_s >= limit_s - 1


class GridEngine(Slurm):
    title = "Grid Engine"
    #: It kills at once, so a wish to stop is told by a file alone, and looked for more often.
    look_s = 1.0
    scratch = (b"TMPDIR",)
    names_gpus = False
    prefixes = (b"SGE_", b"JOB_")
    names = (
        b"CUDA_VISIBLE_DEVICES",
        b"PE", b"PE_HOSTFILE", b"QUEUE", b"NSLOTS", b"NHOSTS", b"NQUEUES", b"RESTARTED", b"REQUEST",
        b"REQNAME", b"ARC", b"ENVIRONMENT", b"HOSTNAME", b"TMPDIR", b"TMP", *OURS,
    )  # fmt: skip
    #: Exit codes that mean something to it: run it again, or set it aside.
    reserved = (99, 100)

    def task(self) -> str:
        return os.environ["SGE_TASK_ID"]

    def entry(self, is_task: bool) -> str:
        number = os.environ.get("JOB_ID", "")
        return "%s_%s" % (number, self.task()) if is_task else number

    def restarts(self, claimed_run: "ClaimedRun") -> int:
        """It says that it started it again, but not how often."""
        if "TOWLINE_RUN" in os.environ:
            return int(os.environ["TOWLINE_RUN"])
        before = claimed_run() if os.environ.get("RESTARTED") == "1" else None
        return 0 if before is None else before + 1

    def node_name(self) -> str:
        return os.environ.get("HOSTNAME", "")

    def exit_code(self, code: int) -> int:
        return 1 if code in self.reserved else code

    def process(self) -> int:
        return 0

    def process_here(self) -> int:
        return self.index

    def steps(self, parts: "list[Message]", command: "list[str]") -> "list[Step]":
        """One for each host: Grid Engine's own command starts a program on another of the job's."""
        with open(os.environ["PE_HOSTFILE"]) as file:
            slots = slots_in(file.read())
        here = self.node_name() if self.node_name() in slots else next(iter(slots))
        found, first = [], 0
        count, cpus = sum(part["count"] for part in parts), parts[0]["cpus"]
        for host, some in shares(slots, count, cpus).items():
            words = command + [str(first), str(some)]
            ranks = range(first, first + some)
            found.append((words if host == here else self.words_on(host, words), ranks))
            first += some
        return found

    def words_on(self, host: str, words: "list[str]") -> "list[str]":
        """A shell over there reads all words as one line."""
        told = ["%s=%s" % (text(name), os.environ[text(name)]) for name in OURS]
        line = [shlex.quote(word) for word in ["/usr/bin/env"] + told + words]
        return ["qrsh", "-inherit", "-nostdin", host] + line

    def requeue(self, _number: str) -> bool:
        return False

    def ran_out(self, _number: str) -> bool:
        return False


HERE = GridEngine() if "SGE_TASK_ID" in os.environ else Slurm()
TITLE, SCRATCH, LOOK_S = HERE.title, HERE.scratch, HERE.look_s
NAMES_GPUS = HERE.names_gpus


def task() -> str:
    """Which task of its array this is."""
    return HERE.task()


def entry(is_task: bool) -> str:
    """The number of this entry of the queue; of a task with that of its array before it."""
    return HERE.entry(is_task)


def restarts(claimed_run: "ClaimedRun") -> int:
    """How often the queue started this entry again; `claimed_run()` is the run before it."""
    return HERE.restarts(claimed_run)


def process() -> int:
    """Which process of its step this is."""
    return HERE.process()


def process_here() -> int:
    """Which process of its step on this node this is."""
    return HERE.process_here()


def become(index: int) -> None:
    """Be that one of the processes on this node."""
    HERE.index = index


def node_name() -> str:
    """What the queue calls this node, if it says so."""
    return HERE.node_name()


def exit_code(code: int) -> int:
    """What the queue is told of how a command ended: never what would mean more to it."""
    return HERE.exit_code(code)


def variables() -> "set[bytes]":
    """The names of what the queue itself tells a job: no profile may change it."""
    return {name for name in os.environb if is_told(name)}


def is_told(name: bytes) -> bool:
    return name.startswith(HERE.prefixes) or name in HERE.names


def steps(parts: "list[Message]", command: "list[str]") -> "list[Step]":
    """The programs that start all processes, on the nodes that the job has, and which each starts:
    `command` with the first of them behind it, and how many there are where it starts them."""
    return HERE.steps(parts, command)


def step_environ() -> "dict[str, str]":
    """The environment in which they are started."""
    return HERE.step_environ()


def requeue(number: str) -> bool:
    """Put an entry into the queue again; False where the queue does not take it."""
    return HERE.requeue(number)


def ran_out(number: str) -> bool:
    """Whether the time that the queue gives is over."""
    return HERE.ran_out(number)


def granted_gpus() -> "list[str]":
    """Those that some Grid Engines name, in variables of their own: `SGE_HGR_gpu=cuda0 cuda1`."""
    for name, value in os.environ.items():
        if re.match(r"SGE_HGR_.*(gpu|cuda)", name, re.IGNORECASE):
            found = [re.search(r"\d+$", word) for word in value.split()]
            return [number.group(0) for number in found if number]
    return []


# An environment that the queue does not take along


def write_environ(folder: str) -> None:
    """Write ours down beside what is handed over; it may have secrets."""
    told = {text(name): text(value) for name, value in os.environb.items()}
    fd = os.open(folder + "/environ", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(json.dumps(told))


def take_environ(folder: str) -> None:
    """Have it on the node, but for what the queue itself told."""
    with open(folder + "/environ") as file:
        told = json.loads(file.read())
    own = {name: value for name, value in os.environb.items() if is_told(name)}
    os.environb.clear()
    for name, value in told.items():
        if not is_told(name.encode("utf-8", "surrogateescape")):
            os.environ[name] = value
    for name, value in own.items():
        os.environb[name] = value


def text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


# The hosts of a parallel environment


def slots_in(hostfile: str) -> "dict[str, int]":
    """`h2 3 cpu@h2 UNDEFINED`, by host; one host may have slots of several queues."""
    found: "dict[str, int]" = {}
    for line in hostfile.splitlines():
        words = line.split()
        if len(words) > 1 and words[1].isdigit():
            found[words[0]] = found.get(words[0], 0) + int(words[1])
    return found


def shares(slots: "dict[str, int]", count: int, cpus: int) -> "dict[str, int]":
    """How many of the processes each host has: as many as its slots are for, and all alike where
    there is more room than that. Hosts with none are left out."""
    found = dict.fromkeys(slots, 0)
    while count > 0:
        room = [host for host in slots if (found[host] + 1) * cpus <= slots[host]]
        for host in room[:count] or [next(iter(slots))]:
            found[host] += 1
            count -= 1
    return {host: some for host, some in found.items() if some}


# What commands print


def seconds(text: str) -> "int | None":
    """`1-02:03:04` in seconds; None for what is no time."""
    days, dash, rest = text.rpartition("-")
    parts = rest.split(":")
    if (
        len(parts) != 3
        or not all(part.isdigit() for part in parts)
        or (dash and not days.isdigit())
    ):
        return None
    hours, minutes, left = map(int, parts)
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + left


def answer(words: "list[str]") -> "str | None":
    """What a command of the queue printed; None when it failed."""
    import subprocess  # seldom needed, and not quick to load

    try:
        run = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=WORDS_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if run.returncode else run.stdout.decode("utf-8", "replace")
