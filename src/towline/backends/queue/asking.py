"""What a queue is asked before anything is sent to it: whether it would take a job, what it has."""

from towline.backends.base import QueueSilent
from towline.backends.queue.commands import was_killed
from towline.backends.queue.dialect import Answer, Test
from towline.backends.queue.queue import Queue
from towline.errors import AgentError, HostError, Impossible
from towline.model.job import Queueing
from towline.probes.nodes import Node, largest

#: A person waits for the answer; a queue that is too busy for it takes the job later.
_CHECK_S = 10.0


async def check_possible(queue: Queue, wish: Queueing) -> str:
    """What the queue says to such a job, e.g. when it would start; Impossible if it never would.

    A queue that cannot be asked is no reason to refuse anything, and neither are nodes that are
    not up at the moment.
    """
    dialect = queue.dialect
    enters = f"it goes into {dialect.title}'s queue"
    answer: Answer = {"code": 0, "out": "", "err": ""}
    try:
        link = await queue.driver.reach(timeout_s=20.0, patient=False)
        if words := dialect.test_words(wish, queue.site):
            answer = await queue.commands.call(link, words, _CHECK_S)
    except (HostError, AgentError) as problem:
        return f"{enters} when {queue.name} can be reached: {problem.text}"
    test, text = dialect.read_test(answer)
    if test in (Test.YES, Test.UNKNOWN) or was_killed(answer["code"]):
        return enters + (f"; {text}" if text else "")
    nodes = await _nodes_if_told(queue)
    if test is Test.NOT_NOW and dialect.could_ever_run(wish, nodes):
        return f"{enters}; no node of that kind is up now"
    raise Impossible(
        f"{queue.name}: {dialect.title} would refuse it: {text}",
        hint=dialect.instead(answer, nodes, await _accounts(queue, answer)),
    )


async def _nodes_if_told(queue: Queue) -> list[Node]:
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


async def list_nodes(queue: Queue) -> list[Node]:
    """List its nodes; QueueSilent where it gives no answer."""
    return await queue.commands.list_nodes(await queue.driver.reach(5.0, patient=False))


async def about(queue: Queue) -> tuple[str, list[Node]]:
    """Say which queue it is and what it has, in a line; QueueSilent where it gives no answer."""
    link = await queue.driver.reach(timeout_s=20.0, patient=False)
    version = await queue.commands.version(link)
    nodes = await list_nodes(queue)
    has = f", with {largest(nodes)}" if nodes else ""
    return f"{version}, {len(nodes)} node{'s' * (len(nodes) != 1)}{has}", nodes
