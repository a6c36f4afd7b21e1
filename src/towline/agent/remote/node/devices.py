"""Which GPUs of its node a process has, where the queue grants a number of them and says no more.

Those that nobody claims (`share/grants`) are claimed for it as on a machine without a queue, so no
two jobs of ours get the same; of these the ones that are least used, since others' jobs of the same
queue are told nothing either.
"""

import os
import re
import time

from ..run.execution import Stopped
from ..share import grants
from . import site

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..run.execution import Execution

ASK = [
    "nvidia-smi",
    "--query-gpu=index,uuid,name,memory.total,memory.used,utilization.gpu",
    "--format=csv,noheader,nounits",
]
VISIBLE = "CUDA_VISIBLE_DEVICES"
#: The place of the memory in use in a line of the answer.
USED = 4
#: A job that ends just now may still have its GPUs for a moment.
PATIENCE_S = 60.0
LOOK_S = 1.0


def choose(execution: "Execution", count: int) -> "dict[str, str]":
    """The variable that names so many GPUs, which are this process's alone from now on."""
    if not count or site.NAMES_GPUS or VISIBLE in os.environ:
        return {}
    granted = site.granted_gpus()
    if granted:
        return {VISIBLE: ",".join(of_this_process(granted, count))}
    until = time.monotonic() + PATIENCE_S
    while True:
        there = by_use(site.answer(ASK) or "")
        if len(there) < count:
            return {}  # whatever the queue counts as GPUs, this node does not show it
        taken = {gpu for claim in grants.everybody() for gpu in claim["gpus"]}
        free = [gpu for gpu in there if gpu not in taken]
        if len(free) >= count and claim_all(execution, sorted(free[:count])):
            return {VISIBLE: ",".join(map(str, sorted(free[:count])))}
        if time.monotonic() > until:
            raise Stopped("void", "the GPUs of its node are in use by other jobs of Towline")
        execution.wait(LOOK_S)
        execution.pause()


def of_this_process(gpus: "list[str]", count: int) -> "list[str]":
    """Of those that all processes of the job on this node have together."""
    if len(gpus) <= count:
        return gpus
    at = site.process_here() * count
    return gpus[at : at + count]


def claim_all(execution: "Execution", gpus: "list[int]") -> bool:
    """False when another's claim came first."""
    grant = grants.Grant(execution.key, {"gpus": gpus, "reserved": True})
    try:
        grant.take(execution.pause)
    except grants.Taken:
        return False
    execution.grant = grant
    return True


def by_use(answer: str) -> "list[int]":
    """The GPUs in it, those with the least memory in use first."""
    found = []
    for line in answer.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) > USED and words[0].isdigit():
            used = re.match(r"\d+", words[USED])
            found.append((int(used.group(0)) if used else 0, int(words[0])))
    return [gpu for _, gpu in sorted(found)]
