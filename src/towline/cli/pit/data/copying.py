"""`pit pull`, `cat`, and what would change the data of a job, which nobody can but the job."""

from __future__ import annotations

import os

from towline.cli.pit.data.reading import target_file, write_whole
from towline.cli.pit.data.tree import FILE, JobTree
from towline.cli.pit.failures import Failed
from towline.cli.pit.session import PitSession
from towline.cli.pit.typed.names import job_with_data
from towline.cli.terminal import write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from towline.cli.pit.typed.grammar import Typed

ONLY_FILES = "Command only supports file transfers."
_NO_CHANGE = "Only the running job itself writes its data"


def cat(typed: Typed) -> None:
    tree = _tree(typed.words[0], typed.words[1])
    for piece in tree.read(typed.words[1]):
        write(1, piece)


def pull(typed: Typed) -> None:
    source, target = typed.words[1], typed.word(2)
    tree = _tree(typed.words[0], source)
    if target is None:
        for piece in tree.read(source):
            write(1, piece)
        return
    target = target_file(source, target)
    size = tree.stat(source)["size"]
    here = os.path.getsize(target) if os.path.exists(target) else 0
    if "force" in typed.options or not here:
        write_whole(target, tree.read(source))
    elif here > size:
        raise Failed(f"{target} is larger than what is copied", "--force replaces it")
    elif here < size and _goes_on(target, typed):
        with open(target, "ab") as file:
            for piece in tree.read(source, here):
                file.write(piece)


def _goes_on(target: str, typed: Typed) -> bool:
    from towline.cli.pit.typed.prompting import ask

    if "continue" in typed.options:
        return True
    return ask(f"{target} is there in part. Go on with it (yN)? ").lower() in ("y", "yes")


def push(typed: Typed) -> NoReturn:
    _refuse(typed)


def mkdir(typed: Typed) -> NoReturn:
    _refuse(typed)


def delete(typed: Typed) -> NoReturn:
    _refuse(typed)


def _refuse(typed: Typed) -> NoReturn:
    job_with_data(typed.words[0])
    raise Failed(_NO_CHANGE, "what a new job is to have lies in the folder that pit run sends")


def _tree(typed: str, path: str) -> JobTree:
    tree = JobTree(PitSession(), job_with_data(typed))
    if tree.stat(path)["kind"] != FILE:
        raise Failed(ONLY_FILES)
    return tree
