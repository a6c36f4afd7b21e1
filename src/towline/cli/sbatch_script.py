"""A job as a script that `sbatch` takes on the access node, to read or to submit by hand."""

from __future__ import annotations

import shlex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def script(job: dict[str, Any]) -> str:
    """Its options, its folder over there, its set-up and its command; no values of variables."""
    queue = job["queue"]
    parts = queue["options"] or [[]]
    lines = [
        "#!/bin/bash -l",
        f"# job {job['id']} of Towline, for sbatch on {job['cluster']}",
        f"#SBATCH {shlex.quote('--job-name=' + one_line(job['title']))}",
    ]
    for index, options in enumerate(parts):
        lines += ["#SBATCH hetjob"] * bool(index)
        lines += [f"#SBATCH {shlex.quote(option)}" for option in options]
    lines += ["", *_folder(job)]
    lines += [f"export {name}=...   # set with -e; values are not shown" for name in job["env"]]
    if job.get("setup"):
        lines += [job["setup"]]
    lines += ["", _command(job, len(parts))]
    return "\n".join(lines)


def one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _folder(job: dict[str, Any]) -> list[str]:
    """Where its files are as long as the job's folder is there; `tow checkout` has them always."""
    processes = job.get("processes") or []
    if not processes or not processes[0].get("folder"):
        return [f"# its files: tow checkout {job['id']}"]
    folder = str(processes[0]["folder"])
    inside = "/src/" + job["subfolder"] if job.get("subfolder") else "/src"
    return [
        f"cd {_place(folder + inside)} || exit   # or: tow checkout {job['id']}",
        f"export KEEP_DIR={_place(folder + '/keep')}",
    ]


def _place(path: str) -> str:
    """Quoted, but for the `~` that the shell over there is to replace."""
    if not path.startswith("~/"):
        return shlex.quote(path)
    inner = path[1:]
    for special in '\\"$`':
        inner = inner.replace(special, "\\" + special)
    return f'"$HOME{inner}"'


def _command(job: dict[str, Any], parts: int) -> str:
    words = shlex.join(job["command"])
    if len(job.get("processes") or ()) <= 1:
        return f"exec {words}"
    if parts == 1:
        return f"srun {words}"
    return "srun " + " : ".join(f"--het-group={index} {words}" for index in range(parts))
