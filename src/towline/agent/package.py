"""The agent as one file: a zip of `remote/`, named by its content, and the code that unpacks it.

Whoever waits for the first job of an Engine waits for both sides to load what they begin with: the
zip is made, and what unpacks it is loaded, only where a machine lacks the agent.
"""

import functools
import hashlib
import io
import os
import zlib
from binascii import b2a_base64
from collections.abc import Iterator
from typing import NamedTuple

from towline.agent.frames import encode_json

#: First stage: runs `argv[1]` bytes of code, of what the words behind that hold, and then stdin. It
#: passes through the login shell over there, so it contains no quote, `$`, `!`, backtick, backslash
#: or newline. It must not buffer: what follows on stdin belongs to the agent.
BOOT = (
    "import binascii,os,sys,zlib; "
    "held=[zlib.decompress(binascii.a2b_base64(str().join(sys.argv[2:])))] "
    "if sys.argv[2:] else [bytes()]; "
    "read=lambda n: (lambda c: (c[:n],held.__setitem__(0,c[n:]))[0])(held[0]) if held[0] else "
    "os.read(0,min(n,65536)); "
    "take=lambda n: (lambda c: c+take(n-len(c)) if c and len(c)<n else c)(read(n)); "
    "exec(take(int(sys.argv[1])))"
)
#: A word that every login shell takes, and how much the words may hold together.
_LONGEST_WORD = 900
_MOST_IN_WORDS = 16_000

#: Second stage: unpacks the agent where it is not there yet, then becomes it.
_STAGE_TWO = """
def say(word):
    os.write(1, ("\\nTOWLINE1 " + word + "\\n").encode())
if sys.version_info < (3, 6):
    say("old-python %d.%d" % sys.version_info[:2]); sys.exit(3)
root = os.path.abspath(os.path.expanduser({root!r}))
home = os.path.join(root, "agent", {digest!r})
sizes = {sizes!r}
def place(name): return os.path.join(home, "towline_agent", name)
def is_whole():
    try: return all(os.path.getsize(place(name)) == sizes[name] for name in sizes)
    except OSError: return False
def unpack(data):
    import io, shutil, tempfile, zipfile
    fresh = tempfile.mkdtemp(dir=os.path.dirname(home))
    try:
        zipfile.ZipFile(io.BytesIO(data)).extractall(fresh)
        try: os.rename(fresh, home)
        except OSError:
            # Somebody else was quicker, or files of it were removed: what lacks is put there.
            for name in sizes:
                os.makedirs(os.path.dirname(place(name)), 0o700, exist_ok=True)
                os.replace(os.path.join(fresh, "towline_agent", name), place(name))
    except OSError:
        if not is_whole(): raise
    finally:
        shutil.rmtree(fresh, True)
def frame():
    import struct
    head = take(8)
    sizes = struct.unpack(">II", head) if len(head) == 8 else sys.exit(3)
    body = take(sum(sizes))
    if len(body) < sum(sizes): sys.exit(3)
    return head + body[:sizes[0]], body[sizes[0]:]
early = b""
try:
    if not is_whole():
        for folder in (root, os.path.dirname(home)):
            os.makedirs(folder, 0o700, exist_ok=True)
        say("need")
        # What the agent was asked meanwhile comes before it.
        header, blob = frame()
        while header[8:] != {header!r}:
            early += header + blob
            header, blob = frame()
        unpack(blob)
    say("have")
except OSError as problem:
    say("error " + str(problem)); sys.exit(3)
sys.path.insert(0, home)
try:
    from towline_agent.main import main
except Exception as problem:
    import shutil
    shutil.rmtree(home, True)
    sys.stderr.write("towline: its agent is damaged and is sent again: %s\\n" % problem)
    sys.exit(75)
main(root, {login!r}, early + held[0])
"""

#: The header of the frame that brings the agent.
HEADER = {"op": "agent"}


class Package(NamedTuple):
    #: Of all its files: the same whenever the sources are the same.
    digest: str
    #: Name -> what is in it.
    files: dict[str, bytes]

    def stage_two(self, root: str, login: bool) -> bytes:
        """`login`: jobs there get the environment that logging in gives."""
        sizes = {name: len(content) for name, content in self.files.items()}
        facts = {"root": root, "digest": self.digest, "login": login, "sizes": sizes}
        code = _STAGE_TWO.format(**facts, header=encode_json(HEADER))
        return code.encode()

    def zipped(self) -> bytes:
        """All of it, for a machine that lacks it."""
        import zipfile

        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in self.files.items():
                entry = zipfile.ZipInfo(f"towline_agent/{name}", (2020, 1, 1, 0, 0, 0))
                entry.external_attr = 0o600 << 16
                archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
        return buffer.getvalue()


def boot_words(stage_two: bytes, asked: bytes) -> tuple[list[str], bytes]:
    """The arguments of the first stage, and what of both has to follow on stdin.

    Over ssh, stdin costs a round trip more than the command does: a server lets nobody write to a
    program before it has been started.
    """
    text = b2a_base64(zlib.compress(stage_two + asked), newline=False).decode()
    size = str(len(stage_two))
    if len(text) > _MOST_IN_WORDS:
        return [size], stage_two + asked
    starts = range(0, len(text), _LONGEST_WORD)
    return [size, *(text[at : at + _LONGEST_WORD] for at in starts)], b""


@functools.cache
def agent_package() -> Package:
    """The sources of the agent, as they are now."""
    files = dict(sorted(_files(os.path.join(os.path.dirname(__file__), "remote"), "")))
    whole = hashlib.sha256()
    for name, content in files.items():
        whole.update(b"%s %d\0" % (name.encode(), len(content)))
        whole.update(content)
    return Package(whole.hexdigest()[:20], files)


def _files(folder: str, below: str) -> Iterator[tuple[str, bytes]]:
    """Every source in a folder and those in it, as its path and what it holds."""
    with os.scandir(folder) as found:
        for item in found:
            if item.is_dir():
                yield from _files(item.path, f"{below}{item.name}/")
            elif item.name.endswith(".py"):
                with open(item.path, "rb") as file:
                    yield below + item.name, file.read()
