"""What a job is asked to be: checked once, complete from then on."""

import json
import os

from ..box.description import checked_box
from ..content import outside
from ..content.team_data import checked_data
from ..content.trees import check_relative
from ..frames import MOST_BLOB
from ..home import checked_key
from ..records.record import read_spec
from ..refusal import Refusal
from ..share import grants
from .execution import HOLD_S
from .services import checked_services

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..home import Home
    from ..typed import Message, Spec

#: field -> (allowed types, what is meant when it is left out)
FIELDS: "dict[str, tuple[tuple[type, ...], Any]]" = {
    "argv": ((list,), None),
    "env": ((dict,), {}),
    "environ": ((dict, type(None)), None),
    "cwd": ((str,), ""),
    "snapshot": ((str,), ""),
    "setup": ((str,), ""),
    "time_s": ((int, float), 0),
    "grace_s": ((int, float), 10),
    "hold": ((bool,), False),
    "hold_s": ((int, float), HOLD_S),
    #: name in the tree -> what it points to on this machine
    "links": ((dict,), {}),
    #: Snapshot that its `keep` folder starts with.
    "keep": ((str,), ""),
    #: Run in this very folder, not in a tree of its own.
    "folder": ((str,), ""),
    #: What it was granted of this machine, for others to see; see claims.py.
    "claim": ((dict, type(None)), None),
    #: Jobs alike that follow one another here; and if it comes ahead of its time, how many run at
    #: a time; see series.py.
    "series": ((str,), ""),
    "places": ((int,), 0),
    #: What runs beside it: `name` and `argv` of each; see services.py.
    "services": ((list,), []),
    #: What it may see of a team's data, and where that is; see team_data.py.
    "data": ((dict, type(None)), None),
    #: The walls around it; None: it has none. See box/description.py.
    "box": ((dict, type(None)), None),
}


def checked_spec(spec: "Any") -> "Spec":
    if not isinstance(spec, dict):
        raise Refusal("bad_request", "a job is not an object")
    whole: "Spec" = {"key": checked_key(spec.get("key")), "at": ""}
    for name, (types, default) in FIELDS.items():
        value = spec.get(name, default)
        if not isinstance(value, types):
            raise Refusal("bad_request", "`%s` of job %s is wrong" % (name, whole["key"]))
        whole[name] = value
    check_words(whole)
    check_claim(whole)
    checked_services(whole["services"])
    whole["data"] = checked_data(whole["data"])
    whole["box"] = checked_box(whole["box"])
    check_walls(whole)
    for path in ([whole["cwd"]] if whole["cwd"] else []) + list(whole["links"]):
        check_relative(path)
    if whole["folder"] and not os.path.isabs(whole["folder"]):
        raise Refusal("bad_request", "`folder` of job %s is not absolute" % whole["key"])
    return whole


def packed(spec: "Spec") -> bytes:
    """The spec as it goes to the supervisor and into the job's folder."""
    raw = json.dumps(spec).encode("ascii")
    if len(raw) > MOST_BLOB:
        raise Refusal("too_large", "job %s has %d bytes of arguments" % (spec["key"], len(raw)))
    return raw


def check_words(spec: "Spec") -> None:
    words = list(spec["argv"])
    for variables in (spec["env"], spec["environ"] or {}):
        words += variables.keys()
        words += variables.values()
        if any("=" in name or not name for name in variables):
            raise Refusal("bad_request", "a variable's name is wrong in job %s" % spec["key"])
    if not spec["argv"] or not all(isinstance(word, str) for word in words):
        raise Refusal("bad_request", "`argv` or `env` of job %s is wrong" % spec["key"])


def check_walls(spec: "Spec") -> None:
    """What leads out of a box is not made beside it."""
    if spec["box"] is None:
        return
    if spec["folder"]:
        raise Refusal("bad_request", "job %s is to run in place, and in a box" % spec["key"])
    if outside.named(spec["links"]):
        text = "job %s is in a box, so nothing comes home from outside of its folder"
        raise Refusal("bad_request", text % spec["key"])


def check_claim(spec: "Spec") -> None:
    claim = spec["claim"]
    try:
        room = grants.checked(claim) and claim.get("room_mb", []) if claim is not None else []
    except ValueError as problem:
        raise Refusal("bad_request", "job %s: %s" % (spec["key"], problem))
    if not isinstance(room, list) or not all(isinstance(mb, int) for mb in room):
        raise Refusal("bad_request", "`room_mb` of job %s is wrong" % spec["key"])


def exec_spec(home: "Home", request: "Message") -> "Spec":
    """A further process with the environment and the folder of job `key`."""
    key = checked_key(request.get("key"))
    base = read_spec(home.record(key))
    if base is None:
        raise Refusal("unknown_job", "no job %s on this machine" % key)
    spec = checked_spec(
        {
            "key": request.get("new_key"),
            "argv": request.get("argv"),
            "env": dict(base["env"], **(request.get("env") or {})),
            "environ": base["environ"],
            "cwd": base["cwd"],
            "setup": base["setup"],
            "grace_s": base["grace_s"],
            "folder": base.get("folder", ""),
            "data": base.get("data"),
            "box": base.get("box"),
        }
    )
    spec["at"] = base["at"] or key
    return spec
