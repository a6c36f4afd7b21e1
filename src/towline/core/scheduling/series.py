"""Series: jobs alike that follow one another on a machine that is far away.

Jobs with the same needs and the same snapshot on one machine are a series. Some of them have a
place there; the next ones are sent ahead, and over there one begins as soon as another of its
series has ended. When that end is heard of here, its place belongs to the first that was sent
ahead: so a place goes from one to the next, and nobody else is given it in between.
"""

from collections import deque
from collections.abc import Iterator
from math import ceil

from towline.core.machines.demand import Demand

#: Nearer than this a machine needs nothing sent ahead.
NEAR_S = 0.01
#: Jobs that last for more than so many round trips do not notice one.
MANY_TRIPS = 10
#: So long it takes to write down an end and a start, besides the round trip.
WRITING_S = 0.02
#: What begins in so many round trips is sent ahead: while word of one end travels, others end.
TRIPS = 2
#: No job is shorter than this; and no more than so many for each place are sent ahead.
LEAST_S = 0.003
MOST_PER_PLACE = 100
#: The length of a series' jobs is that of the last so many.
LATELY = 32
#: So many without a job are remembered, for how long their jobs last.
MOST_IDLE = 1000


class Sent:
    """A job that was sent ahead."""

    __slots__ = ("at", "cluster", "limit_s", "owner", "priority", "recalled")

    def __init__(self, at: float, cluster: str, owner: str, priority: int, limit_s: float) -> None:
        self.at = at
        self.cluster = cluster
        self.owner = owner
        self.priority = priority
        self.limit_s = limit_s
        #: It was asked back.
        self.recalled = False


class Series:
    """Jobs alike on one machine: those that have a place there, and those sent ahead."""

    __slots__ = ("ahead", "batch", "demand", "machine", "name", "places", "recent", "told")

    def __init__(self, machine: str, name: str, demand: Demand, batch: str = "") -> None:
        self.machine = machine
        self.name = name
        self.demand = demand
        #: All of it are of a batch of which only so many run at a time; empty: of any.
        self.batch = batch
        #: job -> since when it has its place, as long as that is known.
        self.places: dict[int, float | None] = {}
        #: Those of them that began when they were told to, not when another ended.
        self.told: set[int] = set()
        #: The first of them is the next to begin.
        self.ahead: dict[int, Sent] = {}
        #: How long each of the last ones had its place.
        self.recent: deque[float] = deque(maxlen=LATELY)

    def most_ahead(self, away_s: float) -> int:
        """How many of its jobs may be sent ahead at a time."""
        if not self.recent or away_s < NEAR_S:
            return 0
        length_s = max(LEAST_S, sum(self.recent) / len(self.recent))
        if length_s > MANY_TRIPS * away_s:
            return 0
        each = min(MOST_PER_PLACE, TRIPS * (away_s + WRITING_S) / length_s)
        return ceil(len(self.places) * each)

    def succeed(self, job_id: int, now: float, away_s: float) -> int | None:
        """A job with a place has ended; who has its place now."""
        since = self.places.pop(job_id)
        travelled_s = away_s if job_id in self.told else 0.0
        self.told.discard(job_id)
        if since is not None:
            self.recent.append(max(0.0, now - since - travelled_s))
        heir = next(iter(self.ahead), None)
        if heir is not None:
            del self.ahead[heir]
            self.places[heir] = now
        return heir


def name_of(demand: Demand, tree: str, batch: str = "") -> str:
    """What jobs of one series have in common; empty for those that are never sent ahead.

    A batch of which only so many run at a time has its own: its places are for nobody else.
    """
    if demand.gpus or demand.exclusive:
        return ""
    name = "-".join([f"{demand.cpu}-{demand.mem}-{tree[:16]}", *sorted(demand.rights)])
    return f"{name}-{batch}" if batch else name


class AllSeries:
    """The series of all machines."""

    def __init__(self) -> None:
        #: machine -> how long word to it and back takes.
        self.away_s: dict[str, float] = {}
        self.remembered: dict[tuple[str, str], Series] = {}
        #: Those with a job, and without; of which more may be sent ahead; and of which some are.
        self._alive: dict[Series, None] = {}
        self._idle: dict[Series, None] = {}
        self.short: dict[Series, None] = {}
        self.with_ahead: dict[Series, None] = {}
        self._of: dict[int, Series] = {}

    def __iter__(self) -> Iterator[Series]:
        return iter(self._alive)

    def reached(self, machine: str, away_s: float) -> None:
        self.away_s[machine] = away_s
        for series in [one for one in self._alive if one.machine == machine]:
            self._sort(series)

    def _sort(self, series: Series) -> None:
        """After a change of it: decisions look only at those that concern them."""
        away_s = self.away_s.get(series.machine, 0.0)
        for those, is_one in (
            (self._alive, bool(series.places or series.ahead)),
            (self._idle, not (series.places or series.ahead)),
            (self.short, away_s >= NEAR_S and series.most_ahead(away_s) > len(series.ahead)),
            (self.with_ahead, bool(series.ahead)),
        ):
            if is_one:
                those[series] = None
            else:
                those.pop(series, None)
        if len(self._idle) > MOST_IDLE:
            oldest = next(iter(self._idle))
            del self._idle[oldest], self.remembered[oldest.machine, oldest.name]

    def is_ahead(self, job_id: int) -> bool:
        series = self._of.get(job_id)
        return series is not None and job_id in series.ahead

    def named(self, job_id: int) -> str:
        """The series of a job; empty if it has none."""
        series = self._of.get(job_id)
        return series.name if series is not None else ""

    def demand_of(self, job_id: int) -> Demand:
        return self._of[job_id].demand

    def behind(self, job_id: int) -> list[int]:
        """The jobs that have the places for which a job that was sent ahead waits."""
        return list(self._of[job_id].places) if self.is_ahead(job_id) else []

    def join(
        self,
        machine: str,
        name: str,
        demand: Demand,
        job_id: int,
        now: float | None,
        batch: str = "",
    ) -> None:
        """A job has a place of its own on a machine; without a time it had it before."""
        # How far it is may turn out later.
        if not name or (now is not None and self.away_s.get(machine, NEAR_S) < NEAR_S):
            return
        series = self.remembered.get((machine, name))
        if series is None:
            series = self.remembered[machine, name] = Series(machine, name, demand, batch)
        series.places[job_id] = now
        series.told.add(job_id)
        self._of[job_id] = series
        self._sort(series)

    def send(self, series: Series, job_id: int, sent: Sent) -> None:
        series.ahead[job_id] = sent
        self._of[job_id] = series
        self._sort(series)

    def leave(self, job_id: int, now: float) -> int | None:
        """A job has ended, or came back; who has its place now, if somebody has."""
        series = self._of.pop(job_id, None)
        if series is None:
            return None
        # One that is only ahead never began; or it did in the place of another that we took to be
        # before it, and that one has the place now.
        heir = None if series.ahead.pop(job_id, None) else self._succeed(series, job_id, now)
        self._sort(series)
        return heir

    def _succeed(self, series: Series, job_id: int, now: float) -> int | None:
        return series.succeed(job_id, now, self.away_s.get(series.machine, 0.0))
