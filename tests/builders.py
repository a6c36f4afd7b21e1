"""Machines, needs and jobs with a default for everything a test is not about."""

from typing import Any

from towline.core.scheduling.scheduler import Waiting
from towline.model.machine import Gpu, Machine, Placement, Slot
from towline.model.request import GpuNeed, Group, Need, Request


def a_gpu(
    index: int = 0, model: str = "NVIDIA GeForce GTX 1070", mem_mb: int = 8192, **more: Any
) -> Gpu:
    return Gpu(index=index, model=model, mem_mb=mem_mb, **more)


def a_machine(
    name: str = "gpu1",
    gpus: int | tuple[Gpu, ...] = 0,
    cpus: float = 8.0,
    mem_mb: int = 32_768,
    clusters: tuple[str, ...] = ("lab",),
    **more: Any,
) -> Machine:
    if isinstance(gpus, int):
        gpus = tuple(a_gpu(index) for index in range(gpus))
    return Machine(name=name, cpus=cpus, mem_mb=mem_mb, gpus=gpus, clusters=clusters, **more)


def a_need(gpus: int | str | tuple[GpuNeed, ...] = 0, **more: Any) -> Need:
    """`gpus`: how many of any kind, the name of one, or the needs themselves."""
    if isinstance(gpus, str):
        gpus = (GpuNeed(1, gpus),)
    elif isinstance(gpus, int):
        gpus = (GpuNeed(gpus),) if gpus else ()
    return Need(gpus=gpus, **more)


def a_request(processes: int = 1, **need: Any) -> Request:
    return Request((Group(processes, a_need(**need)),))


def a_job(
    job_id: int = 1,
    *,
    cluster: str = "lab",
    owner: str = "anna",
    priority: int = 0,
    submitted: float | None = None,
    time_s: float = 0.0,
    avoid: tuple[str, ...] = (),
    batch: str = "",
    at_most: int = 0,
    request: Request | None = None,
    **need: Any,
) -> Waiting:
    """A waiting job; its number also says when it came, unless a test cares."""
    return Waiting(
        id=job_id,
        cluster=cluster,
        request=request or a_request(**need),
        owner=owner,
        priority=priority,
        submitted=float(job_id) if submitted is None else submitted,
        time_s=time_s,
        avoid=avoid,
        batch=batch,
        at_most=at_most,
    )


def at(machine: str, *gpus: int) -> Placement:
    """The placement of a job's only process."""
    return (Slot(machine, gpus),)
