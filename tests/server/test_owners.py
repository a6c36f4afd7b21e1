"""Whoever asks sees and changes what is their own: every endpoint, asked by three people."""

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.types import ASGIApp, Message, Scope

from engine.bench import play_on
from towline.backends.registry import make_backends
from towline.config.load import Configuration
from towline.config.paths import Paths
from towline.config.trust import Trusted
from towline.engine.engine import Engine
from towline.engine.intake import _Group
from towline.engine.parts import EngineParts
from towline.errors import NotFound
from towline.model.batch import Batch, Line
from towline.model.job import Attempt, Ending, Job, JobSpec, State
from towline.model.machine import Slot
from towline.model.principal import Principal
from towline.model.service import Service
from towline.server.app import make_app
from towline.server.peers import UID
from towline.server.rights import RIGHTS, Right
from towline.snapshot.blobs import BlobStore
from towline.store.store import Store
from towline.workspace.base import Submission
from towline.workspace.local import LocalWorkspace

ROOT, ANN, BEN = range(3)
PEOPLE = [Principal("root", administrator=True), Principal("ann"), Principal("ben")]
#: Names no job: it makes new ones, for whoever asks.
MAKE = {"/v1/run", "/v1/jobs", "/v1/plan", "/v1/batches"}
#: Lists, and how they are asked for; ann's have her word in them.
LISTS = {
    "/v1/jobs": "?all=1",
    "/v1/batches": "?all=1",
    "/v1/forwards": "",
    "/v1/services": "",
    "/v1/events": "?since=0&follow=0",
    "/v1/named": "?name=anns",
}
#: What has to follow the path of some others.
QUERIES = {
    "/v1/batches/{name:str}/follow": "?since=0",
    "/v1/jobs/{job_id:int}/connect": "?port=80",
}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/jobs/remove": {"ids": [1], "batches": ["anns"]},
    "exec": {"argv": ["true"]},
    "forward": {"port": 8888},
    "fetch": {"files": []},
    "more": {"lines": [{"argv": ["true"]}]},
}


class House:
    """An Engine with jobs, a batch, a port and a service of ann's; its machines are away."""

    def __init__(self, folder: Path) -> None:
        paths = Paths(str(folder), str(folder / "config.toml"), str(folder / "engine.sock"))
        self.engine = Engine(Store(paths.store_file))
        blobs = BlobStore(str(folder / "blobs"))
        backends = make_backends("e", self.engine.report, blobs, lambda _: None, 60.0)
        configuration = Configuration(paths.config_file, Trusted(paths.trusted))
        workspace = LocalWorkspace(configuration, blobs, paths.home)
        self.parts = EngineParts(self.engine, backends, paths, workspace)
        self.app: ASGIApp = make_app(self.parts, workspace, PEOPLE.__getitem__, lambda: None)
        self.running = asyncio.create_task(self.engine.run())
        self.port = 0

    async def fill(self) -> None:
        spec = JobSpec(argv=("anns",), cluster="lab", owner="ann", title="anns", folder="/anns")
        served = JobSpec(
            argv=("anns",), cluster="lab", owner="ann", services=(Service("anns", "serve"),)
        )
        slots = (Slot("gpu1", ()),)
        over = Attempt(1, slots, endings={0: Ending(code=0, started=1.0)})
        now = time.time()
        done = Job(1, spec, State.DONE, submitted=now, ended=now, attempt=over)
        going = Job(2, served, State.RUNNING, submitted=now, started=now, attempt=Attempt(1, slots))
        store = self.engine.store
        list(store.new_ids(3))
        store.commit({1: done, 2: going}, {1, 2}, (), now)
        batch = Batch("anns", spec, 3, 1, now, stopped=True)
        store.batches.add(batch, [Line(argv=("anns",), number=1, title="anns")])
        self.parts.services.noticed([going])
        self.port = await self.parts.forwards.add(PEOPLE[ANN], 1, 8888)

    async def ask(self, who: int, method: str, target: str, body: Any = None) -> tuple[int, bytes]:
        """The status and all of the answer."""
        parts = urlsplit(target)
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": parts.path,
            "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(),
            "headers": [],
            "state": {UID: who},
        }
        left = [json.dumps(body or {}).encode()]
        status, answer = 0, bytearray()

        async def receive() -> Message:
            if not left:
                await asyncio.get_running_loop().create_future()
            return {"type": "http.request", "body": left.pop(), "more_body": False}

        async def send(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            answer.extend(message.get("body", b""))

        await self.app(scope, receive, send)
        return status, bytes(answer)

    def target(self, path: str) -> str:
        named = {"job_id": "1", "name": "anns", "local": str(self.port)}
        return re.sub(r"{(\w+):\w+}", lambda found: named[found[1]], path)

    async def close(self) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        await self.parts.close()


def own(method: str) -> list[str]:
    """The paths of what anybody may do with their own."""
    return [path for (m, path), right in RIGHTS.items() if m == method and right is Right.OWN]


def body_for(path: str) -> dict[str, Any]:
    several = {"/v1/jobs/stop", "/v1/jobs/retry", "/v1/jobs/hold", "/v1/jobs/release"}
    return (
        {"ids": [1]}
        if path in several
        else BODIES.get(path) or BODIES.get(path.rpartition("/")[2], {})
    )


def test_what_is_anothers_is_not_there_whatever_is_asked_of_it(tmp_path: Path) -> None:
    async def scenario(house: House) -> None:
        await house.fill()
        asked = 0
        for method in ("GET", "PUT", "DELETE", "POST"):
            for path in own(method):
                if (method == "GET" and path in LISTS) or (method == "POST" and path in MAKE):
                    continue
                target = house.target(path)
                assert "{" in path or body_for(path), path
                target += QUERIES.get(path, "")
                status, answer = await house.ask(BEN, method, target, body_for(path))
                assert status == 404, (method, path, status, answer)
                assert json.loads(answer)["error"]["code"] == "not_found", (method, path)
                asked += 1
        assert asked > 20
        assert house.engine.job(1).state is State.DONE
        assert house.parts.forwards.list(PEOPLE[ANN]) == [
            {"job": 1, "port": 8888, "local": house.port}
        ]

    play_on(lambda: House(tmp_path), scenario, seconds=60)


def test_lists_events_ports_and_services_are_ones_own_and_an_administrators_are_all(
    tmp_path: Path,
) -> None:
    async def scenario(house: House) -> None:
        await house.fill()
        assert LISTS.keys() | {"/v1/jobs"} >= {path for path in own("GET") if "{" not in path}
        for path, query in LISTS.items():
            word = b'"local"' if path == "/v1/forwards" else b"anns"
            for who in (ANN, ROOT):
                status, answer = await house.ask(who, "GET", path + query)
                assert (status, word in answer) == (200, True), (path, who, answer)
            status, answer = await house.ask(BEN, "GET", path + query)
            if path == "/v1/named":
                assert status == 404
                continue
            assert (status, word in answer) == (200, False), (path, answer)

    play_on(lambda: House(tmp_path), scenario, seconds=60)


def test_an_owner_closes_the_own_port_and_follows_the_own_events(tmp_path: Path) -> None:
    async def scenario(house: House) -> None:
        await house.fill()
        status, _ = await house.ask(ANN, "DELETE", f"/v1/forwards/{house.port}")
        assert (status, len(house.parts.forwards)) == (200, 0)
        # What is ben's comes between; each is told of their own, and of nothing else.
        bens = JobSpec(argv=("bens",), cluster="lab", owner="ben", title="bens")
        await house.engine.submit([bens])
        for who, mine, others in ((ANN, b'"ann"', b'"ben"'), (BEN, b'"ben"', b'"ann"')):
            status, answer = await house.ask(who, "GET", "/v1/events?since=0&follow=0")
            assert (mine in answer, others in answer) == (True, False)

    play_on(lambda: House(tmp_path), scenario, seconds=60)


def test_nobody_continues_from_what_another_keeps(tmp_path: Path) -> None:
    async def scenario(house: House) -> None:
        await house.fill()
        group = _Group(house.parts.intake, PEOPLE[BEN])
        spec = JobSpec(argv=("true",), cluster="lab", owner="ben")
        with pytest.raises(NotFound, match="no job 1"):
            await group.complete(Submission(spec, continued=1))

    play_on(lambda: House(tmp_path), scenario, seconds=60)
