"""The walls around a job, as its machine is told of them. Pure."""

from typing import Any

from towline.model.job import Job, Sandbox
from towline.model.machine import Machine, Slot
from towline.model.odd_text import original


def box_of(job: Job, slot: Slot, seen: Machine | None, always: bool) -> dict[str, Any] | None:
    """What the agent is to build around one process; None: nothing. `always`: the machine is one
    on which no job is without."""
    sandbox = job.spec.sandbox or (Sandbox() if always else None)
    if sandbox is None:
        return None
    assert job.attempt is not None
    alone = len(job.attempt.placement) == 1
    return {
        # Processes of a gang are to reach each other.
        "network": "own" if alone else "host",
        "binds": [[original(path), original(path), "ro"] for path in sandbox.shows],
        "gpus": granted(slot, seen),
    }


def granted(slot: Slot, seen: Machine | None) -> list[str]:
    """The identities of the GPUs that a process was given."""
    gpus = () if seen is None else seen.gpus
    return [gpu.uuid for gpu in gpus if gpu.index in slot.gpus and gpu.uuid]


def inside(variables: dict[str, str], own: dict[str, str]) -> dict[str, str]:
    """The variables of a process that is walled in: it sees no GPUs but its own, which are numbered
    from 0 there. What the user chose stays."""
    visible = variables.get("CUDA_VISIBLE_DEVICES")
    if visible is None or "CUDA_VISIBLE_DEVICES" in own:
        return variables
    numbers = ",".join(str(number) for number in range(len(visible.split(",")) if visible else 0))
    return {**variables, "CUDA_VISIBLE_DEVICES": numbers, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
