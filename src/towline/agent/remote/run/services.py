"""Services beside a job: started with it, kept up, and gone when it is.

Each has a keeper: a process of its own, so that the service is neither lost with the job's
supervisor nor left behind by it. The keeper starts the service on a free port, starts it again when
it dies early, and writes down where it stands.
"""

import json
import os
import re
import shutil
import signal
import time

from .. import machine, trouble
from ..box.entering import BoxVisitor, has_own_network
from ..box.files import box_of
from ..commands import process, process_tree
from ..home import checked_key
from ..records import record
from ..records.status import ELSEWHERE
from ..refusal import Refusal
from . import relay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..home import Home
    from ..typed import Environ, Message
    from .command import Command

NAME = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,49}$")
LOG = re.compile(r"^services/[A-Za-z0-9_][A-Za-z0-9._-]{0,49}\.log$")
OUTPUT = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
#: One that lived longer than this was fine, and may die again as often.
EARLY_S = 60.0
PAUSES_S = (1.0, 2.0, 4.0)
#: Not there, not executable, not found: no use to start it again.
HOPELESS = (69, 126, 127)
#: The job's end does not wait longer than this for a service that does not go.
GRACE_S = 3.0
LOOK_S = 1.0
SETUP_LOOK_S = 0.1
#: A command whose environment is empty for so long has none.
EMPTY_S = 3.0
MOST_KEEPERS = 5
HEARD = (signal.SIGTERM, signal.SIGCHLD)
FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)
LAST_WORDS = 300
#: Stands among the services for the way to this node.
RELAY: "dict[str, Any]" = {"name": "-relay", "argv": []}


class Over(Exception):
    """The job is over, or somebody wants the service to end."""

    def __init__(self, told: bool) -> None:
        super().__init__()
        #: By a signal, which the service itself got, too.
        self.told = told


# The supervisor's side


class JobServices:
    """The services of one running command."""

    def __init__(self, command: "Command", environ: "Environ") -> None:
        self.command = command
        self.environ = environ
        self.keepers: "dict[int, Any]" = {}
        self.left = MOST_KEEPERS
        self.folder = command.execution.folder
        #: Whoever asks for our ports is on another machine.
        self.elsewhere = os.path.exists(command.execution.record + ELSEWHERE)

    def start(self) -> None:
        services = self.command.spec.get("services", ())
        if self.elsewhere:
            self.clear()
        for service in services:
            self.start_one(service)
        if services and self.elsewhere:
            self.start_one(RELAY)

    def start_one(self, service: "Message") -> None:
        try:
            self.keepers[fork_keeper(self, service)] = service
        except OSError:
            pass  # too many processes: the job is what matters

    def clear(self) -> None:
        """What an earlier run on another node wrote does not hold here."""
        shutil.rmtree(self.folder + "/services", ignore_errors=True)
        for name in (relay.FILE, relay.WANTED):
            try:
                os.unlink(self.folder + name)
            except OSError:
                pass

    def look(self) -> None:
        """From time to time: somebody may want to reach a port of this node."""
        if not self.elsewhere or RELAY in self.keepers.values():
            return
        try:
            wanted = relay.WANTED[1:] in os.listdir(self.folder)
        except OSError:
            return
        if wanted:
            self.start_one(RELAY)

    def child_ended(self, pid: int, status: int) -> None:
        """A keeper that was killed is replaced; one that gave up is not."""
        service = self.keepers.pop(pid, None)
        if service is not None and os.WIFSIGNALED(status) and self.left > 0:
            self.left -= 1
            self.start_one(service)


def fork_keeper(services: "JobServices", service: "Message") -> int:
    # Blocked before the fork: it must not miss the word to end.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    supervisor = os.getpid()
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return pid
    try:
        become_keeper(services, service, supervisor)
    finally:
        os._exit(0)


def become_keeper(services: "JobServices", service: "Message", supervisor: int) -> None:
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in set(process.SIGNALS).difference(HEARD, FAULTS):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    # Above all the supervisor's lock: it says that the supervisor lives.
    process.close_all_but(-1)
    machine.become_subreaper()
    machine.set_name(b"tow-service")
    if service is RELAY:
        command = (services.command.pid, services.command.about["start"])
        relay.Relay(services.folder, supervisor, command).main()
        return
    keeper = Keeper(services, service, supervisor)
    try:
        keeper.main()
    except Exception:
        os.write(keeper.log, trouble.told().encode("utf-8", "replace"))
        keeper.tell("failed", text="its keeper failed; its output says why")


# The keeper


class Keeper:
    #: The record of a job that is in a box: the service is to be in it, too.
    box = ""

    def __init__(self, services: "JobServices", service: "Message", supervisor: int) -> None:
        command = services.command
        self.argv = [word.encode("utf-8", "surrogateescape") for word in service["argv"]]
        self.command = (command.pid, command.about["start"])
        self.supervisor = supervisor
        self.environ = services.environ
        self.with_setup = bool(command.spec["setup"])
        self.grace_s = min(GRACE_S, command.spec["grace_s"])
        self.group = 0
        self.box = command.execution.record if command.execution.boxed else ""
        self.folder = os.fsencode(command.working_folder())
        self.setup = command.spec["setup"].encode("utf-8", "surrogateescape")
        place = command.execution.folder + "/services"
        os.makedirs(place, 0o700, exist_ok=True)
        self.state = "%s/%s.json" % (place, service["name"])
        self.log = os.open("%s/%s.log" % (place, service["name"]), OUTPUT, 0o600)
        self.null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def main(self) -> None:
        try:
            self.keep(self.environment())
        except Over as over:
            self.end(over.told)

    def keep(self, environ: "Environ") -> None:
        """Start it, again and again, as long as there is hope."""
        deaths, why = 0, ""
        while True:
            began = time.monotonic()
            code = self.once(environ, why)
            if time.monotonic() - began > EARLY_S:
                deaths = 0
            deaths += 1
            if code in HOPELESS or deaths > len(PAUSES_S):
                text = self.last_words() or "it ended with exit code %d" % code
                self.tell("failed", text=text)
                return
            words = self.last_words()
            why = "it ended with exit code %d and is started again" % code
            why += ": " + words if words else ""
            self.tell("starting", text=why)
            self.wait(PAUSES_S[deaths - 1], always=True)

    def once(self, environ: "Environ", why: str) -> "Any":
        """Its exit code, once nothing of it is left; `why` it is started again, if it is."""
        port = machine.free_port("127.0.0.1")
        environ = dict(environ)
        environ[b"PORT"] = b"%d" % port
        if self.box:
            self.group = pid = self.spawn_inside(environ)
        else:
            self.group = pid = spawn(self.argv, environ, self.null, self.log)
        self.tell("running", port=port, text=why)
        code = None
        while True:
            ended = machine.reap()
            if pid in ended:
                code = exit_code(ended[pid][0])
            if code is not None and not process_tree.below(os.getpid()):
                return code
            if code:
                self.take_down()
                return code
            self.wait(LOOK_S)

    def spawn_inside(self, environ: "Environ") -> int:
        """Start it in the job's box, as soon as that is there."""
        init = box_of(self.box)
        while init is None:
            self.wait(SETUP_LOOK_S)
            init = box_of(self.box)
        argv = self.argv
        if self.with_setup:
            argv = process.with_setup(argv, self.setup, os.devnull.encode(), environ)
        guest = BoxVisitor(init, argv, environ, self.folder, with_us=True)
        pid = guest.start(self.null, self.log, self.log)
        guest.release()
        return pid

    def environment(self) -> "Environ":
        """That of the command itself: so the set-up, which it shares, runs only once."""
        if self.box:
            return {name: self.environ[name] for name in self.environ if name not in process.HIDDEN}
        empty_since = None
        while self.with_setup and process_tree.may_look_into(self.command[0]):
            found = process_tree.environment(self.command[0])
            values = dict(line.split(b"=", 1) for line in found if b"=" in line)
            if values and b"TOWLINE_SETUP" not in values:
                return values
            now = time.monotonic()
            empty_since = None if values else empty_since or now
            # While a program takes the place of another, it is empty for a moment.
            if empty_since and now - empty_since > EMPTY_S and process_tree.lives(*self.command):
                break
            self.wait(SETUP_LOOK_S)
        return {name: self.environ[name] for name in set(self.environ).difference(process.HIDDEN)}

    def wait(self, seconds: float, always: bool = False) -> None:
        """Until a child ended or the time is over; `Over` when the job is."""
        until = time.monotonic() + seconds
        while True:
            heard = signal.sigtimedwait(HEARD, max(0.0, min(until - time.monotonic(), LOOK_S)))
            if heard is not None and heard.si_signo == signal.SIGTERM:
                raise Over(True)
            # As long as the supervisor lives, it is the one to know.
            if os.getppid() != self.supervisor and not process_tree.lives(*self.command):
                raise Over(False)
            if time.monotonic() >= until or (heard is not None and not always):
                return

    def end(self, told: bool) -> None:
        self.take_down(told)
        self.tell("stopped")

    def take_down(self, told: bool = False) -> None:
        me = os.getpid()
        find: "Callable[[], list[int]]" = lambda: process_tree.below(me)  # noqa: E731
        down = process_tree.Takedown(self.group, self.grace_s, find, time.monotonic())
        if told:
            down.asked.update(find())
        while down.step(time.monotonic()) is not None:
            signal.sigtimedwait([signal.SIGCHLD], down.LOOK_S)
            machine.reap()

    def tell(self, state: str, port: int = 0, text: str = "") -> None:
        about = {"state": state, "port": port, "text": text[:LAST_WORDS], "at": time.time()}
        try:
            record.write_whole(self.state, json.dumps(about).encode("ascii"))
        except OSError:
            pass  # a full disk is no reason to end it

    def last_words(self) -> str:
        size = os.fstat(self.log).st_size
        with open(self.state[: -len("json")] + "log", "rb") as file:
            file.seek(max(0, size - 4096))
            lines = file.read().decode("utf-8", "replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def spawn(argv: "list[bytes]", environ: "Environ", null: int, log: int) -> int:
    """Start it so that it cannot outlive its keeper."""
    place = process.find_command(argv[0], environ)
    keeper = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        machine.die_with_parent()
        if os.getppid() == keeper:
            process.become(place, argv, environ, null, log, log)
    finally:
        os._exit(127)


def exit_code(status: int) -> int:
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


# The agent's side


def checked_services(services: "Any") -> "Any":
    """As they are asked for in a job's spec."""
    names = []
    for service in services:
        argv = service.get("argv") if isinstance(service, dict) else None
        words = argv if isinstance(argv, list) else []
        if not words or not all(isinstance(word, str) for word in words):
            raise Refusal("bad_request", "a service has no `argv`")
        names.append(checked_name(service.get("name")))
    if len(set(names)) < len(names):
        raise Refusal("bad_request", "two services have the same name")
    return services


def checked_name(name: "Any") -> str:
    if not isinstance(name, str) or not NAME.match(name) or name.endswith("\n"):
        raise Refusal("bad_request", "not the name of a service: %.80r" % (name,))
    return name


class ServicePlaces:
    """Where the services of jobs stand, told from their folders."""

    def __init__(self, home: "Home") -> None:
        self.home = home

    def services(self, request: "Message", _blob: bytes) -> "Message":
        key = checked_key(request.get("key"))
        spec = record.read_spec(self.home.record(key))
        if spec is None:
            raise Refusal("unknown_job", "no job %s on this machine" % key)
        names = [service["name"] for service in spec.get("services", ())]
        # Listing first: a network file system may remember for long what was not there.
        place = self.home.job(key) + "/services"
        if os.path.isdir(place):
            os.listdir(place)
        return {"services": {name: self.look(key, name) for name in names}}

    def door_of(self, request: "Message") -> "relay.Door | None":
        """The way to a port of a job that runs elsewhere; None for one of this machine."""
        if "key" not in request:
            return None
        key = checked_key(request["key"])
        if not os.path.exists(self.home.record(key) + ELSEWHERE):
            return None
        return relay.Door(self.home.job(key), request["port"])

    def box_of(self, request: "Message") -> "int | None":
        """The box that a port is in; None for one of this machine's own network."""
        if "key" not in request:
            return None
        init = box_of(self.home.record(checked_key(request["key"])))
        return init if init is not None and has_own_network(init) else None

    def look(self, key: str, name: str) -> "Message":
        unknown: "dict[str, Any]" = {"state": "starting", "port": 0, "text": ""}
        path = "%s/services/%s.json" % (self.home.job(key), checked_name(name))
        try:
            with open(path, "rb") as file:
                found = json.loads(file.read().decode("ascii"))
        except (OSError, ValueError):
            return unknown
        return found if isinstance(found, dict) else unknown

    def port_of(self, request: "Message") -> "Any":
        """The port that a service has now."""
        name = checked_name(request["service"])
        port = self.look(checked_key(request.get("key")), name).get("port")
        if not port:
            raise Refusal("refused", "%s does not run now" % name)
        return port
