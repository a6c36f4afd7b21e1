"""Jobs that another queue runs elsewhere: hand them over, and hear of them through shared files.

`handed/KEY` holds what the queue is given for one attempt: its script, its order, the `ticket` that
the queue gave for it, and the `claim` of the one run that counts. Attempts that are the tasks of an
array, or the lines of a pack, have only their claim there, and `array`, which says where the rest
is: in a folder that is common to all of them. The processes have their usual folders below `jobs`,
marked as being elsewhere: nobody here judges them by locks or by numbers of processes.
"""

import json
import os

from .. import machine
from ..commands.call import Calls
from ..home import checked_key
from ..records import record, status
from ..records.endings import ending
from ..refusal import Refusal
from ..run.spec import checked_spec, packed
from . import site
from .attempt import NOBODY, is_pack, write_unrun
from .exec_requests import ExecRequests

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..commands.login import LoginShell
    from ..home import Home
    from ..loop import Loop
    from ..typed import Message, Operation, Reply, Send, Spec, Timer

LOOK_S = 0.5
TAIL = 2000


class HandoverOperations:
    """`send` tells news, `woken(key)` those who wait for a job's output."""

    def __init__(
        self,
        loop: "Loop",
        home: "Home",
        reply: "Reply",
        send: "Send",
        woken: "Callable[[str], Any]",
        login: "LoginShell",
    ) -> None:
        self.loop = loop
        self.home = home
        self.reply = reply
        self.send = send
        self.woken = woken
        self.calls = Calls(loop, reply, login)
        self.exec_requests = ExecRequests(loop, home, self.prepare, woken)
        self.prefix = ""
        self.seen: "set[str]" = set()
        self.timer: "Timer | None" = None

    def operations(self) -> "dict[str, Operation]":
        return {
            "call": self.calls.call,
            "prepare_handed": self.prepare_handed,
            "hand_over": self.hand_over,
            "handed": self.handed,
            "heed": self.heed,
            "release_handed": self.release,
            "stop_handed": self.stop,
            "conclude_handed": self.conclude,
            **self.exec_requests.operations(),
        }

    # Handing over

    def prepare_handed(self, request: "Message", _blob: bytes) -> "Message":
        """Write down attempts of one process that are to be in one array or pack."""
        array, tasks = checked_key(request.get("array")), request.get("tasks")
        if not isinstance(tasks, dict) or not all(index.isdigit() for index in tasks):
            raise Refusal("bad_request", "`tasks` does not say which attempt each of them is")
        for index, asked in tasks.items():
            spec = checked_spec(asked)
            self.prepare(spec)
            folder = self.home.handed(spec["key"].rpartition("-")[0])
            os.makedirs(folder, 0o700, exist_ok=True)
            record.write_whole(folder + "/array", ("%s %s" % (array, index)).encode("ascii"))
        return {}

    def hand_over(self, request: "Message", _blob: bytes) -> "Message | None":
        """Write down everything, then run the command that queues it; once it has, never again."""
        key, number = checked_key(request.get("key")), request["id"]
        folder = self.home.handed(key)
        os.makedirs(folder, 0o700, exist_ok=True)
        os.makedirs(self.home.news(key), 0o700, exist_ok=True)
        if request.get("anew") and os.path.exists(folder + "/ticket"):
            os.unlink(folder + "/ticket")  # the queue has lost what it was for
        ticket = read(folder + "/ticket")
        if ticket.strip():
            return {"code": 0, "out": ticket, "err": ""}
        for spec in checked_specs(request):
            self.prepare(spec)
        if os.path.exists(folder + "/array"):
            os.unlink(folder + "/array")  # it goes alone now
        if request.get("tasks"):
            self.name_tasks(folder, request["tasks"])
        record.write_whole(folder + "/order", json.dumps(request["order"]).encode("ascii"))
        if request["order"].get("environ"):
            site.write_environ(folder)
        script = request["script"].encode("ascii")
        if os.path.exists("/bin/bash"):
            # Many a /bin/sh drops functions that a login exports, such as `module`.
            script = script.replace(b"#!/bin/sh\n", b"#!/bin/bash\n", 1)
        record.write_whole(folder + "/script", script, 0o700)
        if not os.path.islink(folder + "/agent"):
            os.symlink(machine.PROGRAM, folder + "/agent")
        # Straight into the file: it is there even when nobody is left to be told.
        out = os.open(folder + "/ticket", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            self.calls.start(request, lambda answer: self.queued(number, folder, answer), out)
        finally:
            os.close(out)
        return None

    def name_tasks(self, folder: str, tasks: "dict[str, str]") -> None:
        """Which attempt is which task; those of an earlier try may come all the same."""
        known = dict(whole(read(folder + "/tasks")), **tasks)
        record.write_whole(folder + "/tasks", json.dumps(known).encode("ascii"))

    def queued(self, number: "Any", folder: str, answer: "Message") -> None:
        answer["out"] = read(folder + "/ticket")
        self.reply(number, answer)

    def prepare(self, spec: "Spec") -> None:
        folder = self.home.record(spec["key"])
        for each in (folder, self.home.job(spec["key"])):
            os.makedirs(each, 0o700, exist_ok=True)
        if record.read_spec(folder) is not None:
            return
        record.write_whole(folder + status.ELSEWHERE, b"")
        life = record.open_life(folder, create=True)
        try:
            # With its spec, so that nobody sweeps away the snapshot it will start from.
            record.write_life(life, {"waits": True}, packed(spec))
        finally:
            os.close(life)

    # What became of them

    def handed(self, request: "Message", _blob: bytes) -> "Message":
        keys = request.get("keys")
        if not isinstance(keys, dict):
            raise Refusal("bad_request", "`keys` does not say how many processes each has")
        return {"handed": {key: self.look(checked_key(key), count) for key, count in keys.items()}}

    def look(self, key: str, count: int) -> "Message":
        folder = self.home.handed(key)
        array, _, index = read(folder + "/array").partition(" ")
        entry = self.home.handed(array) if array else folder
        claim = read(folder + "/claim")
        outputs = [name % ("" if is_pack(array) else index) for name in site.OUTPUTS]
        return {
            "array": [array, int(index)] if array else None,
            "ticket": read(entry + "/ticket"),
            "claim": "" if claim.startswith(NOBODY) else claim,
            "returned": read(folder + "/returned"),
            "said": "".join(read(entry + "/" + name) for name in outputs)[-TAIL:],
            "ranks": [self.look_at("%s-%d" % (key, rank)) for rank in range(count)],
        }

    def look_at(self, key: str) -> "Message":
        folder = self.home.record(key)
        where = whole(read(folder + "/where"))
        end = record.read_exit(folder)
        if end is not None:
            return dict(where, state="ended", ending=end)
        return dict(where, state=where.get("state", "waiting"))

    def heed(self, request: "Message", _blob: bytes) -> "Message":
        """From now on tell what happens to jobs whose keys start so."""
        self.prefix = checked_key(request.get("prefix"))
        self.seen.clear()
        self.loop.cancel(self.timer)
        self.listen()
        return {}

    def listen(self) -> None:
        self.timer = self.loop.later(LOOK_S, self.listen)
        try:
            names = os.listdir(self.home.news(self.prefix))
        except OSError:
            return
        # What ends otherwise is being written at this moment.
        whole_ones = (name for name in names if name.rpartition(".")[2].isdigit())
        fresh = sorted(name for name in whole_ones if name not in self.seen)
        self.seen.update(fresh)
        self.seen.intersection_update(names)
        news = {}
        for name in fresh:
            key = name.rpartition(".")[0]
            try:
                news[checked_key(key)] = self.look_at(key)
            except Refusal:
                continue
        if news:
            self.send({"event": "handed", "news": news})
        for key in news:
            self.woken(key)

    def release(self, request: "Message", _blob: bytes) -> "Message":
        """Say that these may begin, whatever their nodes see of what they follow."""
        for key in request.get("keys") or ():
            folder = self.home.handed(checked_key(key))
            os.makedirs(folder, 0o700, exist_ok=True)
            record.write_whole(folder + "/go", b"")
        return {}

    def stop(self, request: "Message", _blob: bytes) -> "Message | None":
        """Say that it is us who stop them, then run the command that does it, if there is one."""
        for key in request.get("keys") or ():
            folder = self.home.handed(key)
            if os.path.isdir(folder):
                if key in (request.get("now") or ()):
                    record.write_whole(folder + "/now", b"")
                record.write_whole(folder + "/stop", b"stopped")
                if is_pack(read(folder + "/array").partition(" ")[0]):
                    self.take_out(key)
        if request.get("argv") is None:
            return {}
        self.calls.call(request, _blob)
        return None

    def take_out(self, key: str) -> None:
        """A line of a pack that has not begun is out of it at once, though its entry stays: the
        claim is taken, so that no packer ever begins it."""
        path, mine = self.home.handed(key) + "/claim", NOBODY.encode() + b" 0\n"
        if record.write_first(path, mine) or read(path).startswith(NOBODY):
            end = ending("stopped", "stopped before it started")
            write_unrun(self.home, key, 1, end, {"state": "ended", "run": 0})

    def conclude(self, request: "Message", _blob: bytes) -> "Message":
        """Nobody asks for these any more: their news can go, and those that are lost stay so."""
        for key, text in (request.get("lost") or {}).items():
            self.write_down(checked_key(key), text)
        gone = {checked_key(key) for key in request.get("keys") or ()}
        for folder in {self.home.news(key) for key in gone}:
            for name in os.listdir(folder) if os.path.isdir(folder) else ():
                if name.rpartition(".")[0].rpartition("-")[0] in gone:
                    os.unlink(folder + "/" + name)
        return {}

    def write_down(self, key: str, text: str) -> None:
        """The end of a process that left no record; its own, if one comes, takes its place."""
        folder = self.home.record(key)
        spec = record.read_spec(folder)
        if spec is not None:
            end = dict(ending("lost", text), spec=spec)
            record.write_first(folder + "/exit", json.dumps(end).encode("ascii"))


def checked_specs(request: "Message") -> "list[Spec]":
    specs = request.get("specs")
    if (
        not isinstance(specs, list)
        or not isinstance(request.get("order"), dict)
        or not isinstance(request.get("script"), str)
    ):
        raise Refusal("bad_request", "`specs`, `order` or `script` is wrong")
    return [checked_spec(spec) for spec in specs]


def read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def whole(text: str) -> "Message":
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
