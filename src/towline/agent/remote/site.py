"""What a queue tells a job on its node, and is asked there: all that runners know of one queue.

Here that is Slurm. Another queue has other variables and commands, and the same functions.
"""

import os
import subprocess

WORDS_S = 10.0
TITLE = "Slurm"
#: Where the queue puts what a job prints outside of its processes; of a task, with its number.
OUTPUT = "slurm%s.out"
#: Folders on the node that the queue made for the job, best first.
SCRATCH = (b"SLURM_TMPDIR", b"TMPDIR")


def task():
    """Which task of its array this is."""
    return os.environ["SLURM_ARRAY_TASK_ID"]


def entry(is_task):
    """The number of this entry of the queue; of a task with that of its array before it."""
    if is_task:
        return "%s_%s" % (os.environ["SLURM_ARRAY_JOB_ID"], task())
    return os.environ.get("SLURM_JOB_ID", "")


def restarts():
    """How often the queue started this entry again."""
    return int(os.environ.get("SLURM_RESTART_COUNT") or 0)


def process():
    """Which process of its step this is."""
    return int(os.environ["SLURM_PROCID"])


def process_here():
    """Which process of its step on this node this is."""
    return int(os.environ.get("SLURM_LOCALID") or 0)


def node_name():
    """What the queue calls this node, if it says so."""
    return os.environ.get("SLURMD_NODENAME", "")


def variables():
    """The names of what the queue itself tells a job: no profile may change it."""
    prefixes = (b"SLURM_", b"CUDA_", b"GPU_")
    return {name for name in os.environb if name.startswith(prefixes)}


def step_words(part, index, count):
    """How to start the processes of one of `count` kinds, on the nodes that the job has."""
    words = ["srun", "--ntasks=%d" % part["count"], "--cpus-per-task=%d" % part["cpus"]]
    words += ["--export=ALL", "--kill-on-bad-exit=0", "--wait=0", "--input=none"]
    return words + ["--het-group=%d" % index] if count > 1 else words


def step_environ():
    """So that an `srun` in the user's own script need not wait for these steps to end."""
    return dict(os.environ, SLURM_OVERLAP="1")


def requeue(number):
    """Put an entry into the queue again; False where the queue does not take it."""
    return answer(["scontrol", "requeue", number]) is not None


def ran_out(number):
    """Whether the time that the queue gives is over; it says no other reason while a job ends."""
    text = answer(["scontrol", "--oneliner", "show", "job", number]) or ""
    facts = dict(word.partition("=")[::2] for word in text.split())
    ran_s, limit_s = seconds(facts.get("RunTime", "")), seconds(facts.get("TimeLimit", ""))
    return ran_s is not None and limit_s is not None and ran_s >= limit_s - 1


def seconds(text):
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


def answer(words):
    """What a command of the queue printed; None when it failed."""
    try:
        run = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=WORDS_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if run.returncode else run.stdout.decode("utf-8", "replace")
