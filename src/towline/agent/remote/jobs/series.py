"""Jobs alike that follow one another on the same places, without anybody being asked in between.

Whoever started them has some places for them on this machine, and sends some more ahead of time.
One of those begins as soon as fewer of its series run than there are places. Until then it is only
remembered: whoever is killed with us never began, and is sent anew or elsewhere.
"""

import collections

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable


class RunningSeries:
    """One series: how many run at a time, which have begun, and which wait for that."""

    def __init__(self) -> None:
        self.places = 0
        self.begun: "set[str]" = set()
        self.waiting: "collections.deque[Any]" = collections.deque()


class SeriesTable:
    """`is_wanted(job)` tells whether a job that waits is still to begin."""

    def __init__(self, is_wanted: "Callable[[Any], bool]") -> None:
        self.is_wanted = is_wanted
        self.series: "dict[str, RunningSeries]" = {}

    def join(self, job: "Any") -> None:
        """It begins now, or has begun."""
        if job.series:
            series = self.series.setdefault(job.series, RunningSeries())
            series.begun.add(job.key)
            # A place of its own came with it.
            series.places = max(series.places, len(series.begun))

    def wait(self, job: "Any", places: int) -> "list[Any]":
        """Those that may begin now that this one was sent ahead."""
        series = self.series.setdefault(job.series, RunningSeries())
        series.places = places
        series.waiting.append(job)
        return self.ready(series)

    def leave(self, job: "Any") -> "list[Any]":
        """Those that may begin now that this one has ended, or never will begin."""
        series = self.series.get(job.series)
        if series is None:
            return []
        if job.key in series.begun:
            series.begun.discard(job.key)
        elif job in series.waiting:
            series.waiting.remove(job)
        ready = self.ready(series)
        if not series.begun and not series.waiting:
            del self.series[job.series]
        return ready

    def ready(self, series: "RunningSeries") -> "list[Any]":
        ready = []
        while series.waiting and len(series.begun) < series.places:
            job = series.waiting.popleft()
            if self.is_wanted(job):
                series.begun.add(job.key)
                ready.append(job)
        return ready
