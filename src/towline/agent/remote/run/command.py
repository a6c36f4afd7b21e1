"""One command, from its start to the moment when nothing of it is left."""

import os
import time

from ..commands import process, process_tree
from ..content import changes, outside
from ..machine import to_path, who_we_are
from ..records import endings, record
from . import walls
from .services import JobServices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..box.entering import BoxVisitor
    from ..box.keeper import BoxKeeper
    from ..typed import Ending, Environ, Spec
    from .execution import Execution

#: The end of a very short job and its start are told in one message.
TELL_START_AFTER_S = 0.02
#: Often enough for a stop that comes from another machine.
LOOK_EVERY_S = 5.0
#: So long a machine may have no room for another process before the job goes back into the queue.
PATIENCE_S = 30.0
TRY_AGAIN_S = 0.2
OUTPUT = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class Command:
    """`execution` has made all that it needs; `life` is the record's, which we hold locked."""

    def __init__(self, execution: "Execution", life: int) -> None:
        self.execution = execution
        self.life = life
        self.spec: "Spec" = execution.spec
        self.about: "dict[str, Any]" = {}
        self.cause = ""
        self.text = ""
        self.takedown: "process_tree.Takedown | None" = None
        self.result: "tuple[int, Any] | None" = None
        self.told = False
        self.looks = 0
        self.memory_was_short = False
        #: What has it in its box, or takes it into one; None: it has no walls.
        self.box: "BoxKeeper | BoxVisitor | None" = None

    def to_the_end(self) -> "tuple[Ending, int]":
        folder = self.execution.folder
        self.out = os.open(folder + "/out", OUTPUT, 0o600)
        self.err = os.open(folder + "/err", OUTPUT, 0o600)
        try:
            self.start()
            self.began()
            self.follow()
            return self.ending(), (0 if self.told else self.pid)
        finally:
            os.close(self.out)
            os.close(self.err)

    def start(self) -> None:
        """Up to the start of the command everything may fail; afterwards nothing does."""
        spec, execution = self.spec, self.execution
        environ = execution.environ()
        argv = [word.encode("utf-8", "surrogateescape") for word in spec["argv"]]
        argv = process.without_terminal(argv)
        folder = self.working_folder()
        if execution.boxed:
            self.box = walls.way_in(execution, argv, environ, folder)
        elif spec["setup"]:
            mark = os.fsencode(execution.record + "/mark")
            given = execution.given() if spec["environ"] is None else None
            argv = process.with_setup(argv, spec["setup"].encode("utf-8"), mark, environ, given)
        if self.box is None:
            enter(folder)
        # Programs that trust these would otherwise work in the submitter's folder.
        environ[b"PWD"] = os.fsencode(folder)
        environ.pop(b"OLDPWD", None)
        self.pid = self.spawn(argv, environ)
        self.started = time.time()
        self.services = JobServices(self, environ)

    def spawn(self, argv: "list[bytes]", environ: "Environ") -> int:
        """The pid of the command; where nothing starts for a moment, it is tried again."""
        until = time.monotonic() + PATIENCE_S
        while True:
            heir = self.execution.station.heir
            self.note(spawning=time.time(), heir=heir, **who_we_are())
            try:
                return self.launch(argv, environ)
            except process.NotNow:
                del self.about["spawning"]
                self.note()
                if time.monotonic() > until:
                    raise
            self.execution.wait(TRY_AGAIN_S)
            self.execution.pause()

    def launch(self, argv: "list[bytes]", environ: "Environ") -> int:
        null = self.execution.station.null
        if self.box is None:
            return process.start(argv, environ, null, self.out, self.err)
        try:
            return self.box.start(null, self.out, self.err)
        except OSError as problem:
            raise process.NotNow(problem) from None

    def began(self) -> None:
        start = process_tree.start_of(self.pid)
        self.execution.grant.began(self.pid, start)
        self.try_to_note(pid=self.pid, start=start, started=self.started)
        if self.box is not None:
            self.box.release()
        self.services.start()

    def try_to_note(self, **facts: "Any") -> None:
        """A full disk must not end our watch: what we note here is only for others."""
        try:
            self.note(**facts)
        except OSError:
            pass

    def note(self, **facts: "Any") -> None:
        """Write down what others must know should we be killed."""
        self.about.update(facts)
        record.write_life(self.life, self.about, self.execution.raw)

    def working_folder(self) -> str:
        if self.spec["folder"]:
            return to_path(self.spec["folder"])
        folder = self.execution.home.job(self.spec["at"] or self.execution.key) + "/src"
        return folder + "/" + to_path(self.spec["cwd"]) if self.spec["cwd"] else folder

    def follow(self) -> None:
        """Until the command and everything it started are gone."""
        limit = time.monotonic() + self.spec["time_s"] if self.spec["time_s"] else None
        tell_at = time.monotonic() + TELL_START_AFTER_S
        look_at = tell_at + LOOK_EVERY_S
        while not self.gone():
            now = time.monotonic()
            if not self.told and now >= tell_at:
                self.tell_start()
            if self.execution.stop_grace is not None:
                self.take_down("stopped", self.execution.stop_grace, now)
            elif limit is not None and now >= limit and self.result is None:
                self.text = "ran longer than its limit of %g s" % self.spec["time_s"]
                self.take_down("timeout", self.spec["grace_s"], now)
            elif self.result is not None:
                self.take_down("", self.spec["grace_s"], now)
            if now >= look_at:
                look_at = now + LOOK_EVERY_S
                self.look_around()
            waits = [(look_at if self.told else tell_at) - now]
            if limit is not None and not self.cause and self.result is None:
                waits.append(limit - now)
            if self.takedown is not None:
                waits.append(self.takedown.step(now) or self.takedown.LOOK_S)
            self.execution.wait(min(waits))

    def tell_start(self) -> None:
        self.told = True
        self.execution.overseer.tell(started=[self.pid, self.started])
        self.execution.grant.show()

    def look_around(self) -> None:
        self.execution.look_for_stop()
        self.looks += 1
        if self.looks % 2:
            return
        try:
            self.execution.grant.touch()
        except OSError:
            pass
        self.services.look()
        self.execution.station.kills.look()

    def gone(self) -> bool:
        """Reap; True when no child is left."""
        while True:
            try:
                seen = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return True
            if seen is None:
                return False
            if seen.si_pid == self.pid:
                # Before it is reaped: then nobody else could learn it, and it takes a while until
                # all that it made is listed.
                self.try_to_note(status=status_of(seen))
            pid, status, usage = os.wait4(seen.si_pid, 0)
            if self.result is None and self.takedown is None:
                self.services.child_ended(pid, status)
            if pid == self.pid:
                self.result = (status, usage)
                # Now: what it leaves running may take long to end.
                self.memory_was_short = status != 0 and self.execution.station.kills.any_lately()

    def take_down(self, cause: str, grace_s: float, now: float) -> None:
        if self.result is None and not self.cause:
            self.cause = cause
        if self.takedown is None:
            self.try_to_note(
                cause=self.cause, text=self.text, status=self.result and self.result[0]
            )
            me = os.getpid()
            find = lambda: walls.to_be_asked(me, self.pid, self.box)  # noqa: E731
            self.takedown = process_tree.Takedown(self.pid, grace_s, find, now)
        self.takedown.kill_at = min(self.takedown.kill_at, now + grace_s)

    def ending(self) -> "Ending":
        assert self.result is not None
        end = endings.ending_of(*self.result, started=self.started)
        end["cause"], end["text"] = self.cause, self.text
        end["out_size"] = os.fstat(self.out).st_size
        end["err_size"] = os.fstat(self.err).st_size
        endings.explain_setup(self.execution.record, self.spec, end)
        if end["cause"] == "not_found" and self.box is None:
            end["text"] += self.execution.where_else()
        if not self.spec["at"]:
            end["made"] = self.made()
        if self.memory_was_short and not end["cause"]:
            endings.explain_kill(end)
        return end

    def made(self) -> int:
        """How many files it made; -1 where that could not be listed, or is to be collected first:
        whoever wants them asks."""
        if outside.is_pending(self.execution.record):
            return -1
        try:
            home, key = self.execution.home, self.execution.key
            return changes.keep(home, home.place(key), self.spec)
        except (OSError, ValueError):
            return -1


def status_of(seen: "os.waitid_result") -> int:
    """As `wait4` would tell it."""
    if seen.si_code == os.CLD_EXITED:
        return seen.si_status << 8
    return seen.si_status | (0x80 if seen.si_code == os.CLD_DUMPED else 0)


def enter(folder: str) -> None:
    try:
        os.chdir(folder)
    except FileNotFoundError:
        os.makedirs(folder, 0o755, exist_ok=True)
        os.chdir(folder)
