"""What the compatible commands ask the Engine for."""

from __future__ import annotations

from towline.cli.terminal import tell
from towline.client.submission import this_folder, umask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.client.session import Session


def batch_base(request: str, only: list[str]) -> dict[str, Any]:
    """What all jobs of a submission share."""
    shared: dict[str, Any] = {"argv": [], "cwd": this_folder(), "request": request, "only": only}
    return {**shared, "umask": umask(), "empty_outputs": True}


def machine_limits(
    session: Session, entries: dict[str, dict[str, Any]], request: str, each: bool = False
) -> dict[str, dict[str, Any]]:
    """What each machine has room for now, by the name of its file; ones that are away have none.

    Two files of one machine count as one. `together` is the cluster of all of them; with `each`, a
    `cluster` of each one alone is made, too.
    """
    machines = list(entries.values())
    ask = {"cwd": this_folder(), "machines": machines, "request": request, "each": each}
    reply = session.call("POST", "/v1/limits", ask, repeat=True)
    found: dict[str, dict[str, Any]] = {}
    files: dict[str, str] = {}
    for file, answer in zip(entries, reply["machines"], strict=True):
        first = files.setdefault(answer["name"], file)
        if first != file:
            tell(f"{file} is the same machine as {first}, and counts once")
            continue
        found[file] = {**answer, "together": reply["cluster"]}
        if answer["reason"]:
            tell(f"{file}: not used for now: {answer['reason']}")
            if answer["hint"]:
                tell(f"  {answer['hint']}")
    return found
