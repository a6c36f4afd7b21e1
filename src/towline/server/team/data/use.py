"""How much there is in a domain, and how much there may be."""

import os
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from towline.errors import NoRoom, OverQuota
from towline.model.team.data import DataDomain
from towline.server.team.data.beneath import open_folder
from towline.server.team.data.tree import size_of

#: Jobs write there as well, where nobody counts: so it is counted anew, though not all the time.
_FRESH_S = 30.0
_PATIENCE = 20.0
#: So long is room kept for what has been let in, and of which nothing comes.
KEPT_S = 600.0


class _Counted(NamedTuple):
    size: int
    until: float


class RoomWanted(NamedTuple):
    """So many bytes more, for what is called `key`; a quota of 0 is none."""

    domain: DataDomain
    top: str
    quota: int
    key: str
    more: int


class _Coming(NamedTuple):
    size: int
    until: float


class DataUse:
    """The bytes of every domain, counted when they are asked for and kept up by what is done."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counted: dict[DataDomain, _Counted] = {}
        #: What has been let in, and is not on disk yet.
        self._coming: dict[DataDomain, dict[str, _Coming]] = {}

    def used(self, domain: DataDomain, top: str) -> int:
        """The bytes of all its files."""
        with self._lock:
            known, now = self._counted.get(domain), self._clock()
        if known is None or known.until < now:
            with open_folder(top, []) as folder:
                size = size_of(folder, ".")
            took = self._clock() - now
            known = _Counted(size, self._clock() + max(_FRESH_S, _PATIENCE * took))
            with self._lock:
                self._counted[domain] = known
        return known.size

    def changed(self, domain: DataDomain, by: int) -> None:
        """There are so many bytes more, or less, than before."""
        with self._lock:
            if (known := self._counted.get(domain)) is not None:
                self._counted[domain] = known._replace(size=max(0, known.size + by))

    def let_in(self, wanted: "RoomWanted") -> None:
        """Refuse what there is no room for; what is let in is counted until it is `settled`."""
        domain, top, quota, key, more = wanted
        used = 0
        if quota and more > 0:
            used = self.used(domain, top)
        with self._lock:
            now, known = self._clock(), self._coming.get(domain, {})
            coming = {other: one for other, one in known.items() if one.until > now}
            self._coming[domain] = coming
            waited_for = sum(one.size for other, one in coming.items() if other != key)
            if quota and more > 0 and used + waited_for + more > quota:
                raise OverQuota(
                    f"{domain} may have {_shown(quota)}: it has {_shown(used + waited_for)}, and "
                    f"this would be {_shown(more)} more",
                    "delete something there, or ask an administrator for more",
                )
            coming[key] = _Coming(max(0, more), now + KEPT_S)
        free = _free(top)
        if more > free:
            self.settled(domain, key)
            raise NoRoom(
                f"the server's disk has {_shown(free)} left, and this would be {_shown(more)} more",
                "tell an administrator",
            )

    def written(self, domain: DataDomain, key: str, size: int) -> None:
        """So much of what was let in is on disk now."""
        self.changed(domain, size)
        with self._lock:
            coming = self._coming.get(domain, {})
            if key in coming:
                left = max(0, coming[key].size - size)
                coming[key] = _Coming(left, self._clock() + KEPT_S)

    def settled(self, domain: DataDomain, key: str) -> None:
        """Nothing more of it comes."""
        with self._lock:
            self._coming.get(domain, {}).pop(key, None)


def _free(top: str) -> int:
    facts = os.statvfs(top)
    return facts.f_bavail * facts.f_frsize


def _shown(size: int) -> str:
    """Bytes, for people."""
    number = float(size)
    for unit in ("bytes", "KB", "MB", "GB", "TB"):
        if number < 1000 or unit == "TB":
            break
        number /= 1000
    return f"{number:.3g} {unit}" if unit != "bytes" else f"{size} bytes"
