"""Which machine it is that answers, whatever it is called."""

from collections.abc import Mapping

from msgspec import Struct

#: So much of a machine's long random names is enough to tell two apart.
_ENOUGH = 12


class Identity(Struct, frozen=True, array_like=True):
    """What a machine says of itself; empty parts are not known."""

    host: str = ""
    machine: str = ""
    boot: str = ""
    #: Number of its process namespace: containers on one machine differ in it.
    pidns: int = 0


def identity_from(told: Mapping[str, object]) -> Identity | None:
    """None where the agent, an older one, says nothing."""
    host, machine, boot = (_plain(told.get(word)) for word in ("host", "machine", "boot"))
    pidns = told.get("pidns")
    if not (host or machine or boot):
        return None
    number = pidns if isinstance(pidns, int) else 0
    return Identity(host, machine[:_ENOUGH], boot[:_ENOUGH], number)


def _plain(told: object) -> str:
    return "".join(filter(str.isprintable, told)) if isinstance(told, str) else ""


def is_one(one: Identity | None, other: Identity | None) -> bool:
    """Whether they are certainly the same, now: one kernel, one view of its processes."""
    if one is None or other is None or not one.boot:
        return False
    return (one.machine, one.boot, one.pidns) == (other.machine, other.boot, other.pidns)


def is_another(one: Identity | None, other: Identity | None) -> bool:
    """Whether they are certainly two: a machine that restarted, or has a new name, is still one."""
    if one is None or other is None or is_one(one, other):
        return False
    if one.machine and other.machine and one.machine != other.machine:
        return True
    return bool(one.host and other.host) and one.host != other.host
