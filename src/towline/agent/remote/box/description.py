"""What a job's box is asked to be: checked once, complete from then on."""

import os

from ..refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..typed import Message

#: `own`: a network namespace with a way out, where the machine can give one; `host`: the machine's.
NETWORKS = ("own", "host")
MODES = ("ro", "rw")
FIELDS = ("network", "binds", "gpus")
#: What the box has of its own, and no bind may take the place of.
RESERVED = ("/", "/dev", "/etc", "/proc", "/sys", "/tmp", "/usr", "/var/tmp")


def checked_box(box: "Any") -> "Message | None":
    """None: the job has no walls. Raises Refusal."""
    if box is None:
        return None
    if not isinstance(box, dict) or set(box).difference(FIELDS):
        raise Refusal("bad_request", "`box` is wrong: %.200r" % (box,))
    network, binds = box.get("network", "own"), box.get("binds", [])
    if network not in NETWORKS:
        raise Refusal("bad_request", "`network` of a box is own or host, not %.80r" % (network,))
    if not isinstance(binds, list):
        raise Refusal("bad_request", "`binds` of a box is not a list")
    gpus = box.get("gpus", [])
    if not isinstance(gpus, list) or not all(isinstance(gpu, str) for gpu in gpus):
        raise Refusal("bad_request", "`gpus` of a box are not identities of GPUs")
    whole = [checked_bind(bind) for bind in binds]
    check_points([(inside, mode) for _, inside, mode in whole])
    return {"network": network, "binds": whole, "gpus": gpus}


def checked_bind(bind: "Any") -> "list[str]":
    if not isinstance(bind, list) or len(bind) != 3 or not all(isinstance(w, str) for w in bind):
        raise Refusal("bad_request", "a bind is not [outside, inside, mode]: %.200r" % (bind,))
    outside, inside, mode = bind
    for path in (outside, inside):
        if not path.startswith("/") or os.path.normpath(path) != path or "\0" in path:
            raise Refusal("bad_request", "a box cannot show %.200r: not a whole path" % path)
    if inside in RESERVED or inside.startswith(("/proc/", "/dev/", "/sys/")):
        raise Refusal("bad_request", "a box has its own %s" % inside)
    if mode not in MODES:
        raise Refusal("bad_request", "a bind is ro or rw, not %.80r" % mode)
    return [outside, inside, mode]


def check_points(points: "list[tuple[str, str]]") -> None:
    """No mount point lies below what a job may write: a link that an earlier one left there would
    have it made elsewhere on the machine. `points` are (inside, mode)."""
    seen = set()
    for inside, _ in points:
        if inside in seen:
            raise Refusal("bad_request", "two binds of a box have the place %s" % inside)
        seen.add(inside)
        for other, mode in points:
            if mode == "rw" and inside.startswith(other + "/"):
                text = "a box cannot show %s below %s, which its job may write" % (inside, other)
                raise Refusal("bad_request", text)


def check_sources(binds: "list[list[str]]") -> None:
    """What is shown is a place without links on its way: they might be a job's own. Raises
    ValueError."""
    for outside, _, _ in binds:
        if not os.path.exists(outside):
            raise ValueError("there is no %s to show to the job" % outside)
        if os.path.realpath(outside) != outside:
            raise ValueError("%s leads elsewhere by a link, so it is not shown" % outside)
