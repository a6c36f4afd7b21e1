"""Raw facts about what the machine has and what is used of it; the other side parses them."""

import functools
import os
import signal
import time

from .. import machine
from ..commands import process, process_tree
from ..loop import READ
from ..refusal import Refusal
from . import gpu_tool, grants

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable

    from ..commands.login import LoginShell
    from ..home import Home
    from ..loop import Loop
    from ..typed import Message, Reaped, Reply, Send, Timer

GPU_TIMEOUT_S = 10.0
MOST_OUTPUT = 1 << 20


class Query:
    """One run of the GPU tool, read through the loop; `done(stdout, stderr, ok)` is called once."""

    def __init__(
        self, loop: "Loop", argv: "list[bytes]", done: "Callable[[str, str, bool], None]"
    ) -> None:
        self.loop = loop
        self.done: "Callable[[str, str, bool], None] | None" = done
        self.texts: "dict[int, bytes]" = {}
        self.streams: "dict[int, bool]" = {}
        self.status: "int | None" = None
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        null = os.open(os.devnull, os.O_RDONLY)
        try:
            environ = dict(os.environb)
            self.pid = process.start(argv, environ, null, out_write, err_write)
            loop.ours.add(self.pid)
        except process.CannotStart:
            os.close(out_read)
            os.close(err_read)
            raise
        finally:
            for fd in (null, out_write, err_write):
                os.close(fd)
        self.out, self.err = out_read, err_read
        for fd in (out_read, err_read):
            self.texts[fd] = b""
            self.listen(fd)
        self.timer = loop.later(GPU_TIMEOUT_S, self.too_long)

    def listen(self, fd: int) -> None:
        self.loop.watch(fd, READ, lambda _: self.receive(fd))

    def receive(self, fd: int) -> None:
        data = os.read(fd, 65536)
        if data and len(self.texts[fd]) < MOST_OUTPUT:
            self.texts[fd] += data
        elif not data:
            self.loop.unwatch(fd)
            os.close(fd)
            self.streams[fd] = True
            self.check()

    def ended(self, status: int) -> None:
        self.status = status
        self.check()

    def check(self) -> None:
        if self.done is not None and self.status is not None and len(self.streams) == 2:
            self.finish(self.status == 0, "")

    def too_long(self) -> None:
        process_tree.send(self.pid, signal.SIGKILL)
        for fd in (self.out, self.err):
            if fd not in self.streams:
                self.loop.unwatch(fd)
                os.close(fd)
        if self.done is not None:
            self.finish(False, "nvidia-smi gave no answer for %g s" % GPU_TIMEOUT_S)

    def finish(self, ok: bool, text: str) -> None:
        self.loop.cancel(self.timer)
        done, self.done = self.done, None
        out, err = (self.texts[fd].decode("utf-8", "replace") for fd in (self.out, self.err))
        if done is not None:
            done(out, text or err.strip() or out.strip(), ok)


class Probes:
    """`reply` and `send` go to the other side; `running` gives the jobs that run now, `workers` the
    pids of the supervisors."""

    def __init__(
        self,
        loop: "Loop",
        home: "Home",
        reply: "Reply",
        send: "Send",
        running: "Callable[[], list[Any]]",
        workers: "Callable[[], list[int]]",
        login: "LoginShell",
    ) -> None:
        self.loop = loop
        self.home = home
        self.reply = reply
        self.send = send
        self.running = running
        self.workers = workers
        self.login = login
        self.asked: "list[Any]" = []
        self.query: "Query | None" = None
        self.every_s = 0.0
        self.timer: "Timer | None" = None
        #: What was sent last.
        self.raw: "dict[str, Any]" = {}
        loop.children_ended.append(self.children_ended)

    def probe(self, request: "Message", _blob: bytes) -> None:
        self.asked.append(request["id"])
        self.begin()

    def watch(self, request: "Message", _blob: bytes) -> "Message":
        every_s = request.get("every_s", 0)
        if not isinstance(every_s, (int, float)) or every_s < 0:
            raise Refusal("bad_request", "`every_s` is not a number of seconds")
        self.every_s = every_s
        self.loop.cancel(self.timer)
        if every_s:
            self.timer = self.loop.later(0.0, self.tick)
        return {}

    def tick(self) -> None:
        self.timer = self.loop.later(self.every_s, self.tick)
        self.asked.append(None)
        self.begin()

    def begin(self) -> None:
        if self.query is not None:
            return  # one is under way: its answer is for all who asked
        tool = gpu_tool.find()
        if tool is None:
            self.finish(None, None, "")
            return
        self.ask(tool, gpu_tool.GPUS, functools.partial(self.ask_apps, tool))

    def ask(self, tool: bytes, what: bytes, done: "Callable[[str, str, bool], None]") -> None:
        try:
            self.query = Query(self.loop, [tool, what, gpu_tool.FORMAT], done)
        except process.CannotStart as problem:
            self.finish("", "", problem.text)

    def ask_apps(self, tool: bytes, gpus: str, err: str, ok: bool) -> None:
        if not ok:
            self.finish("", "", err)
            return
        self.ask(
            tool, gpu_tool.APPS, lambda out, err, ok: self.finish(gpus, out, "" if ok else err)
        )

    def children_ended(self, ended: "Reaped") -> None:
        if self.query is not None and self.query.pid in ended:
            self.query.ended(ended[self.query.pid][0])

    def finish(self, gpus: "str | None", apps: "str | None", error: str) -> None:
        self.query = None
        if not self.home.is_there():
            self.home.make()  # somebody tidied up here
        raw = facts(self.home)
        raw.update(gpus=gpus, gpu_apps=apps, gpu_error=error)
        raw["jobs"] = {job.key: usage(job) for job in self.running()}
        raw["own_cpu_s"] = own_cpu_s(self.workers())
        raw["claims"] = claimed(raw["jobs"])
        raw["in_the_way"] = grants.in_the_way()
        raw["login"] = self.login.problem
        self.raw = raw
        asked, self.asked = self.asked, []
        for number in asked:
            if number is not None:
                self.reply(number, {"raw": raw})
        if None in asked:
            self.send({"event": "probe", "raw": raw})

    def claims_changed(self) -> None:
        """Another's claim came first: the other side must hear of it before it decides again."""
        if self.raw:
            self.raw = dict(self.raw, claims=claimed(self.raw["jobs"]))
            self.send({"event": "probe", "raw": self.raw})


def facts(home: "Home") -> "Message":
    disk = os.statvfs(home.root)
    return {
        "time": time.time(),
        "meminfo": machine.read_text("/proc/meminfo"),
        "stat": machine.read_text("/proc/stat").split("\n", 1)[0],
        "loadavg": machine.read_text("/proc/loadavg").strip(),
        "disk_free_mb": disk.f_bavail * disk.f_frsize >> 20,
        "disk_total_mb": disk.f_blocks * disk.f_frsize >> 20,
    }


def usage(job: "Any") -> "Message":
    """What the job's processes use now."""
    pids = [job.pid] + process_tree.below(job.pid)
    if job.worker is not None:
        pids = process_tree.below(job.worker.pid)
    return process_tree.usage_of(pids)


def claimed(own_jobs: "Any") -> "list[Message]":
    """What jobs were granted that are not this agent's, and which GPUs its own hold."""
    found = []
    for claim in grants.everybody(own_jobs):
        pids = claim.pop("pid"), claim.pop("command"), claim.pop("since"), claim.pop("uid")
        if not claim["mine"] or claim["key"] not in own_jobs:
            claim["use"] = usage_of_claimant(*pids)
            found.append(claim)
        elif claim["gpus"]:
            found.append(claim)
    return found


def usage_of_claimant(supervisor: int, command: int, _since: int, uid: int) -> "Message | None":
    """What another's job uses now; None where we may not see that."""
    if grants.belongs(supervisor, uid):
        return process_tree.usage_of(process_tree.below(supervisor))
    if grants.belongs(command, uid):
        return process_tree.usage_of([command] + process_tree.below(command))
    return None


def own_cpu_s(workers: "Iterable[int]") -> float:
    """CPU seconds of the agent, its supervisors and the jobs that ended; it only ever grows."""
    found = [process_tree.stat(pid) for pid in workers]
    return round(sum(os.times()[:4]) + sum(facts.cpu_s for facts in found if facts), 2)


def free_port(request: "Message", _blob: bytes) -> "Message":
    return {"port": machine.free_port()}
