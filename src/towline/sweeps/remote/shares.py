"""Which CPUs and GPUs each of several runs at a time gets of those that a job has."""

import os
import shutil
import subprocess
from typing import Any

#: Which GPU a program draws on, where that is asked for.
_RENDERING = ("EGL_DEVICE_ID", "PYGLET_HEADLESS_DEVICE", "MUJOCO_EGL_DEVICE_ID")
_GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "GPU_DEVICE_ORDINAL")
_ASKING_S = 20


class Shares:
    """The share of each slot: a slot has one run at a time, and keeps its share."""

    def __init__(self, resources: "dict[str, Any]", slots: int) -> None:
        self.cpus: list[list[int]] = []
        self.gpus: dict[str, list[list[str]]] = {}
        #: What there is to say about it.
        self.words: list[str] = []
        if "cpu" in resources:
            given = (resources["cpu"] or {}).get("cpus")
            there = [int(cpu) for cpu in given or sorted(os.sched_getaffinity(0))]
            self.cpus = divided(there, slots) if slots <= len(there) else [there] * slots
            self._tell("CPUs", there, slots)
        lacking = False
        for kind in ("cuda", "rendering"):
            if kind not in resources:
                continue
            given = (resources[kind] or {}).get("gpus")
            gpus = [str(gpu) for gpu in given] if given else gpus_of_job()
            if gpus:
                self.gpus[kind] = divided(gpus, slots)
                self._tell("GPUs", gpus, slots)
            else:
                lacking = True
        if lacking:
            self.words.append("no GPU was found: the runs get none")

    def _tell(self, what: str, there: "list[Any]", slots: int) -> None:
        if max(len(there), slots) % min(len(there), slots):
            self.words.append(
                f"{len(there)} {what} among {slots} runs at a time: not all have as many"
            )

    def variables(self, slot: int) -> "dict[str, str]":
        found = {}
        if "cuda" in self.gpus:
            found["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus["cuda"][slot])
        if "rendering" in self.gpus:
            found.update(dict.fromkeys(_RENDERING, self.gpus["rendering"][slot][0]))
        return found

    def take(self, slot: int) -> None:
        """Have this process, and what it starts, keep to the share of its slot."""
        os.environ.update(self.variables(slot))
        if self.cpus:
            try:
                os.sched_setaffinity(0, self.cpus[slot])
            except OSError as error:
                print(f"towline: CPUs {self.cpus[slot]} cannot be used here: {error.strerror}")

    def said(self, slot: int) -> str:
        parts = [f"CPUs {self.cpus[slot]}"] if self.cpus else []
        parts += [f"{name}={value}" for name, value in self.variables(slot).items()]
        return ", ".join(parts) or "no share of its own"


def divided(there: "list[Any]", slots: int) -> "list[list[Any]]":
    """Neighbours for each slot, as equal as can be; where there are too few, slots share one."""
    count = len(there)
    if slots > count:
        return [[there[slot * count // slots]] for slot in range(slots)]
    return [there[slot * count // slots : (slot + 1) * count // slots] for slot in range(slots)]


def gpus_of_job() -> "list[str]":
    """The GPUs that this job was given, by whatever names; those of the machine if all are ours."""
    for variable in _GPU_VARIABLES:
        if variable in os.environ:
            found = [gpu.strip() for gpu in os.environ[variable].split(",")]
            return [gpu for gpu in found if gpu and gpu not in ("-1", "NoDevFiles")]
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    asked = [program, "--query-gpu=index", "--format=csv,noheader"]
    try:
        done = subprocess.run(asked, stdout=subprocess.PIPE, timeout=_ASKING_S)
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = done.stdout.decode("utf-8", "replace").split()
    return [line for line in lines if line.isdigit()] if done.returncode == 0 else []
