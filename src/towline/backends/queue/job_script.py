"""What is handed over to a queue for one attempt of a job. Pure.

The script is the same for every job: what the user typed travels beside it in files, or as words of
their own, and is never part of any shell's text.
"""

from typing import Any

from msgspec import to_builtins

from towline.backends.queue.dialect import Dialect
from towline.backends.variables import process_variables, shared_variables
from towline.model.job import Job, Queueing, key_of
from towline.model.odd_text import original
from towline.model.request import Packing, Request
from towline.model.service import orders_of

#: Exit codes of the script itself, told from those of a command by there being no record of one.
NOT_SHARED, NO_PYTHON = 97, 98
SCRIPT = f"""\
#!/bin/sh
# Towline runs an attempt of a job. $1: Towline's folder, $2: the attempt, $3: a first process.
[ -d "$1/handed/$2/agent" ] || {{
  echo "towline: no folder $1 on `hostname`" >&2
  exit {NOT_SHARED}
}}
main='import sys; sys.path.insert(0, sys.argv[1]); from towline_agent.node.runner import main'
for p in python3 /usr/bin/python3 /usr/local/bin/python3 /opt/conda/bin/python3; do
  if command -v "$p" >/dev/null 2>&1; then
    exec "$p" -I -S -c "$main; main(sys.argv[2:])" "$1/handed/$2/agent" "$@"
  fi
done
echo "towline: no python3 on `hostname`" >&2
exit {NO_PYTHON}
"""


def handover_key(engine: str, job: Job) -> str:
    """The name of an attempt as a whole; those of its processes begin with it."""
    assert job.attempt is not None
    return key_of(engine, job.id, job.attempt, 0).rpartition("-")[0]


def queueing(job: Job) -> Queueing:
    assert job.spec.queue is not None
    return job.spec.queue


def message(dialect: Dialect, engine: str, job: Job, request: Request, root: str) -> dict[str, Any]:
    """All that the agent on the access node needs to put the attempt into the queue."""
    key = handover_key(engine, job)
    return {
        "key": key,
        "script": SCRIPT,
        "order": order(dialect, job, request),
        "specs": [spec(engine, job, request, rank) for rank in range(request.process_count)],
        "argv": dialect.submit_words(job, key, root),
    }


def group_of(dialect: Dialect, job: Job, request: Request) -> str:
    """Attempts of the same group can be in one array or pack; empty for those that go alone."""
    if not job.spec.batch or request.process_count > 1:
        return ""
    return f"{job.spec.batch} {queueing(job)} {order(dialect, job, request)}"


def pack_of(job: Job) -> Packing | None:
    """How it shares an allocation with others of its batch; None: it has one of its own."""
    return job.spec.pack if job.spec.batch else None


def order(dialect: Dialect, job: Job, request: Request) -> dict[str, Any]:
    """What the runner on the nodes must know besides the processes' own specs."""
    queue = queueing(job)
    return {
        "processes": request.process_count,
        "parts": dialect.parts(request, queue),
        "ranks": [[group, process] for group, process, _ in request.processes()],
        "gpus": [need.gpu_count for _, _, need in request.processes()],
        "given": sorted(job.spec.env),
        "time_s": job.spec.time_s,
        "signal": queue.signal,
        "requeue": queue.requeue,
        "on_timeout": queue.on_timeout,
        "environ": not dialect.takes_environment,
        "pack": to_builtins(pack) if (pack := pack_of(job)) else None,
    }


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
