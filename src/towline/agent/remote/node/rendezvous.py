"""The processes of an attempt on several nodes find each other, through a shared folder."""

import json
import os
import socket
import time

from .. import machine
from ..records import record
from ..run.execution import HOLD_S, Stopped
from . import devices, site

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..run.execution import Execution
    from ..typed import Environ, Message
    from .attempt import Attempt

LOOK_S = 0.2


def host_name() -> str:
    """What other nodes reach it by."""
    return socket.gethostname()


def node_name() -> str:
    """What the queue calls it, which may be another name."""
    return site.node_name() or host_name()


def meet(execution: "Execution", attempt: "Attempt", rank: int) -> "dict[str, str]":
    """Wait until all are there; the variables that tell who is where."""
    order = attempt.order
    me: "Message" = {"host": host_name(), "node": node_name()}
    me["port"] = machine.free_port() if rank == 0 else 0
    everybody = {rank: me}
    if order["processes"] > 1:
        folder = attempt.folder + "/meet.%d" % attempt.run
        os.makedirs(folder, 0o700, exist_ok=True)
        record.write_whole("%s/%d" % (folder, rank), json.dumps(me).encode("ascii"))
        everybody = wait_for_all(execution, folder, order["processes"])
    return variables(order, rank, everybody)


def wait_for_all(execution: "Execution", folder: str, count: int) -> "dict[int, Message]":
    until = time.monotonic() + HOLD_S
    # Listing, not looking for each: a network file system may remember for long what was not there.
    while sum(name.isdigit() for name in os.listdir(folder)) < count:
        execution.wait(LOOK_S)
        if execution.stop_grace is not None:
            raise Stopped("stopped", "stopped before it started")
        if time.monotonic() > until:
            raise Stopped("void", "not all of its processes came to their nodes")
    found = {}
    for rank in range(count):
        with open("%s/%d" % (folder, rank)) as file:
            found[rank] = json.loads(file.read())
    return found


def variables(order: "Message", rank: int, everybody: "dict[int, Message]") -> "dict[str, str]":
    found = own_gpus(order["gpus"][rank])
    for other, who in everybody.items():
        group, process = order["ranks"][other]
        found["HOST_GROUP%d_PROCESS%d" % (group, process)] = who["host"]
    if order["processes"] > 1:
        # A job of one process is not to believe that a launcher started it.
        here = everybody[rank]["node"]
        beside = sum(everybody[other]["node"] == here for other in range(rank))
        found["LOCAL_RANK"] = str(beside)
        found["MASTER_ADDR"] = everybody[0]["host"]
        found["MASTER_PORT"] = str(everybody[0]["port"])
    return found


def own_gpus(count: int) -> "dict[str, str]":
    """Of the GPUs that all processes of a step on this node have together, those of this one."""
    visible = [word for word in os.environ.get(devices.VISIBLE, "").split(",") if word]
    if not count or len(visible) <= count:
        return {}
    return {devices.VISIBLE: ",".join(devices.of_this_process(visible, count))}


def own_tmp(environ: "Environ") -> None:
    """A TMPDIR that is on this node: the one that came along may be the access node's."""
    for name in site.SCRATCH:
        folder = environ.get(name)
        if folder and os.path.isdir(folder) and os.access(folder, os.W_OK):
            environ[b"TMPDIR"] = folder
            return
    environ.pop(b"TMPDIR", None)
