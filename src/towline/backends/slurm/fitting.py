"""Whether the nodes of a Slurm, as they are configured, could ever run what sbatch is told. Pure.

`sbatch --test-only` refuses also what only has to wait, because nodes are drained or down at the
moment. So its word counts only where what the nodes have in all says the same. What is not
understood here fits: sbatch itself has the last word.
"""

import re
from collections.abc import Iterable, Mapping

from towline.errors import UsageError
from towline.model.units import parse_memory_mb
from towline.probes.nodes import QueueNode

_NAMES = re.compile(r"[\w.-]+(,[\w.-]+)*\Z")
_GPU = re.compile(r"(?:gpu[:=])?(?:(?P<kind>[A-Za-z][\w.-]*)[:=])?(?P<count>\d+)\Z")


def could_ever_run(options: Iterable[str], nodes: list[QueueNode]) -> bool:
    """False only where it is certain that these nodes will never do for it."""
    words = (word.removeprefix("--").partition("=") for word in options)
    given = {name: value for name, _, value in words}
    fitting = {n.name for n in nodes if _is_meant(given, n) and _has_all(given, n)}
    named = given.get("nodelist", "")
    wanted = set(named.split(",")) if _NAMES.match(named) else set()
    least = _number(given.get("nodes", "").partition("-")[0]) or 1
    return not nodes or (len(fitting) >= least and wanted <= fitting)


def _is_meant(given: Mapping[str, str], node: QueueNode) -> bool:
    """Of several partitions one is enough; of features only a single one is understood."""
    partitions, feature = given.get("partition", ""), given.get("constraint", "")
    if partitions and node.partitions and not set(partitions.split(",")) & set(node.partitions):
        return False
    return not re.fullmatch(r"[\w.-]+", feature) or feature in node.features


def _has_all(given: Mapping[str, str], node: QueueNode) -> bool:
    tasks = _number(given.get("ntasks-per-node", "")) or 1
    cpus = (_number(given.get("cpus-per-task", "")) or 1) * tasks
    mem_mb = max(_memory_mb(given.get("mem", "")), _memory_mb(given.get("mem-per-cpu", "")) * cpus)
    enough = cpus <= node.cpus and (mem_mb <= node.mem_mb or not node.mem_mb)
    return enough and _has_gpus(given, node, tasks)


def _has_gpus(given: Mapping[str, str], node: QueueNode, tasks: int) -> bool:
    for option, times in {"gres": 1, "gpus-per-node": 1, "gpus-per-task": tasks}.items():
        for word in filter(None, given.get(option, "").split(",")):
            found = _GPU.match(word)
            if found is None or (option == "gres" and not word.startswith("gpu")):
                continue
            kind = found["kind"]
            has = node.gpus.get(kind, 0) if kind else sum(node.gpus.values())
            if int(found["count"]) * times > has:
                return False
    return True


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _memory_mb(text: str) -> int:
    """A bare number is in MB, and 0 is as much as there is; what cannot be read is no matter."""
    try:
        return parse_memory_mb(text) if text.strip("0") else 0
    except UsageError:
        return 0
