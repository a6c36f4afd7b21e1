"""One machine, driven: keep a channel open, make true over there what is wanted here.

The driver holds a table of the processes it wants on its machine. Whenever the channel opens
(first time, after a cut, after the Engine was killed) it asks the agent what it knows of them and
mends the difference: unknown ones are started, ended ones reported, unwanted ones stopped. So there
is one path for the ordinary case and for every fault.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from towline.agent.link import Link
from towline.backends.base import Guest, Report
from towline.backends.channel import Channel
from towline.backends.staging import Sending, stage
from towline.errors import AgentError, HostError
from towline.hosts.base import Host
from towline.model.events import MachineGone, ProcessEnded, ProcessStarted
from towline.model.job import Ending
from towline.model.units import format_duration
from towline.snapshot.blobs import BlobStore

log = logging.getLogger("towline")

#: Most processes named in one message.
_MANY = 2000


class Wanted(Struct):
    """One process that should be (or stop being) on this machine."""

    key: str
    job: int
    attempt: int
    rank: int
    #: What the agent needs to start it. None: it may only be found again, never started (a process
    #: of a gang whose start an earlier Engine left half done).
    order: Callable[[], dict[str, Any]] | None
    #: Ids of the snapshots that must be there first.
    snapshots: tuple[str, ...] = ()
    gpus: tuple[int, ...] = ()
    #: A start went out, or may have gone out before the Engine was killed.
    sent: bool = False
    #: Prepared over there, waiting for its sisters.
    held: bool = False
    started: bool = False
    stop: bool = False
    #: Its end is settled here; it must only never run over there.
    settled: bool = False


class Driver:
    """`report` takes facts, `on_hold` hears of processes that wait for their sisters, `on_probe` of
    what the machine measured."""

    def __init__(
        self,
        host: Host,
        root: str,
        blobs: BlobStore,
        report: Report,
        on_hold: Callable[[Wanted], None],
        on_probe: Callable[["Driver", dict[str, Any]], None],
        probe_every_s: float,
        lost_after_s: float,
    ) -> None:
        self.name = host.name
        self.host = host
        self.root = root
        self.blobs = blobs
        self.report = report
        self.on_hold = on_hold
        self.on_probe = on_probe
        self.probe_every_s = probe_every_s
        self.lost_after_s = lost_after_s
        self.wanted: dict[str, Wanted] = {}
        #: Keys that start so are this Engine's; set once it knows of every process it wants.
        self.tidy_prefix = ""
        self.guest: Guest | None = None
        self.channel = Channel(
            host,
            root,
            self._greet,
            self._down,
            self._event,
            busy=lambda: bool(self.wanted or (self.guest and self.guest.is_busy())),
            speaks_every_s=probe_every_s,
        )
        self._clock_offset = 0.0
        self._outbox: list[Wanted] = []
        self._flushing = False
        self._staged: dict[str, asyncio.Task[None]] = {}
        #: Snapshots that are on their way.
        self.sending: dict[str, Sending] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    # --- what the backend asks ---------------------------------------------------------------

    @property
    def link(self) -> Link | None:
        return self.channel.link

    @property
    def error(self) -> HostError | None:
        return self.channel.error

    async def reach(self, timeout_s: float = 40.0, patient: bool = True) -> Link:
        return await self.channel.reach(timeout_s, patient)

    async def close(self) -> None:
        await self.channel.close()
        for task in list(self._tasks):
            task.cancel()

    def want(self, wanted: Wanted) -> None:
        if wanted.key in self.wanted:
            return
        self.wanted[wanted.key] = wanted
        if wanted.sent:
            # It may be there already (the Engine was restarted): the agent knows.
            if self.link is not None:
                self._spawn(self._reconcile(self.link, [wanted]))
        else:
            self._send_soon(wanted)

    def stop(self, key: str) -> None:
        wanted = self.wanted.get(key)
        if wanted is None or wanted.stop:
            return
        wanted.stop = True
        if self.link is not None:
            self._spawn(self._stop_now(self.link, [wanted]))
        elif not wanted.sent:
            self._end(wanted, Ending(cause="void", text="stopped before it started"))

    def go(self, keys: list[str]) -> None:
        if self.link is not None:
            self._spawn(self._quietly(self.link.ask("go", keys=keys)))

    def settle(self, key: str, ending: Ending) -> None:
        """Report an end that is certain without asking the machine; see to it when it answers."""
        wanted = self.wanted.get(key)
        if wanted is not None and not wanted.settled:
            wanted.settled = wanted.stop = True
            self._report_end(wanted, ending)
            if self.link is not None:
                self._spawn(self._stop_now(self.link, [wanted]))

    def let_go(self, key: str) -> None:
        wanted = self.wanted.get(key)
        if wanted is not None and not wanted.settled:
            del self.wanted[key]

    def forget_staged(self) -> None:
        """Snapshots there may be swept away: ask again before relying on one."""
        self._staged.clear()

    # --- the channel opens and breaks --------------------------------------------------------

    async def _greet(self, link: Link) -> None:
        self._clock_offset = link.hello.get("time", time.time()) - time.time()
        if abs(self._clock_offset) < 1.0:
            self._clock_offset = 0.0
        self._staged.clear()
        answer, _ = await link.ask("probe")
        self.on_probe(self, answer["raw"])
        await link.ask("watch", every_s=self.probe_every_s)
        await self._reconcile(link, [w for w in self.wanted.values() if w.sent])
        await self._tidy(link, answer["raw"])
        for wanted in list(self.wanted.values()):
            if not wanted.sent:
                self._send_soon(wanted)
        if self.guest is not None:
            await self.guest.greet(link)

    async def _tidy(self, link: Link, raw: dict[str, Any]) -> None:
        """Stop what runs there though nobody wants it: an attempt given up for lost, say."""
        if not self.tidy_prefix:
            return
        running = [key for key in raw.get("jobs") or () if key.startswith(self.tidy_prefix)]
        stale = [key for key in running if key not in self.wanted]
        if stale:
            await link.ask("stop", keys=stale)

    def _down(self, error: HostError) -> None:
        self.report(MachineGone(self.name))
        for wanted in list(self.wanted.values()):
            if not wanted.sent:
                # It never went out, so it can go elsewhere at once.
                text = f"{self.name} went away before it started"
                self._end(wanted, Ending(cause="void", text=text))
            elif time.time() - self.channel.since > self.lost_after_s and not wanted.settled:
                text = f"{self.name} has not answered for {format_duration(self.lost_after_s)}"
                self.settle(wanted.key, Ending(cause="lost", text=text, ended=time.time()))

    # --- making it true ----------------------------------------------------------------------

    async def _reconcile(self, link: Link, wanted: list[Wanted]) -> None:
        for at in range(0, len(wanted), _MANY):
            some = {w.key: w for w in wanted[at : at + _MANY]}
            answer, _ = await link.ask("observe", keys=list(some))
            for key, known in answer["states"].items():
                self._found(link, some[key], known)

    def _found(self, link: Link, wanted: Wanted, known: dict[str, Any]) -> None:
        state = known["state"]
        if state == "ended":
            self._end(wanted, self._ending(known["ending"]))
        elif wanted.stop:
            self._spawn(self._stop_now(link, [wanted]))
        elif state == "running":
            # Without a time it is still being prepared: its start will be told.
            if known.get("started"):
                self._started(wanted, known["started"])
        elif state == "held":
            self._hold(wanted)
        elif wanted.order is None and not wanted.started:
            self._spawn(self._stop_now(link, [wanted]))
        elif wanted.started:
            text = f"{self.name} answers, but knows nothing of it"
            self._end(wanted, Ending(cause="lost", text=text, ended=time.time()))
        else:
            self._send_soon(wanted)

    def _send_soon(self, wanted: Wanted) -> None:
        """Collect what is to be started in this turn of the loop, and send it in one message."""
        self._outbox.append(wanted)
        if not self._flushing and self.link is not None:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        link, outbox = self.link, self._outbox
        if link is None:
            self._outbox = []
            return
        self._outbox = []
        groups: dict[tuple[str, ...], list[Wanted]] = {}
        for wanted in outbox:
            if self.wanted.get(wanted.key) is wanted and not wanted.stop:
                groups.setdefault(wanted.snapshots, []).append(wanted)
        for snapshots, some in groups.items():
            if all(self._is_staged(snapshot) for snapshot in snapshots):
                self._send(link, some)
            else:
                self._spawn(self._stage_and_send(link, snapshots, some))

    async def _stage(self, link: Link, snapshot: str) -> None:
        sending = self.sending[snapshot] = Sending()
        try:
            await stage(link, self.blobs, snapshot, sending)
        finally:
            self.sending.pop(snapshot, None)

    def _is_staged(self, snapshot: str) -> bool:
        task = self._staged.get(snapshot)
        return task is not None and task.done() and not task.cancelled() and not task.exception()

    async def bring(self, link: Link, snapshots: tuple[str, ...]) -> None:
        """After this they are on the machine."""
        for snapshot in snapshots:
            task = self._staged.get(snapshot)
            if task is None or (task.done() and not self._is_staged(snapshot)):
                task = self._staged[snapshot] = self._spawn(self._stage(link, snapshot))
            await asyncio.shield(task)

    async def _stage_and_send(
        self, link: Link, snapshots: tuple[str, ...], some: list[Wanted]
    ) -> None:
        try:
            await self.bring(link, snapshots)
        except AgentError as error:
            cause = "no_space" if error.code == "no_space" else "snapshot"
            for wanted in some:
                self._end(wanted, Ending(cause=cause, text=error.text, ended=time.time()))
            return
        except HostError:
            return
        self._send(link, [w for w in some if self.wanted.get(w.key) is w and not w.stop])

    def _send(self, link: Link, some: list[Wanted]) -> None:
        if link.closed or not some:
            return
        for at in range(0, len(some), _MANY):
            part = some[at : at + _MANY]
            orders = [wanted.order() for wanted in part if wanted.order is not None]
            for wanted in part:
                wanted.sent = True
            self._spawn(self._quietly(link.ask_soon("start", jobs=orders)))

    async def _stop_now(self, link: Link, some: list[Wanted]) -> None:
        """Forbid what has not started, stop what runs."""
        keys = [w.key for w in some]
        try:
            answer, _ = await link.ask("void", keys=keys)
            running = []
            for wanted in some:
                known = answer["states"][wanted.key]
                if known["state"] == "ended":
                    self._end(wanted, self._ending(known["ending"]))
                else:
                    running.append(wanted.key)
            if running:
                await link.ask("stop", keys=running)
        except (HostError, AgentError):
            return  # the channel broke: reconciling after the next greeting does it again

    # --- what the agent says -----------------------------------------------------------------

    def _event(self, header: dict[str, Any], blob: bytes) -> None:
        kind = header.get("event")
        if kind == "jobs":
            for key in header.get("held", ()):
                if wanted := self.wanted.get(key):
                    self._hold(wanted)
            for key, _, at in header.get("started", ()):
                if wanted := self.wanted.get(key):
                    self._started(wanted, at)
            for key, ending in header.get("ended", ()):
                if wanted := self.wanted.get(key):
                    self._end(wanted, self._ending(ending), _said(ending))
        elif kind == "probe":
            self.on_probe(self, header["raw"])
        elif self.guest is not None:
            self.guest.heard(header)

    def _hold(self, wanted: Wanted) -> None:
        wanted.held = True
        self.on_hold(wanted)

    def _started(self, wanted: Wanted, at: float) -> None:
        if not wanted.started and not wanted.settled:
            wanted.started = wanted.sent = True
            self.report(ProcessStarted(wanted.job, wanted.attempt, wanted.rank, self._here(at)))

    def _here(self, at: float | None) -> float:
        """A time of the machine's clock, in ours."""
        return at - self._clock_offset if at else 0.0

    def _ending(self, body: dict[str, Any]) -> Ending:
        return Ending(
            code=body.get("code"),
            signal=body.get("signal"),
            cause=body.get("cause") or "",
            text=body.get("text") or "",
            started=self._here(body.get("started")),
            ended=self._here(body.get("ended")) or time.time(),
            made=body.get("made", -1),
            out_size=body.get("out_size") or 0,
            err_size=body.get("err_size") or 0,
        )

    def _end(self, wanted: Wanted, ending: Ending, said: tuple[bytes, bytes] | None = None) -> None:
        if self.wanted.pop(wanted.key, None) is not None and not wanted.settled:
            self._report_end(wanted, ending, said)

    def _report_end(
        self, wanted: Wanted, ending: Ending, said: tuple[bytes, bytes] | None = None
    ) -> None:
        self.report(ProcessEnded(wanted.job, wanted.attempt, wanted.rank, ending, said))

    # --- small print -------------------------------------------------------------------------

    def _spawn(self, coroutine: Any) -> "asyncio.Task[Any]":
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._spawned)
        return task

    def _spawned(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, HostError | AgentError):
            log.error("machine %s", self.name, exc_info=error)

    async def _quietly(self, awaitable: Any) -> None:
        """What was asked is asked again by reconciling if the channel breaks meanwhile."""
        try:
            await awaitable
        except (HostError, AgentError):
            pass


def _said(ending: dict[str, Any]) -> tuple[bytes, bytes] | None:
    """What a job printed, where it came with its ending."""
    match ending.get("said"):
        case [str(out), str(err)]:
            return out.encode("latin-1", "replace"), err.encode("latin-1", "replace")
    return None
