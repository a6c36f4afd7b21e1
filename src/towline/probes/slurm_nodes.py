"""The nodes of a Slurm, as `scontrol` prints them. Pure."""

import re

from towline.probes.nodes import QueueNode

#: What a node may be besides what it does: flags behind a `+`, and signs behind its state.
_DOWN = frozenset({"DOWN", "FAIL", "FAILING", "ERROR", "NOT_RESPONDING", "UNKNOWN", "FUTURE"})
_CLOSED = frozenset({"DRAIN", "DRAINED", "DRAINING", "MAINT", "RESERVED", "REBOOT", "BLOCKED"})
_SIGNS = "*~#!%$@^-"
_UNKNOWN = frozenset({"", "(null)", "N/A"})


def node_words() -> list[str]:
    return ["scontrol", "--oneliner", "--details", "show", "node"]


def read_nodes(text: str) -> list[QueueNode]:
    return [node for line in text.splitlines() if (node := _node(line)) is not None]


def _node(line: str) -> QueueNode | None:
    facts = dict(re.findall(r"(?:^|\s)(\w+)=(\S*)", line))
    cpus = _number(facts.get("CPUEfctv") or facts.get("CPUTot", ""))
    if "NodeName" not in facts or not cpus:
        return None
    mem_mb, gpus = _number(facts.get("RealMemory", "")), gpus_of(facts.get("Gres", ""))
    used = gpus_of(facts.get("GresUsed", ""))
    closed, down = _standing(facts.get("State", ""))
    reason = _reason(line)
    word = (closed or down) + (f": {reason}" if reason else "")
    return QueueNode(
        facts["NodeName"],
        cpus,
        mem_mb,
        gpus,
        max(0, cpus - _number(facts.get("CPUAlloc", ""))),
        max(0, mem_mb - _number(facts.get("AllocMem", ""))),
        {kind: max(0, count - used.get(kind, 0)) for kind, count in gpus.items()},
        f"Slurm calls it {word}" if closed else "",
        f"Slurm calls it {word}" if down else "",
        _names(facts.get("Partitions", "")),
        _names(facts.get("AvailableFeatures", "")),
        word if closed or down else "",
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(","))) if text not in _UNKNOWN else ()


def _standing(state: str) -> tuple[str, str]:
    """Why nothing starts there, and why nothing can run there, by Slurm's words for it."""
    words = {word.rstrip(_SIGNS) for word in state.upper().split("+")}
    if "*" in state:
        words.add("NOT_RESPONDING")
    if down := sorted(words & _DOWN):
        return "", _in_words(down)
    return _in_words(sorted(words & _CLOSED)), ""


def _in_words(states: list[str]) -> str:
    return " and ".join(state.lower().replace("_", " ") for state in states)


def _reason(line: str) -> str:
    """`Reason=bad disk [root@2026-11-16T07:04:00]` -> bad disk."""
    found = re.search(r"\sReason=(.*?)\s*(?:\[[^\]]*\].*)?$", line)
    return "" if found is None or found[1] in _UNKNOWN else found[1]


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def gpus_of(gres: str) -> dict[str, int]:
    """`gpu:a100:4(S:0-1),shard:8` -> {"a100": 4}."""
    found: dict[str, int] = {}
    for part in re.sub(r"\([^)]*\)", "", gres).split(","):
        words = part.strip().split(":")
        if words[0] == "gpu" and words[-1].isdecimal():
            kind = words[1] if len(words) > 2 else ""
            found[kind] = found.get(kind, 0) + int(words[-1])
    return found
