"""An application of Hydra for tests: a run does what `how` says, and writes down what it saw."""

import ctypes
import json
import logging
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.utils import get_original_cwd

log = logging.getLogger(__name__)
SEEN: list[str] = []
LOCK = threading.Lock()
#: Every time that a run begins, on this machine.
LEDGER = Path(os.environ.get("RAN_IN") or Path.home()) / "ran"


class Odd(Exception):
    """One that cannot be made again from its arguments."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")


def misbehave(how: str) -> None:
    if how == "raise":
        raise ValueError("this does not converge")
    if how == "odd":
        raise Odd("this", "that")
    if how == "exit":
        sys.exit(7)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "kill":
        os.kill(os.getpid(), 9)
    if how == "sleepy" and len(ran(HydraConfig.get().job.num)) == 1:
        time.sleep(1000)
    if how == "flaky" and len(ran(HydraConfig.get().job.num)) == 1:
        raise ValueError("not at first")


def ran(number: int) -> list[str]:
    """The times that a run was begun here."""
    lines = LEDGER.read_text().splitlines()
    return [line for line in lines if line.split()[0] == str(number)]


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(config):
    with LOCK:
        began = time.time()
    log.info("run %s", config.how)
    with LEDGER.open("a") as ledger:
        ledger.write(f"{HydraConfig.get().job.num} {config.how}\n")
    print(f"printed by {config.how}", flush=True)
    folder = Path(HydraConfig.get().runtime.output_dir)
    time.sleep(config.seconds)
    misbehave(config.how)
    import helper

    SEEN.append(config.how)
    about = {
        "how": config.how,
        "began": began,
        "ended": time.time(),
        "cpus": sorted(os.sched_getaffinity(0)),
        "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "egl": os.environ.get("EGL_DEVICE_ID"),
        "tmp": tempfile.gettempdir(),
        "seen": SEEN,
        "host": os.uname()[1],
        "cwd": os.getcwd(),
        "original": get_original_cwd(),
        "helper": helper.VERSION,
        "copied": os.environ.get("COPIED"),
    }
    (folder / "result.json").write_text(json.dumps(about))
    return config.seconds


if __name__ == "__main__":
    main()
