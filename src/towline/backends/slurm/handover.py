"""What is handed to Slurm for one attempt of a job. Pure.

The script is the same for every job: what the user typed travels beside it in files, or as words of
their own, and is never part of any shell's text.
"""

from typing import Any

from towline.backends.slurm.options import Component, components
from towline.backends.variables import process_variables, shared_variables
from towline.model.job import Job, Queueing, key_of
from towline.model.odd_text import original
from towline.model.request import Request
from towline.model.service import orders_of

#: How the comments of our jobs begin.
MARK = "towline:"
#: Exit codes of the script itself, told from those of a command by there being no record of one.
NOT_SHARED, NO_PYTHON = 97, 98
SCRIPT = f"""\
#!/bin/sh
# Towline runs one attempt of a job. $1: Towline's folder, $2: the attempt, $3: a first process.
[ -d "$1/handed/$2/agent" ] || {{
  echo "towline: no folder $1 on `hostname`" >&2
  exit {NOT_SHARED}
}}
main='import sys; sys.path.insert(0, sys.argv[1]); from towline_agent.runner import main'
for p in python3 /usr/bin/python3 /usr/local/bin/python3 /opt/conda/bin/python3; do
  if command -v "$p" >/dev/null 2>&1; then
    exec "$p" -I -c "$main; main(sys.argv[2:])" "$1/handed/$2/agent" "$@"
  fi
done
echo "towline: no python3 on `hostname`" >&2
exit {NO_PYTHON}
"""


def handed_key(engine: str, job: Job) -> str:
    """The name of an attempt as a whole; those of its processes begin with it."""
    assert job.attempt is not None
    return key_of(engine, job.id, job.attempt, 0).rpartition("-")[0]


def queueing(job: Job) -> Queueing:
    assert job.spec.queue is not None
    return job.spec.queue


def comment(key: str) -> str:
    """By this an attempt is found again in Slurm's lists."""
    return f"{MARK}{key}"


def message(engine: str, job: Job, request: Request, root: str) -> dict[str, Any]:
    """All that the agent on the access node needs to put the attempt into Slurm's queue."""
    key = handed_key(engine, job)
    return {
        "key": key,
        "script": SCRIPT,
        "order": order(job, request),
        "specs": [spec(engine, job, request, rank) for rank in range(request.process_count)],
        "argv": words(job, key, root),
    }


def group_of(job: Job, request: Request) -> str:
    """Attempts of the same group can be tasks of one array; empty for those that go alone."""
    if not job.spec.batch or request.process_count > 1:
        return ""
    return f"{job.spec.batch} {queueing(job)} {order(job, request)}"


def shown_words(title: str, queue: Queueing) -> list[str]:
    """The command line of sbatch as far as people care: without what only Towline needs."""
    found = ["sbatch", f"--job-name={_job_name(title)}"]
    if queue.requeue or queue.on_timeout:
        found.append("--requeue")
    if queue.signal:
        found.append(f"--signal={queue.signal}")
    return [*found, *_options(queue)]


def _job_name(title: str) -> str:
    return "".join(c if c.isprintable() else " " for c in original(title)) or "tow"


def _options(queue: Queueing) -> list[str]:
    """Parts of a heterogeneous job have a colon between them."""
    found: list[str] = []
    for index, options in enumerate(queue.options):
        found += [*([":"] if index else []), *options]
    return found


def words(job: Job, key: str, root: str, tasks: str = "") -> list[str]:
    """The command line of sbatch; `tasks` are the numbers of an array's."""
    queue = queueing(job)
    common = [
        f"--job-name={_job_name(job.spec.batch if tasks else job.spec.title)}",
        f"--comment={comment(key)}",
        f"--chdir={root}/handed/{key}",
        "--output=slurm%a.out" if tasks else "--output=slurm.out",
        "--open-mode=append",
        "--requeue" if queue.requeue or queue.on_timeout else "--no-requeue",
    ]
    if queue.signal:
        # The script of a single process becomes what runs the command; steps get it by themselves.
        single = job.attempt is None or len(job.attempt.placement) == 1
        common.append(f"--signal={'B:' if single else ''}{queue.signal}")
    if tasks:
        common.append(f"--array={tasks}")
    found = ["sbatch", "--parsable", *common, *_options(queue)]
    return [*found, f"{root}/handed/{key}/script", root, key]


def test_words(submit: tuple[tuple[str, ...], ...]) -> list[str]:
    """Ask whether Slurm would take such a job at all, and when it would start."""
    return ["sbatch", "--test-only", *submit[0], "--wrap=true"] if len(submit) == 1 else []


def order(job: Job, request: Request) -> dict[str, Any]:
    """What the runner on the nodes must know besides the processes' own specs."""
    queue = queueing(job)
    parts = components(request, {})
    return {
        "processes": request.process_count,
        "parts": [{"first": part.first, "count": part.count, "cpus": _cpus(queue.options, i, part)}
                  for i, part in enumerate(parts)],
        "ranks": [[group, process] for group, process, _ in request.processes()],
        "gpus": [need.gpu_count for _, _, need in request.processes()],
        "given": sorted(job.spec.env),
        "time_s": job.spec.time_s,
        "signal": queue.signal,
        "requeue": queue.requeue,
        "on_timeout": queue.on_timeout,
    }  # fmt: skip


def part_words(request: Request, rank: int) -> list[str]:
    """How srun is told which part of a heterogeneous job a process is in."""
    parts = components(request, {})
    inside = [i for i, part in enumerate(parts) if part.first <= rank < part.first + part.count]
    return [f"--het-group={inside[0]}"] if len(parts) > 1 and inside else []


def _cpus(submit: tuple[tuple[str, ...], ...], index: int, part: Component) -> int:
    """As sbatch was told: srun does not take it over by itself."""
    options = submit[index] if index < len(submit) else ()
    given = [word.partition("=")[2] for word in options if word.startswith("--cpus-per-task=")]
    return int(given[-1]) if given and given[-1].isdigit() else max(1, int(part.need.cpus))


def spec(engine: str, job: Job, request: Request, rank: int) -> dict[str, Any]:
    """One process, as the agent knows them; who is where is found out on the nodes."""
    assert job.attempt is not None
    asked = job.spec
    nowhere = {slot.machine: "" for slot in job.attempt.placement}
    env = process_variables(job, request, shared_variables(job, request, nowhere, 0))[rank]
    for name in ("CUDA_VISIBLE_DEVICES", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        if name not in asked.env:
            env.pop(name, None)
    return {
        "key": key_of(engine, job.id, job.attempt, rank),
        "argv": [original(word) for word in asked.argv],
        "env": {name: original(value) for name, value in env.items()},
        "cwd": original(asked.subfolder),
        "snapshot": asked.snapshot,
        "setup": asked.setup,
        "time_s": asked.time_s,
        "grace_s": asked.grace_s,
        "links": asked.links,
        "keep": asked.keep,
        "services": orders_of(asked.services) if rank == 0 else [],
    }
