"""A run begins in a process that was forked: as new as one that was started for it."""

import atexit
import gc
import logging
import os
import random
import sys
import threading

#: Where a process has one of these open, it has begun to use a GPU, which no fork survives.
_GPU_DEVICES = ("/dev/nvidia", "/dev/kfd")


def unsafe():
    """Why a fork of this process may not work; None where nothing speaks against it."""
    others = [
        thread.name for thread in threading.enumerate() if thread is not threading.current_thread()
    ]
    if others:
        return f"importing the application starts a thread ({others[0]})"
    for place in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{place}").startswith(_GPU_DEVICES):
                return "importing the application uses a GPU"
        except OSError:
            pass
    return None


def before_forks():
    """What is here now stays: no collection writes to it, so that processes share its memory."""
    gc.collect()
    gc.freeze()


def begin():
    """In the new process: no two runs draw the same numbers, and only its own end is its own."""
    atexit._clear()
    random.seed()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "seed"):
        torch.seed()


def end():
    """What a Python does that ends: it waits for threads, then does what was left for its end."""
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
    except BaseException:
        logging.getLogger("towline").exception("at the end of the run")
    logging.shutdown()
