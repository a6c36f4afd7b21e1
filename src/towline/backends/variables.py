"""The variables every process gets. Pure."""

from collections import Counter
from collections.abc import Mapping

from towline.model.job import Job
from towline.model.request import Request

#: How frameworks know that a launcher started them. A job of one process has none of these: with
#: them, a training on two GPUs would wait for ever for processes that it was to start itself.
OF_A_LAUNCHER = frozenset({"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})


def shared_variables(
    job: Job, request: Request, addresses: Mapping[str, str], port: int
) -> dict[str, str]:
    """Those that are the same for all processes of an attempt: who they are and where to meet."""
    assert job.attempt is not None
    placement = job.attempt.placement
    found = {"NUM_GROUPS": str(len(request.groups)), "WORLD_SIZE": str(len(placement))}
    for index, group in enumerate(request.groups):
        found[f"NUM_PROCESSES_GROUP{index}"] = str(group.count)
    for (group_index, process_index, _), slot in zip(request.processes(), placement, strict=True):
        found[f"HOST_GROUP{group_index}_PROCESS{process_index}"] = addresses[slot.machine]
    found["MASTER_ADDR"] = addresses[placement[0].machine]
    found["MASTER_PORT"] = str(port)
    return found


def process_variables(
    job: Job, request: Request, shared: Mapping[str, str]
) -> list[dict[str, str]]:
    """All variables of every process, in rank order; the user's own `-e` settings win."""
    assert job.attempt is not None
    found = []
    seen: Counter[str] = Counter()
    for rank, (group_index, process_index, need) in enumerate(request.processes()):
        slot = job.attempt.placement[rank]
        own = {
            **shared,
            "GROUP_INDEX": str(group_index),
            "PROCESS_INDEX": str(process_index),
            "RANK": str(rank),
            "LOCAL_RANK": str(seen[slot.machine]),
            "TOWLINE_JOB": str(job.id),
        }
        if job.spec.commit:
            own["TOWLINE_COMMIT"] = job.spec.commit
        if need.gpus:
            own["CUDA_VISIBLE_DEVICES"] = ",".join(str(index) for index in slot.gpus)
        if len(job.attempt.placement) == 1:
            own = {name: value for name, value in own.items() if name not in OF_A_LAUNCHER}
        seen[slot.machine] += 1
        found.append({**own, **job.spec.env})
    return found
