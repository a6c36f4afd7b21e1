"""The worlds in which backends keep what `backends/contract.py` promises: one small class each."""

import asyncio
import itertools
import os
import secrets
from pathlib import Path

from backends.scripts import Await, Exit, Make, Say, Script, Serve, Step
from towline.backends.base import Backend
from towline.backends.fake import FakeBackend, FakeMachines, Process
from towline.backends.membership import Membership
from towline.backends.registry import QUEUES, make_backends
from towline.backends.router import Backends
from towline.hosts.base import Host
from towline.hosts.local import LocalHost
from towline.hosts.ssh import SshHost
from towline.model.events import Fact
from towline.model.grammar import parse_request
from towline.model.job import Attempt, Ending, Job, JobSpec, Queueing, State
from towline.model.machine import Slot
from towline.probes.machine import ConfiguredLimits
from towline.snapshot.blobs import BlobStore

CLUSTER = "there"
_numbers = itertools.count(1)


def a_job(script: Script, slots: list[Slot], queue: Queueing | None = None) -> Job:
    request = f"{len(slots)}:[]" if len(slots) > 1 else "[]"
    argv = ("sh", "-c", str(script))
    spec = JobSpec(
        argv=argv, cluster=CLUSTER, owner="me", request=request, grace_s=2.0, queue=queue
    )
    attempt = Attempt(1, tuple(slots), token=secrets.token_hex(4))
    return Job(next(_numbers), spec, State.STARTING, submitted=1.0, attempt=attempt)


class FakeWorld:
    """Everything is in memory; what jobs do is played step by step."""

    def __init__(self) -> None:
        self.there = FakeMachines()
        self._scripts: dict[int, Script] = {}
        self._playing: set[asyncio.Task[None]] = set()
        self._begin()

    def _begin(self) -> None:
        self.facts: list[Fact] = []
        self.fake = FakeBackend(self.facts.append, self.there, self._begun, self._run)
        self.backend: Backend = self.fake

    def job(self, script: Script, processes: int = 1) -> Job:
        job = a_job(script, [Slot("m1"), Slot("m2")][:processes])
        self._scripts[job.id] = script
        return job

    async def kill(self) -> None:
        self._begin()

    async def cut(self) -> None:
        pass

    async def close(self) -> None:
        for task in self._playing:
            task.cancel()

    def _begun(self, job: Job, process: Process) -> None:
        playing = asyncio.get_running_loop().create_task(self._play(job, process))
        self._playing.add(playing)

    async def _play(self, job: Job, process: Process) -> None:
        for step in self._scripts[job.id].steps:
            if process not in self.there.running:
                return
            await self._do(process, step)
        if process in self.there.running:
            self.fake.end(*process, Ending(code=0))

    async def _do(self, process: Process, step: Step) -> None:
        files = self.there.files.setdefault(process, {})
        match step:
            case Say(text, stream):
                self.fake.print(process, f"{text}\n".encode(), stream)
            case Make(path, text):
                files[path] = text.encode()
            case Serve(text):
                self.there.ports[4711] = text.encode()
                files["port"] = b"4711"
            case Await(path):
                while path not in files and process in self.there.running:
                    await self.there.news.wait()
            case Exit(code):
                self.fake.end(*process, Ending(code=code))

    def _run(self, argv: list[str]) -> tuple[dict[str, bytes], Ending]:
        assert argv == ["sh", "-c", "echo beside; exit 4"]
        return {"out": b"beside\n"}, Ending(code=4)


class RealWorld:
    """Backends as an Engine makes them; `hosts` are the machines that they reach."""

    def __init__(self, folder: Path, root: str) -> None:
        self.folder = folder
        self.root = root
        self.engine_id = secrets.token_hex(4)
        self._begin()

    def hosts(self) -> list[Host]:
        raise NotImplementedError

    def joined(self, backends: Backends, members: list[Membership]) -> None:
        backends.on_machines.join(CLUSTER, members)

    def _begin(self) -> None:
        self.facts: list[Fact] = []
        blobs = BlobStore(str(self.folder / "blobs"))
        backends = make_backends(self.engine_id, self.facts.append, blobs, lambda name: None, 5.0)
        members = [
            Membership(host, self.root, ConfiguredLimits(), 86400.0) for host in self.hosts()
        ]
        self.joined(backends, members)
        self.backends = backends
        self.backend: Backend = backends

    def job(self, script: Script, processes: int = 1) -> Job:
        names = [host.name for host in self.hosts()]
        return a_job(script, [Slot(names[at % len(names)]) for at in range(processes)])

    async def kill(self) -> None:
        await self.backends.close()
        self._begin()

    async def cut(self) -> None:
        """End the programs that the connections are."""
        for machine in self.backends.machines.values():
            link = await machine.reach()
            link.close()

    async def close(self) -> None:
        await self.backends.close()


class LocalWorld(RealWorld):
    """This machine."""

    def hosts(self) -> list[Host]:
        return [LocalHost()]


class SshWorld(RealWorld):
    """Machines that are reached by ssh."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self._names = names
        super().__init__(folder, "~/.towline")

    def hosts(self) -> list[Host]:
        return [SshHost(name, name, None, str(self.folder)) for name in self._names]


class QueueWorld(RealWorld):
    """A queue behind an access node, of one of the kinds that there are."""

    def __init__(self, folder: Path, kind: str, access_node: str, root: str) -> None:
        self.kind = kind
        self._access_node = access_node
        super().__init__(folder, root)

    def hosts(self) -> list[Host]:
        if self._access_node == "this":
            return [LocalHost(CLUSTER)]
        return [SshHost(CLUSTER, self._access_node, None, str(self.folder))]

    def joined(self, backends: Backends, members: list[Membership]) -> None:
        backends.on_machines.watch(members[0])
        backends.queues[self.kind].join(CLUSTER)

    def job(self, script: Script, processes: int = 1) -> Job:
        request = parse_request(f"{processes}:[]" if processes > 1 else "[]")
        words = QUEUES[self.kind].dialect.options(request, 0.0, {}, {})
        queue = Queueing(self.kind, tuple(map(tuple, words)))
        return a_job(script, [Slot(CLUSTER)] * processes, queue)


def with_commands(folder: Path) -> str:
    """PATH with the made-up commands before all others."""
    return f"{folder}:{os.environ['PATH']}"
