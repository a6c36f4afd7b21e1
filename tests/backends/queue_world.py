"""A queue, its nodes and their shared files, made up: whatever can be killed here, can be killed.

The controller forgets what it accepted since it last wrote that down, and gives numbers out again.
Runners do as those in `agent/remote/node/` do: the first claim counts, and a wish to stop is
heeded.
"""

from dataclasses import dataclass, field
from enum import Enum

from towline.backends.queue.dialect import ListedEntry, Phase, Verdict
from towline.backends.queue.state import is_pack
from towline.model.job import Ending

#: A record may be seen from the access node so much later: less than what is waited for.
LAG_S = 15.0
#: The queue remembers entries that ended for so long.
MEMORY_S = 300.0
#: In the claim of a line that was taken out of its pack.
NOBODY = ("nobody", "0")


class End(Enum):
    """How an entry ends: the queue's word, and what that means where no file tells."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    NODE_FAIL = "its node failed"
    TIMEOUT = "timeout"


@dataclass
class InList:
    """An entry as the controller has it."""

    id: str
    name: str
    key: str
    run: int = 0
    is_running: bool = False
    end: End | None = None
    ended_at: float = 0.0
    #: All of a pack; of anything else, its one key.
    lines: tuple[str, ...] = ()

    def listed(self) -> ListedEntry:
        phase = Phase.RUNNING if self.is_running else Phase.WAITING
        return ListedEntry(
            self.id, Phase.ENDED if self.end else phase, self.name, word="Priority", own=self.end
        )


@dataclass
class Folder:
    """What lies in the folders of one attempt."""

    array: tuple[str, int] | None = None
    claim: tuple[str, ...] = ()
    stop: bool = False
    where: str = "waiting"
    run: int | None = None
    #: How it ended, and when that can be seen from the access node.
    exit: Ending | None = None
    seen_from: float = 0.0
    #: Something was handed over, so that there are folders; and who wrote how it ended.
    is_there: bool = False
    is_ours: bool = False
    #: Entries that could not see how what it follows had ended; and our word that it may begin.
    returned: set[str] = field(default_factory=set)
    go: bool = False


@dataclass
class Run:
    """A script of an entry on a node; `began` once it has the claim and runs the command."""

    entry: InList
    began: bool = False
    #: Of a pack: the line that runs, and those that had no turn; None: it has no claim yet.
    line: str = ""
    left: list[str] | None = None


@dataclass
class World:
    keys: tuple[str, ...]
    #: Attempts whose command may be killed without a record.
    fragile: frozenset[str] = frozenset()
    #: Who runs only after another, if that ended well. The queue itself sees to nothing here.
    after: dict[str, str] = field(default_factory=dict)
    now: float = 1_000_000.0
    #: When all of it was submitted.
    began: float = 1_000_000.0
    is_up: bool = True
    has_accounts: bool = False
    restarted_at: float = 0.0
    entries: dict[str, InList] = field(default_factory=dict)
    history: list[InList] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    #: Name of what was handed over -> the number that the command printed for it.
    tickets: dict[str, str] = field(default_factory=dict)
    folders: dict[str, Folder] = field(default_factory=dict)
    next_number: int = 1
    #: What the controller would know after a kill.
    saved: tuple[frozenset[str], int] = (frozenset(), 1)
    #: Which entries ran the command of an attempt.
    ran: dict[str, set[str]] = field(default_factory=dict)
    #: Attempts whose command was killed without a record, and that somebody else cancelled.
    killed: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    #: Pack -> its lines as they were handed over, and the entry that has its claim.
    packs: dict[str, dict[str, int]] = field(default_factory=dict)
    pack_claims: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folders = {key: Folder() for key in self.keys}
        self.ran = {key: set() for key in self.keys}

    # --- the controller ----------------------------------------------------------------------

    def submit(self, name: str, tasks: dict[str, int]) -> str:
        """What the command does there: one entry, or the tasks of an array."""
        number, self.next_number = str(self.next_number), self.next_number + 1
        if is_pack(name):
            lines = self.packs.setdefault(name, {})
            lines.update(tasks)
            self.entries[number] = InList(number, name, "", lines=tuple(lines))
            return number
        for key, index in tasks.items():
            is_task = name != key
            id, called = (f"{number}_{index}", f"{name}_{index}") if is_task else (number, key)
            self.entries[id] = InList(id, called, key, lines=(key,))
        return number

    def save(self) -> None:
        self.saved = frozenset(self.entries), self.next_number

    def kill_controller(self) -> None:
        """What it has not written down is forgotten; nodes end what it does not know of."""
        kept, number = self.saved
        # Of some jobs it writes down that they began, so that nothing excuses their loss.
        kept |= {
            entry.id
            for entry in self.entries.values()
            if any(self.has_claimed(entry, key) for key in entry.lines if key not in self.fragile)
        }
        number = max([number, *(int(id.partition("_")[0]) + 1 for id in kept)])
        for id in set(self.entries) - kept:
            entry = self.entries.pop(id)
            self.history.append(entry)
            self.note_kill(entry)
            for run in [run for run in self.runs if run.entry is entry]:
                self.kill_run(run)
        self.next_number, self.is_up = number, False

    def has_claimed(self, entry: InList, key: str) -> bool:
        return self.folders[key].claim[:1] == (entry.id,)

    def restart_controller(self) -> None:
        self.is_up, self.restarted_at = True, self.now

    def has_restarted(self) -> bool:
        return bool(self.restarted_at) and self.now - self.restarted_at < 600.0

    def forget(self) -> None:
        """Entries that ended are forgotten after a while; the accounts still know them."""
        for entry in list(self.entries.values()):
            if entry.end and self.now - entry.ended_at > MEMORY_S:
                self.history.append(self.entries.pop(entry.id))

    def end(self, entry: InList, end: End) -> None:
        entry.end, entry.ended_at = end, self.now

    def cancel(self, id: str) -> None:
        entry = self.entries.get(id)
        if entry is None or entry.end:
            return
        for run in [run for run in self.runs if run.entry is entry]:
            self.stop_run(run)
        if not entry.end:
            self.end(entry, End.CANCELLED)

    def recall(self, id: str) -> ListedEntry | None:
        """The accounts' word; numbers are given out again, so the last that had it counts."""
        told = [entry for entry in self.history if entry.id == id and entry.end]
        return told[-1].listed() if told and self.has_accounts else None

    # --- the nodes ---------------------------------------------------------------------------

    def start(self, entry: InList) -> None:
        entry.is_running = True
        self.runs.append(Run(entry))

    def go_on(self, run: Run, lag_s: float = 0.0) -> None:
        """Claim the attempt and begin, or end the command that began."""
        if not run.entry.key:
            self.go_on_with_pack(run, lag_s)
            return
        if run.began:
            self.finish(run, Ending(code=0, started=self.now, ended=self.now), lag_s=lag_s)
            return
        entry, folder = run.entry, self.folders[run.entry.key]
        array = entry.name.rpartition("_")[0] if "_" in entry.id else ""
        claim = (entry.id, str(entry.run), *filter(None, [array]))
        again = folder.claim[:1] == claim[:1] and int(folder.claim[1]) < entry.run
        if folder.stop or folder.exit or (folder.claim and not again):
            self.runs.remove(run)
            self.end(entry, End.COMPLETED)
            return
        if not folder.claim and entry.key in self.after and not folder.go:
            ahead = self.folders[self.after[entry.key]]
            if ahead.exit is None or self.now < ahead.seen_from:
                self.runs.remove(run)
                folder.returned.add(entry.id)
                self.end(entry, End.COMPLETED)
                return
            if not ahead.exit.ok:
                folder.claim, folder.run = claim, entry.run
                self.finish(run, Ending(cause="skipped", ended=self.now))
                return
        folder.claim, folder.where, folder.run = claim, "running", entry.run
        run.began = True
        self.ran[entry.key].add(entry.id)

    def go_on_with_pack(self, run: Run, lag_s: float) -> None:
        """As a packer with one place does: claim the pack, then each line when its turn comes."""
        entry = run.entry
        if self.pack_claims.setdefault(entry.name, entry.id) != entry.id:
            self.runs.remove(run)
            self.end(entry, End.COMPLETED)
            return
        if run.left is None:
            run.left = list(entry.lines)
        if run.line:
            self.end_line(run, Ending(code=0, started=self.now, ended=self.now), lag_s)
            return
        while run.left:
            key = run.left.pop(0)
            folder, claim = self.folders[key], (entry.id, str(entry.run), entry.name)
            again = folder.claim[:1] == claim[:1] and int(folder.claim[1]) < entry.run
            if folder.stop or folder.exit or (folder.claim and not again):
                continue
            if not folder.claim and key in self.after and not folder.go:
                ahead = self.folders[self.after[key]]
                if ahead.exit is None or self.now < ahead.seen_from:
                    folder.returned.add(entry.id)
                    continue
                if not ahead.exit.ok:
                    folder.claim, folder.run, run.line = claim, entry.run, key
                    self.end_line(run, Ending(cause="skipped", ended=self.now))
                    continue
            folder.claim, folder.where, folder.run = claim, "running", entry.run
            run.line = key
            self.ran[key].add(entry.id)
            return
        self.runs.remove(run)
        self.end(entry, End.COMPLETED)

    def end_line(self, run: Run, ending: Ending, lag_s: float = 0.0) -> None:
        folder, run.line = self.folders[run.line], ""
        if folder.exit is None:
            folder.exit, folder.seen_from, folder.where = ending, self.now + lag_s, "ended"

    def take_out(self, key: str) -> None:
        """A line of a pack that has not begun never will."""
        folder = self.folders[key]
        folder.claim = folder.claim or NOBODY
        if folder.claim == NOBODY and folder.exit is None:
            folder.exit, folder.run, folder.where = Ending(cause="stopped"), 0, "ended"

    def finish(self, run: Run, ending: Ending, end: End = End.COMPLETED, lag_s: float = 0) -> None:
        folder = self.folders[run.entry.key]
        self.runs.remove(run)
        if folder.exit is None:
            folder.exit, folder.seen_from, folder.where = ending, self.now + lag_s, "ended"
        self.end(run.entry, end)

    def stop_run(self, run: Run) -> None:
        """It hears TERM, and says so; one that has not begun just ends."""
        if run.line:
            cause = "stopped" if self.folders[run.line].stop else "evicted"
            self.end_line(run, Ending(signal=15, cause=cause, started=self.now, ended=self.now))
        if run.began:
            ours = self.folders[run.entry.key].stop
            cause = "stopped" if ours else "evicted"
            ending = Ending(signal=15, cause=cause, started=self.now, ended=self.now)
            self.finish(run, ending, End.CANCELLED)
        else:
            self.runs.remove(run)
            self.end(run.entry, End.CANCELLED)

    def kill_run(self, run: Run, end: End = End.NODE_FAIL) -> None:
        """Its node fails: nothing of it is told."""
        self.runs.remove(run)
        self.note_kill(run.entry)
        self.end(run.entry, end)

    def note_kill(self, entry: InList) -> None:
        """What began and does not go on left no record of its end."""
        for key in entry.lines:
            if self.has_claimed(entry, key) and self.folders[key].exit is None:
                self.killed.add(key)

    def requeue(self, run: Run) -> None:
        """Its node fails, and the queue starts the entry again by itself."""
        self.runs.remove(run)
        run.entry.is_running, run.entry.run = False, run.entry.run + 1


def verdict(listed: ListedEntry, claimed: bool, now: float) -> Verdict:
    """As a dialect judges."""
    end: End = listed.own
    unexplained = end is End.COMPLETED
    cause = {End.CANCELLED: "cancelled", End.TIMEOUT: "timeout"}.get(end, "lost")
    cause = "lost" if unexplained or (claimed and cause == "lost") else cause
    return Verdict(
        Ending(cause=cause, text=end.value, ended=now),
        certain=not unexplained,
        not_begun=end.value if end is End.NODE_FAIL else "",
        cancelled=end is End.CANCELLED,
        cause="cancelled" if end is End.CANCELLED else "",
        reason="" if unexplained else end.value,
    )
