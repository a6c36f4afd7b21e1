"""What should be on a machine, as the driver of that machine keeps track of it."""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from towline.model.identity import Identity, is_another

#: The output of a process, where that is little and came with the news of its end.
Said = tuple[bytes, bytes] | None


class WantedProcess(Struct):
    """One process that should be (or stop being) on this machine."""

    key: str
    job: int
    attempt: int
    rank: int
    #: What the agent needs to start it. None: it may only be found again, never started (a process
    #: of a gang whose start an earlier Engine left half done).
    order: Callable[[], dict[str, Any]] | None
    #: Ids of the snapshots that must be there first.
    snapshots: tuple[str, ...] = ()
    gpus: tuple[int, ...] = ()
    #: The machine that it was given; None where that was not known.
    identity: Identity | None = None
    #: The host that it is on, where the name of its machine leads to another one now.
    elsewhere: str = ""
    #: A start went out, or may have gone out before the Engine was killed.
    sent: bool = False
    #: It waits there for the place of another: where that is not remembered, it comes back.
    ahead: bool = False
    #: Prepared over there, waiting for its sisters.
    held: bool = False
    started: bool = False
    stop: bool = False
    #: Without the time to end by itself.
    kill: bool = False
    #: When the machine was last asked to stop it.
    asked_at: float = 0.0
    #: Its machine was silent for too long. It is never started any more, only heard of.
    given_up: bool = False
    #: Its end is settled here; it must only never run over there.
    settled: bool = False


def other_host(wanted: WantedProcess, known: dict[str, Any], here: Identity | None) -> str:
    """The host that a process is on, if it is not this one; of its own this one knows more.

    Machines may share a home: then the record of an end is as good here as there.
    """
    if known["state"] == "elsewhere":
        return known.get("host") or "another machine"
    if wanted.identity is None or not is_another(wanted.identity, here):
        return ""
    ending = known.get("ending") if known["state"] == "ended" else None
    certain = isinstance(ending, dict) and ending.get("cause") not in ("lost", "void")
    return "" if certain else wanted.identity.host or "another machine"


def unheard_of(job: int, wanted: Iterable[WantedProcess], name: str, here: Identity | None) -> str:
    """Why nothing is heard of a job though the machine called `name` answers; empty otherwise."""
    hosts = {one.elsewhere for one in wanted if one.elsewhere and one.job == job}
    if not hosts:
        return ""
    now = f" ({here.host})" if here and here.host else ""
    return f"{name} leads to another machine now{now}; job {job} runs on {', '.join(sorted(hosts))}"
