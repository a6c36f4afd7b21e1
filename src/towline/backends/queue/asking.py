"""What a queue is asked before anything is sent to it: whether it would take a job, what it has."""

import math
import time

from towline.backends.base import QueueSilent
from towline.backends.queue.commands import was_killed
from towline.backends.queue.dialect import Answer, Test
from towline.backends.queue.queue import Queue
from towline.errors import AgentError, HostError, Impossible
from towline.model.job import Queueing
from towline.probes.nodes import QueueNode, largest

#: A person waits for the answer; a queue that is too busy for it takes the job later.
_CHECK_S = 10.0
#: For so long a queue that would take a job is not asked about others like it.
_FRESH_S = 20.0


async def check_possible(queue: Queue, wish: Queueing) -> str:
    """What the queue says to such a job, e.g. when it would start; Impossible if it never would.

    A queue that cannot be asked is no reason to refuse anything, and neither are nodes that are
    not up at the moment.
    """
    dialect, now = queue.dialect, time.monotonic()
    enters = f"it goes into {dialect.title}'s queue"
    at, said = queue.would_take.get(repr(wish), (-math.inf, ""))
    if now - at < _FRESH_S:
        return said
    answer: Answer = {"code": 0, "out": "", "err": ""}
    words = None
    try:
        link = await queue.driver.reach(timeout_s=20.0, patient=False)
        if words := dialect.test_words(wish, queue.site):
            answer = await queue.commands.call(link, words, _CHECK_S)
    except (HostError, AgentError) as problem:
        return f"{enters} when {queue.name} can be reached: {problem.text}"
    test, text = dialect.read_test(answer)
    if test in (Test.YES, Test.UNKNOWN) or was_killed(answer["code"]):
        said = enters + (f"; {text}" if text else "")
        if words and test is Test.YES:
            _remember(queue, repr(wish), said, now)
        return said
    nodes = await _nodes_if_told(queue)
    if test is Test.NOT_NOW and dialect.could_ever_run(wish, nodes):
        return f"{enters}; no node of that kind is up now"
    raise Impossible(
        f"{queue.name}: {dialect.title} would refuse it: {text}",
        hint=dialect.instead(answer, nodes, await _accounts(queue, answer)),
        said=text,
    )


def _remember(queue: Queue, asked: str, said: str, now: float) -> None:
    """Note that it would take such a job; what was noted long ago goes."""
    for old in [one for one, (at, _) in queue.would_take.items() if now - at >= _FRESH_S]:
        del queue.would_take[old]
    queue.would_take[asked] = (now, said)


async def _nodes_if_told(queue: Queue) -> list[QueueNode]:
    try:
        return await list_nodes(queue)
    except (HostError, AgentError, QueueSilent):
        return []


async def _accounts(queue: Queue, refused: Answer) -> str:
    """What the queue printed of the user's accounts; empty where it does not say."""
    try:
        link = await queue.driver.reach(5.0, patient=False)
        return await queue.commands.accounts(link, refused)
    except (HostError, AgentError):
        return ""


async def list_nodes(queue: Queue) -> list[QueueNode]:
    """List its nodes; QueueSilent where it gives no answer."""
    return await queue.commands.list_nodes(await queue.driver.reach(5.0, patient=False))


async def about(queue: Queue) -> tuple[str, list[QueueNode]]:
    """Say which queue it is and what it has, in a line; QueueSilent where it gives no answer."""
    link = await queue.driver.reach(timeout_s=20.0, patient=False)
    version = await queue.commands.version(link)
    nodes = await list_nodes(queue)
    has = f", with {largest(nodes)}" if nodes else ""
    return f"{version}, {len(nodes)} node{'s' * (len(nodes) != 1)}{has}", nodes
