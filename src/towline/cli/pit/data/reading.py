"""`pit ls`, `cp`, `download`: what is in the directory of a job, or in the data of a team."""

from __future__ import annotations

import os

from towline.cli.pit.data.domains import tree_of
from towline.cli.pit.data.tree import FILE, FOLDER, JobTree, split
from towline.cli.pit.failures import Failed, PitUsage
from towline.cli.pit.session import PitSession
from towline.cli.pit.typed.names import job_number, with_data
from towline.cli.terminal import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from tarfile import TarFile

    from towline.cli.pit.typed.grammar import Typed

ONLY_FILES = "At the moment only file copying is supported."


def ls(typed: Typed) -> None:
    from towline.cli.pit.shapes import listing

    tree = tree_of(typed.words[0])
    path = typed.word(1) or ""
    found = tree.stat(path)
    entries = tree.entries(path) if found["kind"] == FOLDER else []
    lines = listing(path, {**found, "entries": entries})
    if lines:
        say("\n".join(lines))


def cp(typed: Typed) -> None:
    from towline.cli.pit.data.copying import bring_whole

    which, source, target = typed.words
    with_data(which)
    target = target_file(source, target)
    tree = tree_of(which)
    if tree.stat(source)["kind"] != FILE:
        raise Failed(ONLY_FILES)
    bring_whole(tree, source, target)


def target_file(source: str, target: str) -> str:
    """Where a copy goes: into a folder, under the name that it has."""
    if os.path.isdir(target):
        names = split(source)
        if not names:
            raise Failed("Cannot construct target filename.")
        return os.path.join(target, names[-1])
    above = os.path.dirname(target) or "."
    if not os.path.exists(above):
        raise Failed("Target directory not existing.")
    if not os.path.isdir(above):
        raise Failed("Target directory not a directory.")
    return target


def write_whole(target: str, pieces: Iterable[bytes]) -> None:
    """A file that has its name only once all of it is there."""
    beside = f"{target}.{os.getpid()}.part"
    try:
        with open(beside, "xb") as file:
            for piece in pieces:
                file.write(piece)
        os.replace(beside, target)
    except OSError as error:
        raise Failed(f"cannot write {target}: {error.strerror}") from None
    finally:
        if os.path.lexists(beside):
            os.unlink(beside)


def download(typed: Typed) -> None:
    import tarfile

    number = job_number(typed.words[0])
    name = f"job{number}.tar.gz"
    if os.path.lexists(name):
        raise PitUsage(f'Unable to download: File "{name}" already exists')
    tree = JobTree(PitSession(), number)
    beside = f".{name}.{os.getpid()}.part"
    try:
        with tarfile.open(beside, "x:gz", compresslevel=6) as archive:
            for path, _ in tree.walk():
                _add(archive, tree, path)
        os.replace(beside, name)
    finally:
        if os.path.lexists(beside):
            os.unlink(beside)


def _add(archive: TarFile, tree: JobTree, path: str) -> None:
    import tarfile
    from tempfile import TemporaryFile

    about = tree.stat(path)
    member = tarfile.TarInfo(path)
    member.mtime, member.mode = int(about["mtime"]), about["mode"] & 0o777
    if about["kind"] == FOLDER:
        member.type, member.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(member)
        return
    # Of a file that still grows, what is there now.
    with TemporaryFile() as whole:
        for piece in tree.read(path):
            whole.write(piece)
        member.size = whole.tell()
        whole.seek(0)
        archive.addfile(member, whole)
