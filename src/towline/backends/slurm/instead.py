"""What could be asked of a Slurm instead of what it refused. Pure."""

from collections.abc import Iterable

from towline.probes.nodes import QueueNode, largest
from towline.probes.slurm import is_not_now, read_associations

#: Most names in a line.
_MANY = 20


def is_about_accounts(error: str) -> bool:
    return "account" in error.lower() or "qos" in error.lower()


def instead(error: str, nodes: list[QueueNode], accounts: str) -> str:
    """The hint for an error of sbatch, given its nodes and what sacctmgr printed."""
    text = error.lower()
    if is_about_accounts(error):
        return _accounts(read_associations(accounts))
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


def _accounts(accounts: list[tuple[str, list[str]]]) -> str:
    if not accounts:
        return ""
    qualities = _listed(quality for _, some in accounts for quality in some)
    with_qualities = f", with the QOS {qualities}" if qualities else ""
    return f"your accounts are {_listed(name for name, _ in accounts)}{with_qualities}"


def _listed(names: Iterable[str]) -> str:
    """Each once, in order; not all of very many."""
    each = list(dict.fromkeys(names))
    more = f" and {len(each) - _MANY} more" if len(each) > _MANY else ""
    return ", ".join(each[:_MANY]) + more
