"""The GPU tool of a machine, and what it is asked."""

import os

from ..commands import process

FORMAT = b"--format=csv,noheader,nounits"
GPUS = b"--query-gpu=index,uuid,name,memory.total,memory.used,utilization.gpu"
APPS = b"--query-compute-apps=gpu_uuid,pid,used_memory"


def find() -> "bytes | None":
    try:
        return process.find_command(b"nvidia-smi", os.environb)
    except process.CannotStart:
        return None
