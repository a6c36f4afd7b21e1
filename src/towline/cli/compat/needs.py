"""What a job of a batch needs: the ssh scheduler's options as a request of ours."""

from __future__ import annotations

from towline.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

#: What a machine is asked for by someone who only wants a command run on it.
NEXT_TO_NOTHING = "[cpus=0.001]"
#: A GPU is never used more than this, by all jobs on it together.
MOST_UTILIZATION = 1.2


def add_needs(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--num-cpus", type=float, default=1, metavar="N", help="CPUs that one job uses"
    )
    parser.add_argument(
        "--memory-required", type=int, default=7000, metavar="MB", help="memory of one job"
    )
    parser.add_argument(
        "--reserve",
        action="store_true",
        help="a whole machine for each job; CUDA_VISIBLE_DEVICES is not set then",
    )
    parser.add_argument(
        "--no-reserve-gpu", action="store_true", help="several jobs may share a GPU"
    )
    parser.add_argument("--no-gpu-required", action="store_true", help="jobs use no GPU")
    parser.add_argument(
        "--gpu-memory-required", type=int, default=1000, metavar="MB", help="GPU memory of one job"
    )
    parser.add_argument(
        "--gpu-utilization",
        type=float,
        default=0.75,
        metavar="SHARE",
        help="how much of a GPU's computing one job uses; 1 is all of it",
    )


def request_for(options: Namespace) -> str:
    """The request of each job."""
    _check(options)
    items = [f"cpus={options.num_cpus:g}"]
    if options.memory_required:
        items.append(f"mem={options.memory_required}M")
    if needs_gpu(options):
        items.append("gpu")
        if options.gpu_memory_required:
            items.append(f"gpumem={options.gpu_memory_required}M")
        # Without any number the GPU would have to be idle, and could not be shared.
        items.append(f"gpuutil={min(max(options.gpu_utilization, 0.001), 1):g}")
        if not options.no_reserve_gpu:
            items.append("reserve")
    if options.reserve:
        items.append("exclusive")
    return f"[{','.join(items)}]"


def needs_gpu(options: Namespace) -> bool:
    return not options.no_gpu_required


def argv_for(command: str, options: Namespace) -> list[str]:
    """Bash runs it; with a whole machine, it is not told which GPU is its own."""
    hide = ["env", "-u", "CUDA_VISIBLE_DEVICES"] if options.reserve and needs_gpu(options) else []
    return [*hide, *by_interactive_bash(command)]


def by_interactive_bash(command: str) -> list[str]:
    """Run as if it were typed on the machine: after all of ~/.bashrc."""
    return ["bash", "-i", "-c", command]


def _check(options: Namespace) -> None:
    if not 0 < options.num_cpus <= 10_000:
        raise UsageError(f"--num-cpus must be more than 0, not {options.num_cpus:g}")
    for name in ("memory_required", "gpu_memory_required"):
        if getattr(options, name) < 0:
            typed = f"--{name.replace('_', '-')}"
            raise UsageError(f"{typed} is in MB and cannot be {getattr(options, name)}")
    if not 0 <= options.gpu_utilization < MOST_UTILIZATION:
        raise UsageError(
            f"--gpu-utilization must be from 0 to less than {MOST_UTILIZATION}, "
            f"not {options.gpu_utilization:g}: no GPU could take it",
            "1 is all of a GPU's computing, 0.5 half of it",
        )
