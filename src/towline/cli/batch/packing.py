"""Jobs of a batch that share an allocation, or a GPU."""

from __future__ import annotations

from towline.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

#: Jobs that can share one GPU: shares are counted in thousandths of its computing.
MOST_PER_GPU = 1000


def pack(options: Namespace, base: dict[str, Any]) -> None:
    """Say in what all jobs ask for how they share it."""
    if options.per_allocation is not None:
        base["pack"] = _shared(options)
    elif options.stagger is not None:
        raise UsageError("--stagger is for jobs that share an allocation", "add --per-allocation M")
    else:
        base["request"] = _packed(options)
        base.pop("gpus", None)


def _shared(options: Namespace) -> dict[str, Any]:
    """How they share allocations."""
    from towline.model.units import parse_duration_s

    parallel = 1 if options.pack is None else options.pack
    found: dict[str, Any] = {"parallel": parallel, "lines": options.per_allocation}
    if options.stagger is not None:
        found["stagger_s"] = parse_duration_s(options.stagger)
    return found


def _packed(options: Namespace) -> str:
    """The request of a job that shares its GPU with so many of its kind."""
    if not 1 <= options.pack <= MOST_PER_GPU:
        raise UsageError(f"--pack must be from 1 to {MOST_PER_GPU}, not {options.pack}")
    if options.request is not None:
        raise UsageError(
            "--pack and -r both say what a job needs of a GPU",
            "leave out one of them; -r '[gpumem=3G]' shares a GPU by its memory",
        )
    gpus = options.gpus or "1"
    if set(gpus) & set("[]="):
        raise UsageError(f"cannot read --gpus {gpus!r}", "like 2, gtx1070 or 2:gtx1070")
    # Rounded down, or the last of them would not fit.
    share = MOST_PER_GPU // options.pack / MOST_PER_GPU
    return f"[{f'{gpus}:gpu' if gpus.isdigit() else gpus},gpuutil={share}]"
