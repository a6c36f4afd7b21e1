"""The doctor: look at each machine step by step, and say how to mend what is wrong."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from towline.backends.base import MachineAccess, QueueSilent
from towline.backends.terms import Examined
from towline.engine.obstacle_words import why_aside
from towline.engine.parts import EngineParts
from towline.errors import AgentError, HostError, Refused, Unusable, WrongHostKey
from towline.model.machine import Walls
from towline.model.units import format_duration, format_memory
from towline.probes.nodes import QueueNode
from towline.workspace.base import Places

Step = dict[str, Any]
_LITTLE_DISK_MB = 1024
_CLOCK_S = 5.0
_MOST_SAID = 300
_LOGIN_HINT = "jobs there lack what your profile sets; try: ssh to it and `bash -lc env`"


async def examine(parts: EngineParts, places: Places, cluster: str | None) -> AsyncIterator[Step]:
    """Steps of every cluster, or of one."""
    names = [cluster] if cluster else list(places.config.clusters)
    for name in names:
        name, drivers = parts.intake.join(places, name)
        if not drivers:
            kind = places.config.clusters[name].kind
            yield _step(name, "", "kind", None, f"clusters of kind {kind} cannot be examined yet")
        for driver in drivers:
            queue = parts.fleet.queue_at(name)
            async for step in examine_machine(driver, is_access_node=queue is not None):
                yield {**step, "cluster": name}
            for step in _accepting(parts, driver):
                yield {**step, "cluster": name}
            if queue is not None and driver.is_connected:
                async for step in examine_queue(parts, name):
                    yield {**step, "cluster": name}


async def examine_machine(
    driver: MachineAccess, is_access_node: bool = False
) -> AsyncIterator[Step]:
    error: HostError | AgentError | None = None
    seen, python = Examined({}, 0.0, driver.root, logout_ends_jobs=False), ""
    try:
        upkeep = await driver.upkeep(20.0)
        seen, python = await upkeep.examine(), upkeep.python
    except (HostError, AgentError) as problem:
        error = problem
    yield _reachable(driver, error)
    by_ssh = driver.host.login() is not None
    if by_ssh and (isinstance(error, Refused) or error is None):
        yield _key_known(driver, error)
    if isinstance(error, Unusable) or error is None:
        yield _python(driver, error, python)
    if error is not None:
        return
    if not is_access_node:
        yield _gpu_tool(driver, seen.raw)
    yield _disk(driver, seen)
    yield _clock(driver, seen.clock_s)
    if isinstance(seen.raw.get("in_the_way"), dict):
        yield _claims(driver, seen.raw["in_the_way"])
    if seen.raw.get("login"):
        yield _step("", driver.name, "login shell", False, str(seen.raw["login"]), _LOGIN_HINT)
    if by_ssh and seen.logout_ends_jobs:
        yield _logout(driver)
    if not is_access_node:
        yield _walls(driver, seen.walls)


def _step(
    cluster: str, machine: str, name: str, ok: bool | None, text: str, hint: str = ""
) -> Step:
    return {
        "cluster": cluster,
        "machine": machine,
        "name": name,
        "ok": ok,
        "text": text,
        "hint": hint,
    }


def _accepting(parts: EngineParts, driver: MachineAccess) -> list[Step]:
    """Whether jobs start there; nothing to say if they do."""
    scheduler = parts.engine.core.scheduler
    if aside := scheduler.aside(driver.name):
        hint = "`tow log` shows what the jobs that failed there say; it is tried again by itself"
        return [_step("", driver.name, "jobs", False, why_aside(aside), hint)]
    closed = scheduler.closed(driver.name)
    return [_step("", driver.name, "jobs", None, closed)] if closed else []


async def examine_queue(parts: EngineParts, cluster: str) -> AsyncIterator[Step]:
    """Whether the queue behind an access node answers, what it has, and which nodes are not up."""
    queue = parts.fleet.queue_at(cluster)
    if queue is None:
        return
    title = queue.title
    try:
        text, nodes = await queue.about()
    except (HostError, AgentError) as error:
        yield _step("", cluster, title, False, error.text, "try again")
        return
    except QueueSilent as silent:
        yield _step("", cluster, title, False, str(silent), queue.silent_hint)
        return
    yield _step("", cluster, title, True, text)
    if any(node.down or node.closed for node in nodes):
        yield _not_up(cluster, nodes)


def _not_up(cluster: str, nodes: list[QueueNode]) -> Step:
    """Nodes on which nothing starts; jobs that need them wait, so only all of them is an error."""
    why: dict[str, list[str]] = {}
    for node in nodes:
        if reason := node.down or node.closed:
            why.setdefault(node.word or reason, []).append(node.name)
    missing = sum(map(len, why.values()))
    some = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in why.items())
    which = f"{missing} of {len(nodes)} take no jobs now: {some[:_MOST_SAID]}"
    if missing < len(nodes):
        return _step("", cluster, "nodes", None, which)
    return _step("", cluster, "nodes", False, which, "jobs wait in its queue until one is back")


def _reachable(driver: MachineAccess, error: HostError | AgentError | None) -> Step:
    if driver.host.login() is None:
        return _step("", driver.name, "reachable", True, "this machine")
    if error is None or isinstance(error, Unusable):
        return _step("", driver.name, "reachable", True, "ssh connects")
    if isinstance(error, Refused):
        return _step("", driver.name, "reachable", True, "ssh answers")
    return _step("", driver.name, "reachable", False, error.text, error.hint)


def _key_known(driver: MachineAccess, error: HostError | AgentError | None) -> Step:
    if error is not None:
        name = "host key" if isinstance(error, WrongHostKey) else "login"
        return _step("", driver.name, name, False, error.text, error.hint)
    return _step("", driver.name, "login", True, "host key known, login accepted")


def _python(driver: MachineAccess, error: HostError | AgentError | None, python: str) -> Step:
    if error is not None:
        return _step("", driver.name, "python3", False, error.text, error.hint)
    return _step("", driver.name, "python3", True, f"python {python}")


def _gpu_tool(driver: MachineAccess, raw: Mapping[str, Any]) -> Step:
    if raw.get("gpu_error"):
        text = f"nvidia-smi fails: {raw['gpu_error'].strip()[:200]}"
        return _step(
            "", driver.name, "GPUs", False, text, "is the NVIDIA driver loaded? ask its admin"
        )
    if raw.get("gpus") is None:
        return _step(
            "", driver.name, "GPUs", None, "no nvidia-smi: it counts as a machine without GPUs"
        )
    count = len([line for line in raw["gpus"].splitlines() if line.strip()])
    return _step("", driver.name, "GPUs", True, f"nvidia-smi finds {count}")


def _disk(driver: MachineAccess, seen: Examined) -> Step:
    free = seen.raw.get("disk_free_mb") or 0
    text = f"{format_memory(free)} free in {seen.root}"
    hint = "free some space there, or choose another place with `folder` in the configuration"
    enough = free >= _LITTLE_DISK_MB
    return _step("", driver.name, "disk space", enough, text, "" if enough else hint)


def _clock(driver: MachineAccess, off_s: float) -> Step:
    right = abs(off_s) < _CLOCK_S
    if right:
        return _step("", driver.name, "clock", True, "agrees with this machine's")
    text = f"{format_duration(abs(off_s))} {'ahead of' if off_s > 0 else 'behind'} this machine's"
    return _step("", driver.name, "clock", False, text, "set up NTP on one of the two")


def _walls(driver: MachineAccess, walls: Walls) -> Step:
    """Nothing is wrong where jobs cannot be walled in, as long as nobody asks for it."""
    if walls.why:
        hint = "`tow run --sandbox` needs bubblewrap there: as root, apt-get install bubblewrap"
        return _step("", driver.name, "sandbox", None, walls.why, hint)
    left = "; ".join(walls.open)
    text = "jobs can be walled in" + (f"; left open: {left}" if left else "")
    return _step("", driver.name, "sandbox", True, text)


def _logout(driver: MachineAccess) -> Step:
    text = "what runs there ends when the connection does (systemd's KillUserProcesses is on)"
    hint = "over there: loginctl enable-linger; if that is refused, ask its admin"
    return _step("", driver.name, "logout", False, text, hint)


def _claims(driver: MachineAccess, other: dict[str, Any]) -> Step:
    text = f"{other.get('path')} belongs to {other.get('user')}, who may want to hide your jobs"
    hint = "other users see what your jobs were granted all the same; tell its admin"
    return _step("", driver.name, "claims", None, text, hint)
