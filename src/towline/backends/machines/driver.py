"""One machine, driven: keep a channel open, make true over there what is wanted here.

The driver holds a table of the processes it wants on its machine. Whenever the channel opens
(first time, after a cut, after the Engine was killed) it asks the agent what it knows of them and
mends the difference: unknown ones are started, ended ones reported, unwanted ones stopped. So there
is one path for the ordinary case and for every fault.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec.structs import replace

from towline.agent.endings import read_ending, read_output
from towline.agent.link import Answer, Link
from towline.agent.messages import Clock
from towline.backends.base import Report
from towline.backends.machines.channel import Channel, ChannelGuest
from towline.backends.machines.distance import Distance
from towline.backends.machines.outbox import MANY, Outbox
from towline.backends.machines.recalls import Recalls
from towline.backends.machines.silence import Silence
from towline.backends.machines.upkeep import Upkeep
from towline.backends.machines.wanted import Said, WantedProcess, other_host, unheard_of
from towline.backends.staging.stage import Sending
from towline.backends.tasks import Tasks
from towline.errors import AgentError, HostError, Nonsense
from towline.hosts.base import Host
from towline.model.events import (
    MachineAway,
    MachineGone,
    ProcessEnded,
    ProcessSilent,
    ProcessStarted,
)
from towline.model.identity import Identity, identity_from, is_another
from towline.model.job import ABSENT, Ending
from towline.model.units import format_duration
from towline.snapshot.blobs import BlobStore

log = logging.getLogger("towline")

#: A stop that has not been seen to take effect is repeated after this time.
_STOP_AGAIN_S = 15.0


class Driver:
    """`report` takes facts, `on_hold` hears of processes that wait for their sisters, `on_probe` of
    what the machine measured; `listens` tells for how many seconds we have been awake, and whether
    an error can be the machine's own silence."""

    def __init__(
        self,
        host: Host,
        root: str,
        blobs: BlobStore,
        report: Report,
        on_hold: Callable[[WantedProcess], None],
        on_probe: Callable[["Driver", dict[str, Any]], None],
        probe_every_s: float,
        lost_after_s: float,
        listens: Callable[["Driver", HostError], tuple[float, bool]] = lambda driver, error: (
            time.monotonic(),
            True,
        ),
    ) -> None:
        self.name = host.name
        self.host = host
        self.root = root
        self.blobs = blobs
        self.report = report
        self.on_hold = on_hold
        self.on_probe = on_probe
        self.listens = listens
        self.silence = Silence()
        #: Which machine answers.
        self.identity: Identity | None = None
        self.probe_every_s = probe_every_s
        self.lost_after_s = lost_after_s
        self.wanted: dict[str, WantedProcess] = {}
        self.guest: ChannelGuest | None = None
        self.channel = Channel(
            host,
            root,
            self._greet,
            self._down,
            self._event,
            busy=lambda: bool(self.wanted or (self.guest and self.guest.is_busy())),
            speaks_every_s=probe_every_s,
            begin=self._begin,
        )
        self._clock = Clock()
        #: What the machine is asked before it has greeted: what it has, and to go on telling that.
        self._first: list[asyncio.Future[Answer]] = []
        self._tasks = Tasks(f"machine {host.name}")
        distance = Distance(lambda away_s: report(MachineAway(self.name, away_s)))
        self._outbox = Outbox(
            blobs, lambda: self.link, self._is_due, self._tasks, self._end, self.settle, distance
        )
        self._distance = distance
        self._recalls = Recalls(lambda: self.link, self._clock, self._spawn, self._end)

    # --- what the backend asks ---------------------------------------------------------------

    @property
    def link(self) -> Link | None:
        return self.channel.link

    @property
    def error(self) -> HostError | None:
        return self.channel.error

    async def reach(self, timeout_s: float = 40.0, patient: bool = True) -> Link:
        return await self.channel.reach(timeout_s, patient)

    @property
    def is_connected(self) -> bool:
        return self.link is not None

    async def upkeep(self, timeout_s: float) -> Upkeep:
        return Upkeep(await self.reach(timeout_s, patient=False), self.root)

    def jobs(self) -> set[int]:
        return {wanted.job for wanted in self.wanted.values()}

    async def close(self) -> None:
        await self.channel.close()
        self._tasks.close()

    def want(self, wanted: WantedProcess) -> None:
        if wanted.key in self.wanted:
            return
        self.wanted[wanted.key] = wanted
        if wanted.sent:
            # It may be there already (the Engine was restarted): the agent knows.
            if self.link is not None:
                self._spawn(self._reconcile(self.link, [wanted]))
        else:
            self._outbox.offer(wanted)
            if self.link is not None:
                self._check_place(wanted)

    def stop(self, key: str, now: bool = False) -> None:
        wanted = self.wanted.get(key)
        if wanted is None:
            return
        wanted.stop, wanted.kill = True, wanted.kill or now
        if self.link is not None:
            self._spawn(self._stop_now(self.link, [wanted]))
        elif not wanted.sent:
            self._end(wanted, Ending(cause="void", text="stopped before it started"))

    def recall(self, key: str) -> None:
        """Let one that was sent ahead come back, unless it has begun."""
        wanted = self.wanted.get(key)
        # Another machine under this name cannot say that it never began.
        if wanted and not wanted.stop and not is_another(wanted.identity, self.identity):
            self._recalls.ask(wanted)

    def go(self, keys: list[str]) -> None:
        if self.link is not None:
            # Those that do not hear of it void themselves.
            self._tasks.spawn(self.link.ask("go", keys=keys), lambda error: None)

    def settle(self, key: str, ending: Ending) -> None:
        """Report an end that is certain without asking the machine; see to it when it answers."""
        wanted = self.wanted.get(key)
        if wanted is not None and not wanted.settled:
            wanted.settled = wanted.stop = True
            self._report_end(wanted, ending)
            if self.link is not None:
                self._spawn(self._stop_now(self.link, [wanted]))

    def give_up(self, key: str) -> None:
        """Another attempt may be made; this one is only heard of, when its machine answers."""
        if wanted := self.wanted.get(key):
            wanted.given_up = True

    def let_go(self, key: str) -> None:
        wanted = self.wanted.get(key)
        if wanted is not None and not wanted.settled:
            del self.wanted[key]

    @property
    def sending(self) -> dict[str, Sending]:
        """Snapshots that are on their way."""
        return self._outbox.sending

    async def bring(self, link: Link, snapshots: tuple[str, ...]) -> None:
        """After this they are on the machine."""
        await self._outbox.bring(link, snapshots)

    def mended(self, snapshots: tuple[str, ...], ending: Ending) -> Ending:
        """Of a start that found its contents removed: they are sent anew, so it did not count."""
        if ending.cause != ABSENT:
            return ending
        cause = "void" if self._outbox.mend(snapshots) else "snapshot"
        return replace(ending, cause=cause)

    def expect(self, snapshot: str) -> None:
        """It may be needed soon: a machine that is not connected yet is asked for it first."""
        if self.link is None:
            self._outbox.expect(self.channel.dialled, snapshot)

    def forget_staged(self) -> None:
        """Snapshots there may be swept away: ask again before relying on one."""
        self._outbox.forget_staged()

    # --- the channel opens and breaks --------------------------------------------------------

    def _begin(self, link: Link) -> None:
        self._first = [link.ask_soon("probe"), link.ask_soon("watch", every_s=self.probe_every_s)]
        for answer in self._first:
            # Where the greeting fails, that is told, and nobody asks for these.
            answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._outbox.begin(link)

    async def _greet(self, link: Link) -> None:
        self._clock.set(link.hello)
        self.silence.answered()
        self._distance.forget()
        self.identity = identity_from(link.hello.get("identity") or {})
        for wanted in [w for w in self.wanted.values() if not w.sent]:
            self._check_place(wanted)
        # What it has of ours comes before what else it could take: it may have been given up.
        await self._reconcile(link, [w for w in self.wanted.values() if w.sent])
        seen, watched = self._first
        answer, _ = await seen
        self._first = []
        self.on_probe(self, answer["raw"])
        await watched
        for wanted in list(self.wanted.values()):
            if not wanted.sent:
                self._outbox.offer(wanted)
        if self.guest is not None:
            await self.guest.greet(link)

    def _check_place(self, wanted: WantedProcess) -> None:
        """What got its place on another machine, to which this name led before, goes back."""
        if is_another(wanted.identity, self.identity):
            text = f"{self.name} leads to another machine now"
            self._end(wanted, Ending(cause="void", text=text))

    def elsewhere(self, job: int) -> str:
        """Why nothing is heard of a job though the machine answers; empty where that is not so."""
        return unheard_of(job, self.wanted.values(), self.name, self.identity)

    def _down(self, error: HostError) -> None:
        self.report(MachineGone(self.name))
        self.silence.failed(*self.listens(self, error))
        too_long = self.silence.exceeds(self.lost_after_s)
        for wanted in list(self.wanted.values()):
            if not wanted.sent:
                # It never went out, so it can go elsewhere at once.
                text = f"{self.name} went away before it started"
                self._end(wanted, Ending(cause="void", text=text))
            elif too_long and not wanted.settled:
                text = f"{self.name} has not answered for {format_duration(self.silence.for_s)}"
                self.report(ProcessSilent(wanted.job, wanted.attempt, wanted.rank, text))

    # --- making it true ----------------------------------------------------------------------

    async def _reconcile(self, link: Link, wanted: list[WantedProcess]) -> None:
        for at in range(0, len(wanted), MANY):
            some = {w.key: w for w in wanted[at : at + MANY]}
            answer, _ = await link.ask("observe", keys=list(some))
            if unheard := some.keys() - answer["states"].keys():
                raise Nonsense(f"{self.channel.name}: says nothing of {min(unheard)}")
            for key, one in some.items():
                self._found(link, one, answer["states"][key])

    def _found(self, link: Link, wanted: WantedProcess, known: dict[str, Any]) -> None:
        state = known["state"]
        wanted.elsewhere = other_host(wanted, known, self.identity)
        if wanted.elsewhere:
            wanted.asked_at = time.monotonic()
            if wanted.stop and state == "elsewhere":
                self._spawn(self._leave_word(link, wanted))
        elif state == "ended":
            self._end(wanted, read_ending(known.get("ending"), self._clock))
        elif wanted.stop:
            self._spawn(self._stop_now(link, [wanted]))
        elif state == "running":
            # Without a time it is still being prepared: its start will be told.
            if known.get("started"):
                wanted.started = wanted.started and not wanted.given_up
                wanted.given_up = False
                self._started(wanted, known["started"])
        elif state == "held" and not wanted.given_up:
            self._hold(wanted)
        elif (wanted.order is None or wanted.given_up) and not wanted.started:
            self._spawn(self._stop_now(link, [wanted]))
        elif wanted.started:
            text = f"{self.name} answers, but knows nothing of it"
            self._end(wanted, Ending(cause="lost", text=text, ended=time.time()))
        elif wanted.ahead:
            # Whoever had to begin it is gone; and for what it waits, may be another's by now.
            self._recalls.ask(wanted)
        else:
            self._outbox.offer(wanted)

    def _is_due(self, wanted: WantedProcess) -> bool:
        return self.wanted.get(wanted.key) is wanted and not (wanted.stop or wanted.given_up)

    async def _stop_now(self, link: Link, some: list[WantedProcess]) -> None:
        """Forbid what has not started, stop what runs."""
        away = [w for w in some if is_another(w.identity, self.identity)]
        some = [w for w in some if not is_another(w.identity, self.identity)]
        keys = [w.key for w in some]
        for wanted in some:
            wanted.asked_at = time.monotonic()
        try:
            await self._reconcile(link, away)
            if not keys:
                return
            answer, _ = await link.ask("void", keys=keys)
            running: dict[bool, list[str]] = {}
            for wanted in some:
                known = answer["states"].get(wanted.key, {})
                if known.get("state") == "ended":
                    self._end(wanted, read_ending(known.get("ending"), self._clock))
                else:
                    if known.get("state") == "elsewhere":
                        wanted.elsewhere = known.get("host") or "another machine"
                    running.setdefault(wanted.kill, []).append(wanted.key)
            for kill, some_keys in running.items():
                await link.ask("stop", keys=some_keys, grace_s=0.0 if kill else None)
        except (HostError, AgentError) as error:
            # It is repeated: by reconciling after the next greeting, or in a while.
            log.warning("a stop on %s: %s", self.name, error)

    async def _leave_word(self, link: Link, wanted: WantedProcess) -> None:
        """Its own machine has the same home as this one: there it finds that it is to stop."""
        try:
            await link.ask("stop", keys=[wanted.key], grace_s=0.0 if wanted.kill else None)
        except (HostError, AgentError) as error:
            log.warning("a stop on %s: %s", self.name, error)

    def _repeat_stops(self) -> None:
        """Belt and braces: whatever became of a stop, it is asked for until the end is seen."""
        before = time.monotonic() - _STOP_AGAIN_S
        late = [w for w in self.wanted.values() if w.asked_at < before and w.sent]
        stops = [w for w in late if w.stop and not w.elsewhere]
        if stops and self.link is not None:
            self._spawn(self._stop_now(self.link, stops[:MANY]))
        away = [w for w in late if w.elsewhere]
        if away and self.link is not None:
            self._spawn(self._reconcile(self.link, away[:MANY]))

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
                    self._end(wanted, read_ending(ending, self._clock), read_output(ending))
        elif kind == "probe":
            # Before it has said what it has of ours, nothing more is for it.
            if not self._first:
                self.on_probe(self, header["raw"])
            self._repeat_stops()
        elif self.guest is not None:
            self.guest.heard(header)

    def _hold(self, wanted: WantedProcess) -> None:
        wanted.held = True
        self.on_hold(wanted)

    def _started(self, wanted: WantedProcess, at: Any) -> None:
        if not wanted.started and not wanted.settled:
            wanted.started = wanted.sent = True
            since = self._clock.here(at) or time.time()
            self.report(ProcessStarted(wanted.job, wanted.attempt, wanted.rank, since))

    def _end(self, wanted: WantedProcess, ending: Ending, said: Said = None) -> None:
        if self.wanted.pop(wanted.key, None) is not None and not wanted.settled:
            self._report_end(wanted, self.mended(wanted.snapshots, ending), said)

    def _report_end(self, wanted: WantedProcess, ending: Ending, said: Said = None) -> None:
        self.report(ProcessEnded(wanted.job, wanted.attempt, wanted.rank, ending, said))

    def _spawn(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._tasks.spawn(coroutine, self._begin_anew)

    def _begin_anew(self, error: Exception) -> None:
        """What was asked of the machine failed: what is wanted there is mended after the next
        greeting, as after every fault."""
        if self.link is not None:
            self.link.fail_for_nonsense(error)
