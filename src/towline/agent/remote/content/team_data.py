"""The data of a team on this machine: what a job may see of it, if what is there is really it.

A folder that should be a common file system, and is not mounted just now, is an ordinary folder:
what is written there would be nowhere. So a file of a secret name, which the server keeps in its
data, has to be found before a job is told of the folder.
"""

import os
import re

from ..refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..typed import Environ, Message, Spec

NAME = re.compile(r"[A-Z][A-Z0-9_]*_DIR")
MODES = ("ro", "rw")
MOST_BYTES = 1000


def checked_data(data: "Any") -> "Message | None":
    """None: the job has none. Raises Refusal."""
    if data is None:
        return None
    root, mark, word = data.get("root"), data.get("mark"), data.get("word")
    whole = all(isinstance(one, str) and one for one in (root, mark, word))
    if not whole or not is_plain(root) or "/" in mark:
        raise Refusal("bad_request", "`data` of a job is wrong")
    places = data.get("places")
    if not isinstance(places, dict) or not all(is_place(*one, root=root) for one in places.items()):
        raise Refusal("bad_request", "`places` of a job's data are wrong")
    return {"root": root, "mark": mark, "word": word, "places": places}


def is_plain(path: str) -> bool:
    return os.path.isabs(path) and os.path.normpath(path) == path and "\0" not in path


def is_place(name: str, place: "Any", root: str) -> bool:
    """Whether it is a variable, and a folder below the root that may be read, or written too."""
    if not isinstance(place, list) or len(place) != 2:
        return False
    path, mode = place
    inside = isinstance(path, str) and is_plain(path) and path.startswith(root.rstrip("/") + "/")
    return bool(NAME.fullmatch(name)) and inside and mode in MODES


def settle(spec: "Spec") -> None:
    """Take away what is not there now; what is there, the job's walls let through."""
    data = spec.get("data")
    if data is None:
        return
    if not is_there(data):
        spec["data"] = None
        return
    box = spec.get("box")
    if box is not None:
        shown = [[path, path, mode] for path, mode in sorted(data["places"].values())]
        spec["box"] = dict(box, binds=box.get("binds", []) + shown)


def is_there(data: "Message") -> bool:
    """Whether the folder is really that of the server."""
    try:
        with open(os.path.join(data["root"], data["mark"]), "rb") as file:
            return bool(file.read(MOST_BYTES) == data["word"].encode())
    except OSError:
        return False


def variables(spec: "Spec") -> "Environ":
    """What the job is told of it."""
    data = spec.get("data")
    if data is None:
        return {}
    places = data["places"].items()
    return {name.encode(): os.fsencode(path) for name, (path, _) in places}
