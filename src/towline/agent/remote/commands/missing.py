"""Where a command is that was not found, so that people need not look for it themselves."""

import os
import signal
import time

from . import process

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess

    from ..typed import Environ

MOST_S = 4.0
#: What is asked to end has so long to put things in order.
GRACE_S, LOOK_S = 1.0, 0.02
#: What profiles print comes before the mark.
LOOK = 'place=$(type -P -- "$0") && printf "\\nTOWLINE-FOUND %s\\n" "$place"'
SIGN = b"TOWLINE-FOUND "


def hint(argv: "list[str]", environ: "Environ", logged_in: bool) -> str:
    """A further line for people; often nothing. `logged_in`: nobody's terminal gave `environ`."""
    word = argv[0].encode("utf-8", "surrogateescape")
    if not word or b"/" in word or b" " in word:
        return ""
    place = by_interactive_shell(word, environ) if logged_in else b""
    if place:
        name, folder = (os.fsdecode(path) for path in (place, os.path.dirname(place)))
        text = "\nonly an interactive shell there finds it, as %s: --setup 'export PATH=%s:$PATH'"
        return text % (name, folder)
    try:
        process.find_command(word + b"3", environ)
    except process.CannotStart:
        return ""
    return "\n%s3 is there" % os.fsdecode(word)


def by_interactive_shell(word: bytes, environ: "Environ") -> bytes:
    """As ~/.bashrc sets it up; many stop early where nobody sits at a terminal."""
    import subprocess  # seldom needed, and not quick to load

    try:
        shell = subprocess.Popen(
            ["/bin/bash", "-i", "-c", LOOK, word],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return b""
    try:
        out = shell.communicate(timeout=MOST_S)[0]
    except subprocess.TimeoutExpired:
        out = b""
    finally:
        end(shell)
    found = [line[len(SIGN) :] for line in out.splitlines() if line.startswith(SIGN)]
    return found[-1] if found and found[-1].startswith(b"/") else b""


def end(shell: "subprocess.Popen[bytes]") -> None:
    """Whatever it started goes with it, and holds nothing of ours open; it is asked first, since it
    may have locks to give back."""
    until = time.monotonic() + GRACE_S
    try:
        os.killpg(shell.pid, signal.SIGTERM)
        while time.monotonic() < until:
            time.sleep(LOOK_S)
            shell.poll()
            os.killpg(shell.pid, 0)
        os.killpg(shell.pid, signal.SIGKILL)
    except OSError:
        pass  # none of them is left
    if shell.stdout is not None:
        shell.stdout.close()
    shell.wait()
