"""Names that both ends need. Import-light: commands use it at start."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

#: What clusters of machines that no configuration names are called inside; a hash follows.
AD_HOC = "ad-hoc:"
#: The kinds of clusters that have a queue of their own, as configurations and the command line call
#: them -> their names for people.
QUEUES = {"slurm": "Slurm", "gridengine": "Grid Engine"}
#: Kinds of reasons to end whose words say the state as well.
SAYS_STATE = ("stopped", "stopped_waiting", "line_ended")
#: How what a job is to run after must end: well, in whatever way, or not well.
OK, ANY, FAILED = "ok", "any", "failed"


def shown_cluster(name: str) -> str:
    """The name of a cluster, without what only the Engine needs of it."""
    if name.startswith(AD_HOC):
        return "ad hoc"
    return name.partition(":")[2] if is_ad_hoc_queue(name) else name


def ad_hoc_queue(kind: str, access_node: str) -> str:
    """What a cluster with a queue is called inside that no configuration names."""
    return f"{kind}:{access_node}"


def is_ad_hoc_queue(name: str) -> bool:
    kind, colon, _ = name.partition(":")
    return bool(colon) and kind in QUEUES


def unit_name(unit: int | str) -> str:
    """A job has a number, a batch a name."""
    return f"batch {unit}" if isinstance(unit, str) else f"job {unit}"


def awaited_words(awaited: Iterable[tuple[int | str, str, str]]) -> str:
    """`job 12 (running), job 13 to fail`: what is waited for, how, and where it stands."""
    wish = {OK: "", ANY: " to end", FAILED: " to fail"}
    return ", ".join(
        f"{unit_name(unit)}{wish[when]}{state and f' ({state})'}" for unit, when, state in awaited
    )
