"""One process of an attempt, from its folder to its end, whoever has it run and hears of it."""

import errno
import json
import os
import time

from .. import machine
from ..commands import missing, process, process_tree
from ..content import changes, outside, team_data, trees
from ..home import JobPlace
from ..machine import to_path
from ..records import endings, record
from ..refusal import Refusal
from ..share import grants
from . import walls
from .command import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Protocol

    from ..home import Home
    from ..typed import Ending, Environ, Spec
    from .station import Station

    class Overseer(Protocol):
        """Who has a job run: a supervisor, which hears and tells through its agent's socket, or a
        runner on a node, which does so by files."""

        def wait(self, seconds: float) -> None:
            """Until something happened, or the time is over; stops are passed on to us."""

        def tell(self, **message: "Any") -> None:
            """That it is `held`, or has `started`."""

    class Surroundings(Protocol):
        """What is special where a job runs."""

        def arrive(self, execution: "Execution") -> None:
            """Called when all is prepared, just before the command is started."""

        def adapt(self, environ: "Environ") -> None:
            """Give the command what only this place can tell."""

        def names(self) -> "Iterable[bytes]":
            """Of variables that no profile may change."""


HOLD_S = 600.0
LOOK_FOR_GO_S = 0.5
KEEP_TRIES = 60
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class Stopped(Exception):
    """The job is not to start any more."""

    def __init__(self, cause: str, text: str = "") -> None:
        super().__init__(cause)
        self.cause = cause
        self.text = text


class Plain:
    """A machine of which a job need know no more than it was told."""

    def arrive(self, execution: "Execution") -> None:
        pass

    def adapt(self, environ: "Environ") -> None:
        pass

    def names(self) -> "Iterable[bytes]":
        return ()


class Execution:
    """`overseer` waits for us, and is told; `raw` is the job's specification, as JSON."""

    def __init__(
        self,
        home: "Home",
        key: str,
        raw: bytes,
        station: "Station",
        overseer: "Overseer",
        surroundings: "Surroundings" = Plain(),
    ) -> None:
        self.home = home
        self.key = key
        self.raw = raw
        self.spec: "Spec" = {}
        self.station = station
        self.overseer = overseer
        self.surroundings = surroundings
        #: Its own folder, and the one with what is written down about it.
        self.folder, self.record = home.job(key), home.new_record(key)
        #: Grace in seconds once a stop was asked for.
        self.stop_grace: "float | None" = None
        self.grace_s = 10.0
        self.grant = grants.Grant()

    @property
    def boxed(self) -> bool:
        """Whether it is walled in."""
        return self.spec.get("box") is not None

    # Stops

    def stop(self, grace_s: "float | None") -> None:
        """None is the job's own grace; of several wishes, the most urgent counts."""
        grace_s = self.grace_s if grace_s is None else grace_s
        if self.stop_grace is None or grace_s < self.stop_grace:
            self.stop_grace = grace_s

    def look_for_stop(self) -> None:
        """Another agent than ours asks for a stop through a file."""
        grace_s = record.asked_to_stop(self.record)
        if grace_s is not None:
            self.stop(grace_s)

    def wait(self, seconds: float) -> None:
        self.overseer.wait(seconds)

    def pause(self) -> None:
        """Between two files: hear a stop."""
        self.wait(0)
        self.grant.show(grants.SHOW_AFTER_S)
        if self.stop_grace is not None:
            raise Stopped("stopped", "stopped before it started")

    # Its life

    def live(self, life: int) -> "tuple[Ending, int]":
        """Prepare, start and await the command: its ending, and its pid if still to be told.
        `life` is its record's, which we hold locked."""
        try:
            self.station.kills.refresh()
            self.spec = json.loads(self.raw.decode("utf-8"))
            self.grace_s = self.spec["grace_s"]
            record.reserve(life, self.raw)
            self.grant = grants.Grant(self.key, self.spec["claim"])
            self.grant.take(self.pause)
            self.prepare(life)
            return Command(self, life).to_the_end()
        except Stopped as stopped:
            return endings.ending(stopped.cause, stopped.text), 0
        except grants.Taken as taken:
            return dict(endings.ending("void", str(taken)), taken=True), 0
        except process.CannotStart as problem:
            return endings.ending(problem.cause, self.explain(problem), problem.code), 0
        except walls.NoWalls as problem:
            return endings.ending("walls", str(problem)), 0
        except trees.Absent as problem:
            return endings.ending("absent", str(problem)), 0
        except (trees.CannotMake, Refusal, ValueError) as problem:
            return endings.ending("snapshot", str(problem)), 0
        except OSError as problem:
            return trouble(problem), 0
        finally:
            self.grant.release()
            os.chdir("/")

    def write_down(self, life: int, end: "Ending") -> None:
        """Record the ending; a job that did run must not lose it to a moment without space."""
        for _ in range(KEEP_TRIES if end["started"] else 1):
            try:
                record.write_exit(self.record, life, end, self.raw)
                return
            except OSError:
                time.sleep(1.0 if end["started"] else 0.0)

    def prepare(self, life: int) -> None:
        team_data.settle(self.spec)
        if self.boxed:
            walls.check(self)
        if not self.spec["at"]:
            self.make_folders()
        if self.spec["hold"]:
            self.hold(life)
        self.look_for_stop()
        if self.stop_grace is not None:
            raise Stopped("stopped", "stopped before it started")
        self.surroundings.arrive(self)

    def make_folders(self) -> None:
        """The job's own tree, what it keeps for the next one, and links to what is here already."""
        spec, source, keep = self.spec, self.folder + "/src", self.folder + "/keep"
        largest = 0
        changes.begin(self.record)
        os.mkdir(source, 0o755)
        if spec["snapshot"] and not spec["folder"]:
            snapshot = self.station.load_snapshot(self.home, spec["snapshot"])
            largest = trees.make_tree(self.home, snapshot, source, self.pause)
        # What an earlier run of the same attempt kept is carried over.
        if not os.path.isdir(keep):
            os.mkdir(keep, 0o755)
            if spec["keep"]:
                kept = trees.load_snapshot(self.home, spec["keep"])
                trees.make_tree(self.home, kept, keep, self.pause)
        if self.boxed:
            walls.make_home(self.folder)
        trees.make_links(source, spec["links"])
        if outside.named(spec["links"]):
            place = JobPlace(self.key, self.folder, self.record)
            outside.make_links(place, spec["links"], self.environ())
        changes.complete(self.record, largest, self.pause)

    def hold(self, life: int) -> None:
        """Until released. The link `go` is made only once: it says either go or void, for ever."""
        about = dict(machine.who_we_are(), held=True)
        record.write_life(life, about, self.raw)
        self.grant.show()
        self.overseer.tell(held=True)
        until = time.monotonic() + self.spec["hold_s"]
        word = record.released(self.record)
        while not word and self.stop_grace is None:
            left = until - time.monotonic()
            if left <= 0:
                record.release(self.record, "void")
            else:
                self.wait(min(left, LOOK_FOR_GO_S))
                self.look_for_stop()
            word = record.released(self.record)
        if word == "void":
            raise Stopped("void", "it was not released to start")

    # The environment of the command

    def environ(self) -> "Environ":
        """As bytes."""
        spec = self.spec
        if spec["environ"] is None:
            environ = dict(self.station.own_environ)
        else:
            environ = as_bytes(spec["environ"])
        if self.boxed:
            environ = walls.passed(environ)
        environ.update(outside.expanded(as_bytes(spec["env"]), environ))
        home = os.fsencode(self.home.job(spec["at"] or self.key))
        environ.update(team_data.variables(spec))
        environ[b"JOB_DIR"] = home
        environ[b"SRC_DIR"] = os.fsencode(to_path(spec["folder"])) or home + b"/src"
        environ[b"KEEP_DIR"] = home + b"/keep"
        if self.boxed:
            walls.of_the_box(environ, home)
        environ.setdefault(b"PYTHONUNBUFFERED", b"1")
        environ[process_tree.MARK.encode()] = self.key.encode()
        self.surroundings.adapt(environ)
        return environ

    def given(self) -> "set[bytes]":
        """Names of variables that are the job's own, whatever a profile says."""
        told = set(as_bytes(self.spec["env"])).union(team_data.variables(self.spec))
        return told.union(self.surroundings.names())

    def explain(self, problem: "process.CannotStart") -> str:
        if problem.cause != "not_found" or self.boxed:
            return problem.text
        hint = self.where_else()
        return problem.text if hint in problem.text else problem.text + hint

    def where_else(self) -> str:
        return missing.hint(self.spec["argv"], self.environ(), self.spec["environ"] is None)


def as_bytes(variables: "dict[str, str]") -> "Environ":
    return {
        name.encode("utf-8", "surrogateescape"): value.encode("utf-8", "surrogateescape")
        for name, value in variables.items()
    }


def trouble(problem: "OSError") -> "Ending":
    """The ending of a job that could not even be prepared."""
    if problem.errno in NO_SPACE:
        return endings.ending("no_space", "no space left on the machine: %s" % problem)
    if problem.errno in process.NOT_NOW:
        return endings.ending("void", "nothing starts here just now: %s" % problem)
    return endings.ending("snapshot", "the job's folder could not be made: %s" % problem)
