"""An Engine that looks after attempts in a made-up queue, in pieces between which all can happen.

It does what `backends/queue/` does around the pure machine, without its clock and connections.
"""

from dataclasses import dataclass, field

from backends.queue_world import MEMORY_S, NOBODY, World, verdict
from towline.backends.queue import facts
from towline.backends.queue.attempt import asks_whether_restarted, step
from towline.backends.queue.dialect import ListedEntry
from towline.backends.queue.handover import by_name
from towline.backends.queue.state import Attempt, Place, is_pack, pack_name
from towline.backends.queue.times import Times
from towline.model.events import AttemptWaits, ProcessEnded, ProcessStarted
from towline.model.job import Ending

TIMES = Times()
#: Longer ago a list was asked for only by an Engine that is not there any more.
STALE_S = 60.0


@dataclass(frozen=True)
class Row:
    """A job as the store knows it."""

    started: bool = False
    stop: bool = False
    ending: Ending | None = None


@dataclass
class Command:
    """A submission that is being worked on, whoever waits for its answer."""

    name: str
    tasks: dict[str, int]
    epoch: int


@dataclass
class Engine:
    world: World
    rows: dict[str, Row] = field(default_factory=dict)
    written: dict[str, Row] = field(default_factory=dict)
    attempts: dict[str, Attempt] = field(default_factory=dict)
    is_connected: bool = True
    #: Counts connections: nobody waits for the answers to commands of an earlier one.
    epoch: int = 0
    offered: set[str] = field(default_factory=set)
    commands: list[Command] = field(default_factory=list)
    arrays: int = 0
    #: The queue's last list, and when it was asked for.
    listed: tuple[float, dict[str, list[ListedEntry]]] | None = None
    concluded: dict[str, dict[str, str]] = field(default_factory=dict)

    # --- the store ---------------------------------------------------------------------------

    def want(self, key: str) -> None:
        self.rows[key] = self.written[key] = Row()
        self.attempts[key] = Attempt(key, 1, 1, 1, "the queue", known_at=self.world.now)
        self.offered.add(key)

    def write(self) -> None:
        """What was told is in the store; only then is what is over concluded."""
        self.written = dict(self.rows)
        for key in [key for key in self.attempts if self.rows[key].ending]:
            self.concluded[key] = self.attempts.pop(key).verdicts
        self.go_on()

    def go_on(self) -> None:
        """As the core does: what follows others is let go, or taken out of the queue."""
        for key, ahead in self.world.after.items():
            ending = self.written[ahead].ending
            if ending is None or key not in self.attempts or self.written[key].ending:
                continue
            if not ending.ok and not self.rows[key].stop:
                self.stop_asked(key)
            elif ending.ok and self.is_connected and self.world.folders[key].is_there:
                self.world.folders[key].go = True
            self.take(key, facts.Rechained())

    def is_ready(self, key: str) -> bool:
        """Whether what it follows is in the queue, or over."""
        ahead = self.attempts.get(self.world.after.get(key, ""))
        placed = (Place.IN_QUEUE, Place.CLAIMED, Place.OVER)
        return ahead is None or (ahead.place in placed and not self.attempts[key].early)

    def stop_asked(self, key: str) -> None:
        """A wish to stop is in the store before anything is done about it."""
        for rows in (self.rows, self.written):
            rows[key] = Row(rows[key].started, True, rows[key].ending)
        self.take(key, facts.StopAsked())

    def kill(self) -> None:
        """What was not written is forgotten; the next Engine finds the others again."""
        self.rows = dict(self.written)
        self.listed, self.offered, self.concluded = None, set(), {}
        self.is_connected, self.epoch = False, self.epoch + 1
        self.attempts = {
            key: Attempt(
                key, 1, 1, 1, "the queue",
                Place.CLAIMED if row.started else Place.UNANSWERED,
                started=frozenset({0} if row.started else ()),
                stop=row.stop,
                known_at=self.world.began,
            )
            for key, row in self.rows.items()
            if row.ending is None
        }  # fmt: skip

    def take(self, key: str, fact: facts.Fact) -> tuple[facts.Order, ...]:
        if key not in self.attempts:
            return ()
        before = self.attempts[key]
        self.attempts[key], orders = step(before, fact, self.world.now, TIMES)
        for order in orders:
            match order:
                case facts.Report(told):
                    self._told(key, told)
                case facts.Submit():
                    self.offered.add(key)
        return orders

    def _told(self, key: str, told: object) -> None:
        row = self.rows[key]
        match told:
            case ProcessStarted():
                self.rows[key] = Row(True, row.stop, row.ending)
            case AttemptWaits(again=True):
                self.rows[key] = Row(False, row.stop, row.ending)
            case ProcessEnded(ending=ending):
                assert row.ending is None, f"{key} ended twice: {row.ending}, then {ending}"
                self.rows[key] = Row(row.started, row.stop, ending)

    # --- the connection ----------------------------------------------------------------------

    def disconnect(self) -> None:
        self.is_connected, self.epoch, self.listed = False, self.epoch + 1, None
        for key, attempt in list(self.attempts.items()):
            if attempt.place is Place.ASKING:
                self.take(key, facts.NoAnswer(TIMES.settling_s))

    def connect(self) -> None:
        self.is_connected = True
        self.look(key for key, one in self.attempts.items() if one.place is not Place.NOT_SENT)
        self.offered |= {k for k, one in self.attempts.items() if one.place is Place.NOT_SENT}

    def look(self, keys: object) -> None:
        for key in list(keys):  # type: ignore[call-overload]
            folder = self.world.folders[key]
            ticket = self.world.tickets.get(folder.array[0] if folder.array else key, "")
            returned = frozenset(folder.returned)
            claim = () if folder.claim == NOBODY else folder.claim
            self.take(key, facts.Recorded(ticket, folder.array, claim, returned))
            self.take(key, self._seen(key))

    def hear(self, key: str) -> None:
        """News of a runner."""
        if self.world.folders[key].run is not None:
            self.take(key, self._seen(key, is_news=True))

    def _seen(self, key: str, is_news: bool = False) -> facts.RankSeen:
        folder, now = self.world.folders[key], self.world.now
        ending = folder.exit if now >= folder.seen_from else None
        state = "waiting" if folder.where == "waiting" else "running"
        started = 0.0 if state == "waiting" else 1.0
        return facts.RankSeen(
            0, "ended" if ending else state, folder.run, started, "n1", "", ending, is_news
        )

    # --- submitting --------------------------------------------------------------------------

    def may_go(self) -> list[str]:
        busy = {
            k for command in self.commands if command.epoch == self.epoch for k in command.tasks
        }
        waits = (Place.NOT_SENT, Place.UNANSWERED)
        return sorted(
            key
            for key in self.offered - busy
            if key in self.attempts
            and self.attempts[key].place in waits
            and not self.attempts[key].stop
            and self.is_ready(key)
        )

    def submit(self, how: str = "") -> None:
        """Hand over what is offered: each alone, or all as one array or pack; the answers come
        later."""
        groups: dict[str, list[str]] = {}
        for key in self.may_go():
            groups.setdefault(self.attempts[key].array, []).append(key)
        self.offered = {
            key for key in self.offered if key in self.attempts and not self.is_ready(key)
        }
        for array, keys in groups.items():
            if array:
                self._hand_over(array, {key: self.attempts[key].index for key in keys})
            elif how:
                self.arrays += 1
                name = f"a{self.arrays}" if how == "as array" else pack_name("e", str(self.arrays))
                self._hand_over(name, {key: i for i, key in enumerate(keys)})
            else:
                for key in keys:
                    self._hand_over(key, {key: 0})

    def _hand_over(self, name: str, tasks: dict[str, int]) -> None:
        for key, index in tasks.items():
            is_task = name != key
            if not is_task and self.attempts[key].vanished:
                self.world.tickets.pop(key, None)
            self.world.folders[key].array = (name, index) if is_task else None
            self.world.folders[key].is_there = True
            self.take(key, facts.Submitted(name if is_task else "", index))
        if ticket := self.world.tickets.get(name):
            for key in tasks:
                self.take(key, facts.Accepted(ticket))
        else:
            self.commands.append(Command(name, tasks, self.epoch))

    def answer(self, command: Command, outcome: str) -> None:
        """A command ends: it did its work or not, was killed or not, and somebody waits or not."""
        self.commands.remove(command)
        fact: facts.Fact = facts.PutOff(outcome, TIMES.backoff_s(1, 0.5))
        is_array = command.name not in command.tasks and not is_pack(command.name)
        if outcome == "full" and is_array:
            fact = facts.NotAsArray(outcome)
        elif outcome in ("works", "works and is killed") and self.world.is_up:
            number = self.world.submit(command.name, command.tasks)
            if outcome == "works":
                self.world.tickets[command.name] = number
                fact = facts.Accepted(number)
        if command.epoch == self.epoch:
            for key in command.tasks:
                self.take(key, fact)

    # --- watching ----------------------------------------------------------------------------

    def ask(self) -> None:
        """Ask for the list; what it means is worked out later, perhaps."""
        for key, verdicts in self.concluded.items():
            folder = self.world.folders[key]
            if verdicts and folder.exit is None and folder.is_there:
                folder.exit, folder.is_ours = Ending(cause="lost"), True
        self.concluded.clear()
        if not self.world.is_up:
            for key in list(self.attempts):
                self.take(key, facts.Silent("no answer"))
            return
        entries = by_name(entry.listed() for entry in self.world.entries.values())
        self.listed = self.world.now, entries

    def judge(self) -> None:
        """Work out what the list means."""
        asked_at, listed = self.listed or (0.0, {})
        self.listed = None
        if self.world.now - asked_at > STALE_S:
            return
        asked = [key for key, one in self.attempts.items() if one.place is not Place.NOT_SENT]
        for key in asked:
            for order in self.take(
                key, facts.Found(tuple(listed.get(self.attempts[key].name, ())))
            ):
                if isinstance(order, facts.EndDoubles):
                    self.look([key])
                    for id in set(order.ids) - {self.attempts[key].id}:
                        self.world.cancel(id)
        for key in asked:
            self._judge_one(key, asked_at, listed)
        self.stop(key for key in asked if self.attempts[key].stop)

    def _judge_one(self, key: str, asked_at: float, listed: dict[str, list[ListedEntry]]) -> None:
        attempt = self.attempts[key]
        entries = [one for one in listed.get(attempt.name, ()) if one.id == attempt.id]
        known = entries[0] if entries else self.world.recall(attempt.id)
        if known is not None and known.name != attempt.name:
            known = None
        if facts.Settle() not in self.take(key, facts.Judged(known, asked_at)):
            return
        self.look([key])
        attempt, word = self.attempts[key], None
        if known is not None:
            word = verdict(known, attempt.claimed, self.world.now)
        asks = asks_whether_restarted(attempt, word)
        restarted = asks and self.world.has_restarted()
        up_since = self.world.restarted_at if asks else 0.0
        self.take(key, facts.Settled(word, restarted, up_since, MEMORY_S, 0.5))

    def stop(self, keys: object) -> None:
        """Tell their runs, and the queue."""
        some = [key for key in keys if not self.attempts[key].is_over]  # type: ignore[attr-defined]
        doomed = [key for key in some if facts.CancelEntry() in self.take(key, facts.StopDue())]
        if doomed and not self.world.is_up:
            return
        lines = (one for one in self.attempts.values() if one.is_packed)
        going_on = {one.array for one in lines if not (one.stop or one.is_over)}
        names = {self.attempts[key].name for key in doomed} - going_on
        for key in some:
            folder = self.world.folders[key]
            folder.stop |= folder.is_there
            if folder.is_there and folder.array and is_pack(folder.array[0]):
                self.world.take_out(key)
        for entry in list(self.world.entries.values()):
            if entry.name in names:
                self.world.cancel(entry.id)
        self.look(key for key in some if not self.attempts[key].id)
        for key in some:
            self.take(key, facts.StopTold())
