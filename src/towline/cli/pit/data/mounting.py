"""`pit mount`: the directory of a job, or the data of a team, as a folder here, until Ctrl-C or the
end of a shell."""

from __future__ import annotations

import os

from towline.cli.pit.data.domains import tree_of
from towline.cli.pit.failures import Failed
from towline.cli.pit.typed.names import with_data
from towline.cli.terminal import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from towline.cli.pit.data.domains import DomainTree
    from towline.cli.pit.data.tree import JobTree
    from towline.cli.pit.typed.grammar import Typed


def mount(typed: Typed) -> None:
    from tempfile import mkdtemp

    from towline.cli.commands.mount import check_fuse

    with_data(typed.words[0])
    check_fuse("pit mount")
    tree = tree_of(typed.words[0])
    # Whoever may not look there hears of it before anything is mounted.
    tree.stat("")
    given = typed.word(1)
    folder = os.path.abspath(given) if given else mkdtemp(prefix=f"pit-{tree.name}-")
    if not os.path.isdir(folder) or os.listdir(folder):
        raise Failed(f"{given} is no empty directory", f"make one: mkdir {given}")
    try:
        _show(tree, folder, _shell(folder) if "shell" in typed.options else _until_ctrl_c(folder))
    finally:
        if given is None:
            os.rmdir(folder)


def _show(tree: JobTree | DomainTree, folder: str, stay: Callable[[], None]) -> None:
    """Serve the folder in a child, for as long as somebody stays there."""
    from towline.cli.pit.data.mounted import serve

    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        serve(tree, folder, writing)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read()
    try:
        if said != b"ready":
            raise Failed(f"cannot mount {folder}", said.decode("utf-8", "replace"))
        stay()
    except KeyboardInterrupt:
        pass
    finally:
        if said == b"ready":
            say("unmounting...")
            _unmount(folder)
        os.waitpid(child, 0)


def _until_ctrl_c(folder: str) -> Callable[[], None]:
    import signal

    def stay() -> None:
        say(f"mounted to {folder}")
        say("press Ctrl-C to unmount")
        signal.pause()

    return stay


def _shell(folder: str) -> Callable[[], None]:
    import subprocess

    def stay() -> None:
        say('secondary shell: call "exit" to end and unmount')
        subprocess.run([os.environ.get("SHELL", "/bin/sh"), "-i"], cwd=folder, check=False)

    return stay


def _unmount(folder: str) -> None:
    import subprocess

    for lazily in ([], ["-z"]):
        command = ["fusermount", "-u", *lazily, folder]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return
