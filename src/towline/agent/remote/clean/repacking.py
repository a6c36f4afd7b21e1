"""Removing packs of which little or nothing is needed any more; in steps."""

import os

from ..content import packs
from .trash import thrown_away

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..home import Home
    from ..typed import Steps

#: As much is copied at a time when what is needed moves to another pack.
PIECE = 1 << 20
BLOCK = 512


def swept(home: "Home", needed: "set[str]", before: float, dry: bool) -> "Steps[tuple[int, int]]":
    """(number, bytes) of the contents that went, or would go."""
    count = freed = 0
    for index in packs.indexes(home):
        yield
        gone = yield from swept_pack(home, index, needed, before, dry)
        count += gone[0]
        freed += gone[1]
    return count, freed


def swept_pack(
    home: "Home", index: str, needed: "set[str]", before: float, dry: bool
) -> "Steps[tuple[int, int]]":
    """A pack goes when most of it is not needed; what is needed of it goes into a new one."""
    live: "list[tuple[str, int, int]]" = []
    dead: "list[tuple[str, int, int]]" = []
    for content in packs.contents(index):
        (live if content[0] in needed else dead).append(content)
    kept = sum(size for _, _, size in live)
    pack = packs.pack_of(index)
    try:
        facts = os.stat(pack)
        if os.stat(index).st_mtime >= before or not dead or kept > facts.st_size / 2:
            return 0, 0
    except FileNotFoundError:
        return 0, 0
    if not dry:
        yield from copy(home, pack, live)
        if not removed(home, index, before):
            return 0, 0
    return len(dead), max(0, facts.st_blocks * BLOCK - kept)


def copy(home: "Home", pack: str, live: "Any") -> "Any":
    writer = packs.BlobPackWriter(home)
    try:
        with open(pack, "rb") as file:
            group, data = [], []
            for digest, offset, size in live:
                file.seek(offset)
                group.append((digest, size))
                data.append(file.read(size))
                if sum(map(len, data)) >= PIECE:
                    writer.add(group, b"".join(data))
                    group, data = [], []
                    yield
            if group:
                writer.add(group, b"".join(data))
    finally:
        writer.close()


def removed(home: "Home", index: str, before: float) -> int:
    """False if somebody used it at this very moment: then it stays."""
    try:
        if not thrown_away(home, index, before):
            return False
        os.unlink(packs.pack_of(index))
    except FileNotFoundError:
        return False
    return True
