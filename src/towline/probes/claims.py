"""What jobs of other Engines were granted on a machine, whether they use it yet or not."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec import Struct

from towline.model.machine import Machine, Slot
from towline.model.request import Need


class Claim(Struct, frozen=True):
    """What one job was granted, and what its processes use; `pids` is None if that is not known."""

    user: str
    cpus: float = 0.0
    mem_mb: float = 0.0
    gpus: tuple[int, ...] = ()
    gpu_mem_mb: int = 0
    gpu_util: float = 0.0
    reserved: bool = False
    exclusive: bool = False
    pids: frozenset[int] | None = None
    rss_mb: float | None = None
    #: CPUs' worth of work since the probe before.
    busy_cpus: float | None = None


def claim_of(need: Need, slot: Slot, seen: Machine | None) -> dict[str, Any]:
    """What a start order says a process was granted; what is left out is nothing."""
    claim: dict[str, Any] = {"cpus": need.cpus}
    if need.mem_mb:
        claim["mem_mb"] = need.mem_mb
    if need.exclusive:
        claim["exclusive"] = True
    if slot.gpus:
        has = {gpu.index: gpu.mem_mb for gpu in seen.gpus} if seen else {}
        claim |= {
            "gpus": list(slot.gpus),
            "gpu_mem_mb": need.gpu_mem_mb,
            "gpu_util": need.gpu_util,
            "reserved": need.gpu_reserved,
            "room_mb": [has.get(gpu) or need.gpu_mem_mb for gpu in slot.gpus],
        }
    return claim


def claims_of_others(
    raw: Mapping[str, Any], previous: Mapping[str, Any], own: Collection[str], cpus: float
) -> list[Claim]:
    """The claims in a probe, but for our own; nobody can claim more CPUs than there are."""
    before = {_name(claim): claim for claim in _claims(previous)}
    seconds = _number(raw.get("time")) - _number(previous.get("time"))
    return [
        _claim(claim, before.get(_name(claim)), seconds, cpus)
        for claim in _claims(raw)
        if not (claim.get("mine") and claim.get("key") in own)
    ]


def beside(measured: float, claims: Iterable[tuple[float, float | None]]) -> tuple[float, float]:
    """What others use beyond what was claimed, and what the claimants are to be counted with.

    Each claim is what was granted and what of the measured use is its own, None if nobody can tell:
    then it is taken to use what it was granted.
    """
    held = own = 0.0
    for granted, used in claims:
        held += granted if used is None else max(granted, used)
        own += granted if used is None else used
    return max(0.0, measured - own), held


def users_of(claims: Iterable[Claim]) -> str:
    return ", ".join(sorted({claim.user for claim in claims}))


def _claims(raw: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = raw.get("claims")
    return [claim for claim in found if isinstance(claim, dict)] if isinstance(found, list) else []


def _name(claim: Mapping[str, Any]) -> tuple[str, str]:
    return str(claim.get("user")), str(claim.get("key"))


def _claim(
    claim: Mapping[str, Any], before: Mapping[str, Any] | None, seconds: float, cpus: float
) -> Claim:
    use = claim.get("use")
    pids = rss_mb = busy = None
    if isinstance(use, dict):
        pids = frozenset(pid for pid in _list(use.get("pids")) if isinstance(pid, int))
        rss_mb = _number(use.get("rss_mb"))
        busy = _busy(use, (before or {}).get("use"), seconds)
    return Claim(
        user=str(claim.get("user") or "another"),
        cpus=min(_number(claim.get("cpus")), cpus),
        mem_mb=_number(claim.get("mem_mb")),
        gpus=tuple(gpu for gpu in _list(claim.get("gpus")) if isinstance(gpu, int)),
        gpu_mem_mb=int(_number(claim.get("gpu_mem_mb"))),
        gpu_util=_number(claim.get("gpu_util")),
        reserved=claim.get("reserved") is True,
        exclusive=claim.get("exclusive") is True,
        pids=pids,
        rss_mb=rss_mb,
        busy_cpus=busy,
    )


def _busy(use: Mapping[str, Any], before: Any, seconds: float) -> float | None:
    if not isinstance(before, dict) or seconds <= 0:
        return None
    return max(0.0, _number(use.get("cpu_s")) - _number(before.get("cpu_s"))) / seconds


def _number(value: Any) -> float:
    # A number that is none fails both comparisons.
    return float(value) if isinstance(value, int | float) and 0 < value < 1e15 else 0.0


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
