"""Which machines are driven: each once, whatever it is called.

What tells two of them apart is where they are: what ssh is given, and the folder over there. A name
is for people. Two that are called alike get names that differ; one that has two names is counted
once; and a name that is configured anew leads to the new place at once, while the jobs that run at
the old one stay with it.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from towline.backends.base import Report
from towline.backends.machines.driver import Driver
from towline.backends.machines.silence import TICK_S, AwakeClock
from towline.backends.machines.wanted import WantedProcess
from towline.backends.membership import Membership
from towline.backends.tasks import Tasks
from towline.core.samples import Use
from towline.errors import HostError, NoNetwork
from towline.model.events import MachineRemoved, MachineSeen
from towline.model.identity import is_one
from towline.model.job import Job
from towline.model.machine import Machine, Slot
from towline.probes.machine import closed_at, observe
from towline.probes.use import used_by_jobs
from towline.snapshot.blobs import BlobStore


def minute_of_week(local: time.struct_time) -> int:
    return (local.tm_wday * 24 + local.tm_hour) * 60 + local.tm_min


class Roster:
    def __init__(
        self, engine_id: str, report: Report, blobs: BlobStore, probe_every_s: float
    ) -> None:
        self.engine_id = engine_id
        self.report = report
        self.blobs = blobs
        self.probe_every_s = probe_every_s
        self.members: dict[str, Membership] = {}
        self.drivers: dict[str, Driver] = {}
        #: The last observation of each machine.
        self.seen: dict[str, Machine] = {}
        #: Names of machines that are another one too -> the name that counts.
        self.twins: dict[str, str] = {}
        self._raw: dict[str, dict[str, Any]] = {}
        #: Where a machine is -> its name.
        self._names: dict[str, str] = {}
        self._tasks = Tasks("machines")
        self._awake = AwakeClock(time.monotonic())
        self._looks_at_clock = False
        #: Told what our processes use on a machine, by their keys.
        self.on_use: Callable[[dict[str, Use]], None] = lambda uses: None
        #: Makes a machine known again that an earlier Engine used.
        self.find_machine: Callable[[Slot], None] = lambda slot: None
        #: A machine as it may be used, where others than the configuration say that.
        self.used_as: Callable[[Machine], Machine] = lambda machine: machine
        #: What a job may see of a team's data on a machine; None: nothing.
        self.data_for: Callable[[Job, Slot], dict[str, Any] | None] = lambda job, slot: None

    def _held(self, wanted: WantedProcess) -> None:
        """A process waits for its sisters."""
        raise NotImplementedError

    # --- who is who --------------------------------------------------------------------------

    def driver_of(self, slot: Slot) -> Driver | None:
        """Of the machine that a process was given; an older version noted only its name."""
        return self.driver_at(slot.target) if slot.target else self.drivers.get(slot.machine)

    def driver_at(self, target: str) -> Driver | None:
        return self.drivers.get(self._names.get(target, ""))

    def other_names(self, name: str) -> list[str]:
        """Those that count as this one."""
        return [other for other, counts in self.twins.items() if counts == name]

    def machines_in(self, cluster: str) -> list[Driver]:
        members = self.members.items()
        names = [name for name, member in members if cluster in member.clusters]
        return [self.drivers[name] for name in names if name in self.drivers]

    def join(self, cluster: str, members: Iterable[Membership]) -> None:
        """Make `members` the machines of a cluster; connections that exist are kept."""
        members = list(members)
        targets = {member.target for member in members}
        for name, known in list(self.members.items()):
            if cluster in known.clusters and known.target not in targets:
                self._leave(cluster, name)
        for member in members:
            self._rename(cluster, member)
            known = self.watch(member)
            known.limits, known.owners, known.aliases = member.limits, member.owners, member.aliases
            known.clusters.add(cluster)
            self.drivers[known.host.name].lost_after_s = member.lost_after_s
            self._announce(known.host.name)

    def watch(self, member: Membership) -> Membership:
        """Drive a machine, in a cluster or not; as what it is known."""
        name = self._name_for(member)
        member = self.members.setdefault(name, member)
        if name not in self.drivers:
            self.drivers[name] = Driver(
                member.host,
                member.root,
                self.blobs,
                self.report,
                self._held,
                self._probed,
                self.probe_every_s,
                member.lost_after_s,
                self._listens,
            )
        self.drivers[name].channel.open()
        if not self._looks_at_clock:
            self._looks_at_clock = True
            self._tasks.spawn(self._stay_awake(), lambda error: None)
        return member

    def _name_for(self, member: Membership) -> str:
        """The name of a machine: its own, if no other machine that matters has it."""
        if known := self._names.get(member.target):
            return known
        name = member.host.name
        if name in self.members and self._matters(name):
            place = member.host.place
            others = [f"{name}~{place}"] if place != name else []
            others += [f"{name}~{number}" for number in range(2, len(self.members) + 3)]
            name = next(other for other in others if other not in self.members)
        elif name in self.members:
            self._drop(name)
        member.host.name = name
        self._names[member.target] = name
        return name

    def _rename(self, cluster: str, member: Membership) -> None:
        """Let go of a machine that is called otherwise now, if nobody knows it by its old name."""
        known = self._names.get(member.target, member.host.name)
        if known == member.host.name or self.drivers[known].wanted or self.drivers[known].guest:
            return
        if self.members[known].clusters <= {cluster} and not self.members[known].kept:
            self._drop(known)

    def _matters(self, name: str) -> bool:
        member, driver = self.members[name], self.drivers[name]
        return bool(member.kept or member.clusters or driver.wanted or driver.guest)

    def leave(self, cluster: str) -> None:
        for name in [n for n, member in self.members.items() if cluster in member.clusters]:
            self._leave(cluster, name)

    def _leave(self, cluster: str, name: str) -> None:
        self.members[name].clusters.discard(cluster)
        if not self.forget(name):
            self._announce(name)

    def forget(self, name: str) -> bool:
        """Let go of a machine, unless a cluster or a job needs it."""
        if name not in self.drivers or self.members[name].clusters or self.drivers[name].wanted:
            return False
        self._drop(name)
        return True

    def _drop(self, name: str) -> None:
        driver = self.drivers.pop(name)
        self._names.pop(self.members.pop(name).target, None)
        self.seen.pop(name, None)
        self.twins.pop(name, None)
        self.report(MachineRemoved(name))
        self._tasks.spawn(driver.close(), lambda error: None)

    async def close(self) -> None:
        await asyncio.gather(*(driver.close() for driver in self.drivers.values()))
        self._tasks.close()

    # --- who is awake ------------------------------------------------------------------------

    async def _stay_awake(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._awake.tick(time.monotonic())

    def _listens(self, driver: Driver, error: HostError) -> tuple[float, bool]:
        """How long we have been awake, and whether an error can be the machine's own silence.

        Where we have no network of our own, only others that answer say that we do.
        """
        others = (
            other
            for other in self.drivers.values()
            if other is not driver and other.host.login() is not None
        )
        heard = any(other.link is not None for other in others)
        return self._awake.tick(time.monotonic()), heard or not isinstance(error, NoNetwork)

    # --- what they have ----------------------------------------------------------------------

    def _probed(self, driver: Driver, raw: dict[str, Any]) -> None:
        self._raw[driver.name], previous = raw, self._raw.get(driver.name)
        if previous is not raw:
            self.on_use(used_by_jobs(raw, previous, self.engine_id))
        member = self.members.get(driver.name)
        if member is None or driver.link is None:
            return
        minute = minute_of_week(time.localtime())
        held = [index for wanted in driver.wanted.values() for index in wanted.gpus]
        seen = observe(
            raw,
            previous,
            driver.link.hello,
            limits=member.limits,
            name=driver.name,
            clusters=self.clusters_of(driver.name),
            owners=member.owners,
            aliases=member.aliases,
            before=self.seen.get(driver.name),
            ours=dict.fromkeys(held, True),
            engine=self.engine_id,
            own={key for key, wanted in driver.wanted.items() if not wanted.settled},
            minute=minute,
        )
        identity = driver.identity if driver.host.login() else None  # we are never another one
        seen = replace(seen, target=member.target, identity=identity)
        if driver.host.login() is None:
            # Whoever sits at this machine knows what it is busy with and wants the job now.
            closed = closed_at(member.limits, minute)
            seen = replace(seen, foreign_cpus=0.0, claimed_cpus=0.0, claimed_by="", closed=closed)
        self._show(driver, self.used_as(seen))

    def _show(self, driver: Driver, seen: Machine) -> None:
        """Let the core see a machine; one that it sees already, under another name, only once."""
        before = self.twins.pop(driver.name, None)
        twin = self._twin_of(driver)
        if twin is None:
            self.seen[driver.name] = seen
            self.report(MachineSeen(seen))
            return
        self.twins[driver.name] = twin
        self.seen.pop(driver.name, None)
        if driver.wanted:
            # Its jobs are counted where they are; it takes no more.
            closed = f"is {twin} under another name"
            self.report(MachineSeen(replace(seen, clusters=(), closed=closed)))
        else:
            self.report(MachineRemoved(driver.name))
        if before != twin:
            self._announce(twin)

    def _twin_of(self, driver: Driver) -> str | None:
        """The name under which a machine, and the same account on it, is in use already."""
        if driver.host.login() is None:
            return None
        for name in self.seen:
            other = self.drivers.get(name)
            if other is None or other is driver or other.link is None or driver.link is None:
                continue
            same = other.root == driver.root and name not in self.twins
            user = other.link.hello.get("user") == driver.link.hello.get("user")
            remote = other.host.login() is not None
            if same and user and remote and is_one(other.identity, driver.identity):
                return name
        return None

    def clusters_of(self, name: str) -> tuple[str, ...]:
        """Those of a machine under all its names."""
        names = [name, *self.other_names(name)]
        found = (self.members[one].clusters for one in names if one in self.members)
        return tuple(sorted(set[str]().union(*found)))

    def announce_all(self, cluster: str) -> None:
        """What may be used of a cluster's machines changed: tell the core."""
        for driver in self.machines_in(cluster):
            self._announce(driver.name)

    def _announce(self, name: str) -> None:
        """Its clusters changed: tell the core, from the last observation."""
        name = self.twins.get(name, name)
        if name in self.seen and self.drivers[name].link is not None:
            self._probed(self.drivers[name], self._raw[name])
