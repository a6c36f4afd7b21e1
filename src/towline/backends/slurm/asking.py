"""What a Slurm is asked before anything is sent to it: whether it would take a job, what it has."""

from collections.abc import Iterable
from typing import Any

from towline.backends.slurm.commands import SlurmSilent
from towline.backends.slurm.fitting import could_ever_run
from towline.backends.slurm.handover import test_words
from towline.backends.slurm.queue import Queue
from towline.errors import AgentError, HostError, Impossible
from towline.model.job import Queueing
from towline.probes.slurm import complaint, expected, is_full, is_not_now, is_passing, was_killed
from towline.probes.slurm_nodes import Node

#: A person waits for the answer; a Slurm that is too busy for it takes the job later.
_CHECK_S = 10.0
#: Most names in a line.
_MANY = 20


async def check_possible(queue: Queue, wish: Queueing) -> str:
    """What Slurm says to such a job, e.g. when it would start; Impossible if it never would.

    A Slurm that cannot be asked is no reason to refuse anything, and neither are nodes that are
    not up at the moment.
    """
    asked = test_words(wish.options)
    try:
        link = await queue.driver.reach(timeout_s=20.0, patient=False)
        answer: dict[str, Any] = {"code": 0, "err": ""}
        if asked:
            answer = await queue.commands.call(link, asked, _CHECK_S)
    except (HostError, AgentError) as problem:
        return f"it goes into Slurm's queue when {queue.name} can be reached: {problem.text}"
    error = answer["err"]
    code = answer["code"]
    if code == 0 or is_passing(error) or is_full(error) or was_killed(code):
        return "it goes into Slurm's queue" + (f"; {expected(error)}" if error else "")
    nodes = await _nodes_if_told(queue)
    if is_not_now(error) and could_ever_run(wish.options[0], nodes):
        return "it goes into Slurm's queue; no node of that kind is up now"
    raise Impossible(
        f"{queue.name}: Slurm would refuse it: {complaint(error)}",
        hint=await _what_there_is(queue, error, nodes) or "-o NAME=VALUE sets options of sbatch",
    )


async def _nodes_if_told(queue: Queue) -> list[Node]:
    try:
        return await list_nodes(queue)
    except (HostError, AgentError, SlurmSilent):
        return []


async def _what_there_is(queue: Queue, error: str, nodes: list[Node]) -> str:
    """What could be asked for instead of what was refused."""
    text = error.lower()
    if "account" in text or "qos" in text:
        return await _accounts(queue)
    if not nodes:
        return ""
    if "partition" in text:
        return f"its partitions are {_listed(p for node in nodes for p in node.partitions)}"
    if "feature" in text:
        features = _listed(feature for node in nodes for feature in node.features)
        return (
            f"its nodes have the features {features}" if features else "its nodes have no features"
        )
    if "node name" in text:
        return f"its nodes are {_listed(node.name for node in nodes)}"
    return f"its nodes have {largest(nodes)}" if is_not_now(error) else ""


async def _accounts(queue: Queue) -> str:
    try:
        link = await queue.driver.reach(5.0, patient=False)
        accounts = await queue.commands.accounts(link)
    except (HostError, AgentError):
        return ""
    if not accounts:
        return ""
    qualities = _listed(quality for _, some in accounts for quality in some)
    with_qualities = f", with the QOS {qualities}" if qualities else ""
    return f"your accounts are {_listed(name for name, _ in accounts)}{with_qualities}"


async def list_nodes(queue: Queue) -> list[Node]:
    """SlurmSilent where it gives no answer."""
    return await queue.commands.list_nodes(await queue.driver.reach(5.0, patient=False))


async def about(queue: Queue) -> tuple[str, list[Node]]:
    """Which Slurm it is and what it has, in a line; SlurmSilent where it gives no answer."""
    link = await queue.driver.reach(timeout_s=20.0, patient=False)
    version = await queue.commands.version(link)
    nodes = await list_nodes(queue)
    has = f", with {largest(nodes)}" if nodes else ""
    return f"{version}, {len(nodes)} node{'s' * (len(nodes) != 1)}{has}", nodes


def largest(nodes: list[Node]) -> str:
    """What the largest node has, and all kinds of GPUs."""
    kinds: dict[str, int] = {}
    for node in nodes:
        for kind, count in node.gpus.items():
            kinds[kind or "gpu"] = max(kinds.get(kind or "gpu", 0), count)
    gpus = ", ".join(f"{count}:{kind}" for kind, count in sorted(kinds.items()))
    cpus, mem_mb = max(n.cpus for n in nodes), max(n.mem_mb for n in nodes)
    most = f"at most {cpus} CPUs, {mem_mb} MB"
    return f"{most}, GPUs {gpus}" if gpus else f"{most} and no GPUs"


def _listed(names: Iterable[str]) -> str:
    """Each once, in order; not all of very many."""
    each = list(dict.fromkeys(names))
    more = f" and {len(each) - _MANY} more" if len(each) > _MANY else ""
    return ", ".join(each[:_MANY]) + more
