"""`pit pull`, `push`, `cat`, `mkdir`, `delete`: files of jobs and of the data of a team."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import closing

from towline.cli.pit.data.domains import DomainTree, tree_of
from towline.cli.pit.data.progress import TransferBar
from towline.cli.pit.data.reading import target_file, write_whole
from towline.cli.pit.data.tree import FILE, FOLDER, JobTree, split
from towline.cli.pit.failures import Failed
from towline.cli.terminal import write
from towline.errors import NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

    from towline.cli.pit.typed.grammar import Typed

ONLY_FILES = "Command only supports file transfers."
_NO_CHANGE = "Only the running job itself writes its data"


def cat(typed: Typed) -> None:
    tree = _with_file(typed.words[0], typed.words[1])
    for piece in tree.read(typed.words[1]):
        write(1, piece)


def pull(typed: Typed) -> None:
    source, target = typed.words[1], typed.word(2)
    tree = _with_file(typed.words[0], source)
    if target is None:
        for piece in tree.read(source):
            write(1, piece)
        return
    target = target_file(source, target)
    size = tree.stat(source)["size"]
    here = os.path.getsize(target) if os.path.exists(target) else 0
    if "force" in typed.options or not here:
        bring_whole(tree, source, target)
    elif here > size:
        raise Failed(f"{target} is larger than what is copied", "--force replaces it")
    elif here < size and _goes_on(target, typed):
        with open(target, "r+b") as file:
            _bring(tree, source, file)


def bring_whole(tree: JobTree | DomainTree, source: str, target: str) -> None:
    """A file that has its name only once all of it is there, and right."""
    if isinstance(tree, JobTree):
        write_whole(target, tree.read(source))
        return
    beside = f"{target}.{os.getpid()}.part"
    try:
        with open(beside, "x+b") as file:
            _bring(tree, source, file)
        os.replace(beside, target)
    except OSError as error:
        raise Failed(f"cannot write {target}: {error.strerror}") from None
    finally:
        if os.path.lexists(beside):
            os.unlink(beside)


def _bring(tree: JobTree | DomainTree, source: str, file: BinaryIO) -> None:
    """Behind what is there of it."""
    if isinstance(tree, JobTree):
        for piece in tree.read(source, file.seek(0, os.SEEK_END)):
            file.write(piece)
        return
    shown = TransferBar("downloading")
    try:
        tree.data.bring("/".join(split(source)), file, shown.at)
    finally:
        shown.end()


def _goes_on(target: str, typed: Typed) -> bool:
    from towline.cli.pit.typed.prompting import ask

    if "continue" in typed.options:
        return True
    return ask(f"{target} is there in part. Go on with it (yN)? ").lower() in ("y", "yes")


def push(typed: Typed) -> None:
    tree = _writable(typed)
    with closing(_source(typed.word(2))) as file:
        mode = os.fstat(file.fileno()).st_mode
        path = _target(tree, typed.words[1], typed.word(2))
        if "force" not in typed.options and _is_other(tree, path, file):
            raise Failed(f"{path} is there already, and is something else", "--force replaces it")
        shown = TransferBar("uploading")
        try:
            tree.data.send(path, file, stat.S_IMODE(mode) if typed.word(2) else 0o644, shown.at)
        finally:
            shown.end()


def _target(tree: DomainTree, typed: str, local: str | None) -> str:
    """Where a file goes: into a folder, under the name that it has."""
    path = "/".join(split(typed))
    try:
        into = tree.stat(path)["kind"] == FOLDER
    except NotFound:
        into = typed.endswith("/")
    if not into:
        return path
    if local is None:
        raise Failed("Cannot construct target filename.")
    name = os.path.basename(os.path.abspath(local))
    return f"{path}/{name}" if path else name


def _is_other(tree: DomainTree, path: str, file: BinaryIO) -> bool:
    """Whether something else has this name there; the same content is sent without a word."""
    from towline.client.data import hash_of

    try:
        found = tree.data.stat(path, hashed=True)
    except NotFound:
        return False
    return bool(found["sha256"] != hash_of(file))


def _source(local: str | None) -> BinaryIO:
    """The file, or all of standard input: its hash goes before its content."""
    if local is None:
        import shutil
        from tempfile import TemporaryFile

        whole: BinaryIO = TemporaryFile()
        shutil.copyfileobj(sys.stdin.buffer, whole)
        whole.flush()
        return whole
    if os.path.isdir(local):
        raise Failed(ONLY_FILES)
    try:
        return open(local, "rb")
    except OSError as error:
        raise Failed(f"cannot read {local}: {error.strerror}") from None


def mkdir(typed: Typed) -> None:
    _writable(typed).data.make_folder("/".join(split(typed.words[1])))


def delete(typed: Typed) -> None:
    _writable(typed).data.delete("/".join(split(typed.words[1])))


def _writable(typed: Typed) -> DomainTree:
    tree = tree_of(typed.words[0])
    if isinstance(tree, JobTree):
        raise Failed(_NO_CHANGE, "what a new job is to have lies in the folder that pit run sends")
    return tree


def _with_file(typed: str, path: str) -> JobTree | DomainTree:
    tree = tree_of(typed)
    if tree.stat(path)["kind"] != FILE:
        raise Failed(ONLY_FILES)
    return tree
