"""What a job finds on the node that a queue gave it, and only there."""

import os
import time

from . import devices, rendezvous, site

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..run.execution import Execution
    from ..typed import Environ
    from .attempt import Attempt


class Node:
    """The node of one process of an attempt, beside those of the others."""

    def __init__(self, attempt: "Attempt", rank: int) -> None:
        self.attempt = attempt
        self.rank = rank
        #: Variables that tell who is where, once all have come.
        self.found: "dict[str, str]" = {}

    def has_gpus(self) -> bool:
        """Whether it was given any, by us or by the queue."""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").strip()
        return bool(self.attempt.order["gpus"][self.rank]) or visible not in ("", "-1")

    def arrive(self, execution: "Execution") -> None:
        order = self.attempt.order
        # Before the others hear of us: where there are none, nobody is to begin.
        wanted = 0 if devices.VISIBLE in (order.get("given") or ()) else order["gpus"][self.rank]
        gpus = devices.choose(execution, wanted)
        self.found = rendezvous.meet(execution, self.attempt, self.rank)
        self.found.update(gpus)
        spec = execution.spec
        if spec["time_s"]:
            # The queue counts from the start of the whole, not of the command.
            spec["time_s"] = max(1.0, spec["time_s"] - (time.time() - self.attempt.began))

    def adapt(self, environ: "Environ") -> None:
        given = self.attempt.order.get("given") or ()
        for name, value in self.found.items():
            if name not in given:
                environ[name.encode()] = value.encode("utf-8", "surrogateescape")
        for own in site.OURS:
            environ.pop(own, None)
        if self.attempt.scratch:
            environ[b"TMPDIR"] = self.attempt.scratch.encode("utf-8", "surrogateescape")
        else:
            rendezvous.own_tmp(environ)

    def names(self) -> "set[bytes]":
        found = {name.encode() for name in self.found}
        return site.variables().union(found, [b"TMPDIR"])
