"""The jobs this agent knows of: start, release, stop, void, observe, forget."""

import collections
import os

from ..clean.leftovers import never_began
from ..clean.trash import Trash
from ..home import checked_key
from ..records import endings, record
from ..records.status import look
from ..refusal import Refusal
from ..run.spec import checked_spec, exec_spec, packed
from .collecting import Collecting
from .known_job import KnownJob
from .orphans import Orphans
from .series import SeriesTable
from .supervisors import Supervisors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..commands.login import LoginShell
    from ..home import Home
    from ..loop import Loop
    from ..records.status import Seen
    from ..typed import Ending, Message, Reaped, Told

MOST_TRIES = 20


class Jobs:
    """`woken(key)` is told when a job started or ended."""

    def __init__(self, loop: "Loop", home: "Home", woken: "Told", login: "LoginShell") -> None:
        self.loop = loop
        self.home = home
        self.woken = woken
        self.login = login
        self.jobs: "dict[str, KnownJob]" = {}
        self.queue: "collections.deque[KnownJob]" = collections.deque()
        self.series = SeriesTable(lambda job: self.jobs.get(job.key) is job)
        self.held: "list[str]" = []
        self.started: "list[list[Any]]" = []
        self.ended: "list[list[Any]]" = []
        self.supervisors = Supervisors(loop, home, self.heard, self.supervisor_died)
        self.collecting = Collecting(loop, home, self.supervisors, login)
        see_to, supervised = self.collecting.see_to, self.supervisors.supervised
        self.orphans = Orphans(loop, home, self.has_started, self.has_ended, see_to, supervised)
        self.trash = Trash(loop, home)
        self.dispatching = False
        #: Told when a job was refused for another's claim.
        self.refused: "Callable[[], Any]" = lambda: None
        loop.children_ended.append(self.children_ended)

    def take_events(self) -> "Message | None":
        if not (self.held or self.started or self.ended):
            return None
        event = {
            "event": "jobs",
            "held": self.held,
            "started": self.started,
            "ended": self.ended,
        }
        self.held, self.started, self.ended = [], [], []
        return event

    # Starting

    def start(self, request: "Message", _blob: bytes) -> "Message":
        wanted = request.get("jobs")
        if not isinstance(wanted, list):
            raise Refusal("bad_request", "`jobs` is not a list")
        accepted, refused = [], {}
        for spec in wanted:
            try:
                spec = checked_spec(spec)
                self.accept(spec["key"], packed(spec), spec["series"], spec["places"])
                accepted.append(spec["key"])
            except Refusal as refusal:
                # One that cannot be does not keep the others from starting.
                refused[named(spec)] = refusal.as_reply()
        self.dispatch()
        return {"accepted": accepted, "refused": refused}

    def exec(self, request: "Message", _blob: bytes) -> "Message":
        spec = exec_spec(self.home, request)
        self.accept(spec["key"], packed(spec))
        self.dispatch()
        return {}

    def accept(self, key: str, raw: bytes, series: str = "", places: int = 0) -> None:
        """Never twice: what is known already is only told again."""
        job = self.jobs.get(key)
        if job is not None:
            if job.held:
                self.held.append(key)
            elif job.started and not job.host:
                self.started.append([key, job.pid, job.started])
            return
        job = self.jobs[key] = KnownJob(key, raw, series)
        if series and places > 0:
            self.queue.extend(self.series.wait(job, places))
        else:
            self.series.join(job)
            self.queue.append(job)

    def dispatch(self) -> None:
        self.dispatching = False
        if self.login.is_pending:
            return  # supervisors have the environment that we have when they are forked
        while self.queue:
            if self.queue[0].key not in self.jobs:
                self.queue.popleft()  # voided or stopped meanwhile
                continue
            try:
                worker = self.supervisors.take()
            except OSError:  # too many processes just now
                self.dispatch_later(1.0)
                return
            if worker is None:
                self.dispatch_later(0.0)
                return
            job = self.queue.popleft()
            self.supervisors.run(worker, job, job.raw)
            if job.stopping is not None:
                self.stop_one(job, *job.stopping)

    def dispatch_later(self, seconds: float) -> None:
        if not self.dispatching:
            self.dispatching = True
            self.loop.later(seconds, self.dispatch)

    # What supervisors say

    def heard(self, job: "KnownJob", message: "Message") -> None:
        if "held" in message:
            self.is_held(job)
        if "started" in message:
            job.held = False
            job.raw = b""
            job.pid, job.started = message["started"]
            self.started.append([job.key, job.pid, job.started])
            self.woken(job.key)
        if "ended" in message:
            if message["ended"].pop("taken", False):
                self.refused()
            self.has_ended(job.key, message["ended"])
        if "known" in message:
            self.adopt(job)
        if self.queue and job.worker is None:
            self.dispatch()

    def is_held(self, job: "KnownJob") -> None:
        job.held = True
        self.held.append(job.key)
        if job.released:
            self.release(job, "go")

    def has_started(self, job: "KnownJob", seen: "Seen") -> None:
        self.started.append([job.key, seen.pid, seen.started])
        self.woken(job.key)

    def has_ended(self, key: str, end: "Ending") -> None:
        self.is_over(self.jobs.pop(key, None))
        self.ended.append([key, end])
        self.woken(key)

    def is_over(self, job: "KnownJob | None") -> None:
        """Whoever was sent ahead for its place begins."""
        if job is not None and job.series:
            self.queue.extend(self.series.leave(job))
            if self.queue:
                self.dispatch_later(0.0)

    def adopt(self, job: "KnownJob") -> None:
        """Somebody else has or had this job: say what is known, and watch it from now on."""
        seen = look(self.home, job.key, self.loop.recent)
        if seen.state == "ended":
            self.has_ended(job.key, seen.ending)
        elif seen.state == "unknown":
            # Its lock was held for a moment by someone who only looked.
            self.try_again(job)
        else:
            self.take_over(job, seen)
            if job.held:
                self.is_held(job)
            elif job.started and not job.host:
                self.started.append([job.key, job.pid, job.started])

    def try_again(self, job: "KnownJob") -> None:
        """It never started, so starting it is safe; but not for ever."""
        job.tries += 1
        if job.stopping is not None:
            self.entomb(job.key, "stopped", "stopped before it started")
            return
        if job.tries > MOST_TRIES:
            text = "its supervisor was killed each time before it started"
            if job.trouble:
                text = "its supervisor failed each time before it started: %s" % job.trouble
            self.entomb(job.key, "lost", text)
            return
        self.queue.append(job)
        self.dispatch_later(0.02)

    def take_over(self, job: "KnownJob", seen: "Seen") -> None:
        job.held, job.started, job.host = seen.state == "held", seen.started, seen.host
        job.pid = 0 if seen.host else seen.pid
        self.jobs[job.key] = job
        if not seen.host:
            job.series = job.series or seen.series
            self.series.join(job)
        self.orphans.watch(job, seen)
        if job.stopping is not None:  # whoever has it now did not hear of it
            self.orphans.stop(job, *job.stopping)

    def supervisor_died(self, job: "KnownJob") -> None:
        """Its command, if there is one, is our own child now."""
        self.orphans.beginnings.settle(job.key)
        seen = look(self.home, job.key, self.loop.recent)
        if seen.state == "ended":
            self.has_ended(job.key, seen.ending)
        elif seen.state == "unknown" and job.started:
            text = "its supervisor was killed and its folder removed"
            self.has_ended(job.key, endings.ending("lost", text, started=job.started))
        elif seen.state == "unknown":
            self.try_again(job)
        else:
            if not job.started and seen.started:
                self.started.append([job.key, seen.pid, seen.started])
            self.take_over(job, seen)

    def children_ended(self, ended: "Reaped") -> None:
        self.supervisors.children_ended(ended)
        self.orphans.children_ended(ended)

    def left_to_us(self) -> "list[Message]":
        """What there is to know of the jobs whose end nobody but us can see, or could see should
        their supervisor be killed."""
        working = self.supervisors.supervised().items()
        supervised = [{"key": key, "supervisor": pid} for pid, key in working if key]
        return self.orphans.left_to_us() + supervised

    # The other operations

    def go(self, request: "Message", _blob: bytes) -> "Message":
        for key in keys_of(request):
            job = self.known(key)
            if job is None:
                continue
            job.released = True
            if job.held:
                self.release(job, "go")
        return {}

    def release(self, job: "KnownJob", word: str) -> bool:
        """True when this word is the one that counts."""
        decided = record.release(self.home.record(job.key), word)
        if job.worker is not None:
            self.supervisors.say(job.worker, {"look": job.key})
        else:
            self.orphans.nudge(job)
        return decided == word

    def stop(self, request: "Message", _blob: bytes) -> "Message":
        stopping = []
        for key in keys_of(request):
            job = self.known(key)
            if job is None:
                continue
            stopping.append(key)
            self.stop_one(job, request.get("grace_s"))
        return {"stopping": stopping}

    def stop_one(self, job: "KnownJob", grace_s: "float | None") -> None:
        job.stopping = (grace_s,)
        if job.worker is not None:
            self.supervisors.say(job.worker, {"stop": job.key, "grace_s": grace_s})
        elif self.orphans.has(job):
            self.orphans.stop(job, grace_s)
        else:
            self.entomb(job.key, "stopped", "stopped before it started")

    def void(self, request: "Message", _blob: bytes) -> "Message":
        return {"states": {key: self.void_one(key) for key in keys_of(request)}}

    def void_one(self, key: str) -> "Message":
        job = self.known(key)
        if job is None or (job.worker is None and not self.orphans.has(job)):
            return self.entomb(key, "void", "it never started")
        if not job.held:
            return job.state()
        if self.release(job, "void"):
            return {"state": "ended", "ending": endings.ending("void", "it never started")}
        return job.state()

    def entomb(self, key: str, cause: str, text: str) -> "Message":
        """Make sure that this key never starts; if it did, say so."""
        os.makedirs(self.home.record(key), 0o700, exist_ok=True)
        seen = look(self.home, key, self.loop.recent, endings.ending(cause, text))
        if seen.state == "ended":
            job = self.jobs.pop(key, None)
            if job is not None:
                self.is_over(job)
                self.ended.append([key, seen.ending])
                self.woken(key)
        return seen.as_reply()

    def observe(self, request: "Message", _blob: bytes) -> "Message":
        return {"states": {key: self.observe_one(key) for key in keys_of(request)}}

    def observe_one(self, key: str) -> "Message":
        job = self.jobs.get(key)
        if job is not None:
            return job.state()
        seen = look(self.home, key, self.loop.recent)
        if seen.state in ("held", "running", "elsewhere") and not seen.handed:
            self.take_over(KnownJob(key), seen)
        return seen.as_reply()

    def is_active(self, key: str) -> bool:
        """True while the job has not ended."""
        if key in self.jobs:
            return True
        state = self.observe_one(key)["state"]
        if state == "unknown":
            raise Refusal("unknown_job", "no job %s on this machine" % key)
        return bool(state != "ended")

    def has_company(self, key: str) -> bool:
        """True while it runs, or a command runs beside it."""
        return any(other == key or other.startswith(key + ".") for other in self.jobs)

    def running(self) -> "list[KnownJob]":
        return [job for job in self.jobs.values() if job.pid]

    def known(self, key: str) -> "KnownJob | None":
        """The job if it has not ended, also when another agent started it."""
        self.observe_one(key)
        return self.jobs.get(key)

    def forget(self, request: "Message", _blob: bytes) -> "Message":
        forgotten = []
        for key in keys_of(request):
            if key in self.jobs:
                continue
            if look(self.home, key).state == "ended" or never_began(self.home, key):
                # Its record last: without it nobody would know that the job is over.
                folders = (self.home.job(key), self.home.new_record(key))
                if all(self.trash.add(folder, key) for folder in folders):
                    forgotten.append(key)
        return {"forgotten": forgotten}


def named(spec: "Any") -> str:
    """The key of a job that may be none."""
    return str(spec.get("key"))[:200] if isinstance(spec, dict) else "%.200r" % (spec,)


def keys_of(request: "Message") -> "list[str]":
    keys = request.get("keys")
    if not isinstance(keys, list):
        raise Refusal("bad_request", "`keys` is not a list")
    return [checked_key(key) for key in keys]
