"""What is removed where and when: a real store, a real blob store, machines in memory."""

import io
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.bench import play_on
from towline.agent.link import Answer, Link
from towline.backends.base import Fleet
from towline.backends.clusters import Clusters
from towline.backends.machines.upkeep import Upkeep
from towline.backends.transfer.job_files import JobFiles
from towline.config.load import Configuration
from towline.config.paths import Paths
from towline.config.settings import SnapshotSettings
from towline.config.trust import Trusted
from towline.core.garbage import DAY_S, may_go
from towline.engine.cleaning.housekeeping import Housekeeping
from towline.engine.engine import Engine
from towline.engine.results.results import ResultsHome
from towline.errors import AgentError, ConfigError, HostError
from towline.model.job import Attempt, Job, JobSpec, State
from towline.model.machine import Slot
from towline.model.results import NOTHING, PENDING, at_home, not_fetched
from towline.model.results import ResultsState as Made
from towline.snapshot.blobs import BlobStore
from towline.snapshot.take import HashCache, take_snapshot
from towline.store.store import Store
from towline.workspace.local import LocalWorkspace

MB = 1024 * 1024


class FakeMachine:
    """A driver and its link in one: job folders by key, as (bytes, ended)."""

    def __init__(self, name: str = "gpu1") -> None:
        self.name = name
        self.folders: dict[str, tuple[int, bool]] = {}
        self.error: HostError | None = None
        self.asked: list[str] = []
        self.sweeps: list[dict[str, Any]] = []
        self.shrunk: list[str] = []
        self.is_connected = True
        self.host = SimpleNamespace(name=name)
        self.hello: dict[str, Any] = {}

    async def upkeep(self, timeout_s: float) -> Upkeep:
        if self.error:
            raise self.error
        return Upkeep(cast("Link", self), "/home/me")

    def forget_staged(self) -> None:
        self.asked.append("forget_staged")

    async def ask(self, op: str, **fields: Any) -> Answer:
        self.asked.append(op)
        return getattr(self, f"_{op}")(**fields), b""

    def _sizes(self, prefix: str, after: str) -> dict[str, Any]:
        # Two at a time, so that every test also goes through the parts.
        keys = sorted(key for key in self.folders if key.startswith(prefix) and key > after)
        return {"folders": [[k, *self.folders[k]] for k in keys[:2]], "more": len(keys) > 2}

    def _forget(self, keys: list[str]) -> dict[str, Any]:
        gone = [key for key in keys if self.folders[key][1]]
        for key in gone:
            del self.folders[key]
        return {"forgotten": gone}

    def _shrink(self, keys: list[str]) -> dict[str, Any]:
        self.shrunk += keys
        return {"bytes": 0}

    def _sweep(self, **fields: Any) -> dict[str, Any]:
        self.sweeps.append(fields)
        return {"snapshots": 1, "blobs": 3, "bytes": 7}


class House:
    """A Housekeeping with one machine, and a clock that the test moves."""

    def __init__(self, home: Path) -> None:
        self.paths = Paths(str(home), str(home / "config.toml"), str(home / "engine.sock"))
        self.now = time.time()
        self.idle = True
        self.store = Store(self.paths.store_file)
        self.engine = Engine(self.store, clock=lambda: self.now)
        self.machine = FakeMachine()
        self.blobs = BlobStore(str(home / "blobs"))
        self.fleet = SimpleNamespace(machines={"gpu1": self.machine}, blobs=self.blobs)
        clusters = SimpleNamespace(known=dict, knows=lambda name: True, rejoin=lambda names: None)
        configuration = Configuration(self.paths.config_file, Trusted(self.paths.trusted))
        self.workspace = LocalWorkspace(configuration, self.blobs, self.paths.home)
        self.housekeeping = Housekeeping(
            self.engine,
            cast("Fleet", self.fleet),
            cast("Clusters", clusters),
            self.paths,
            lambda: self.idle,
            self.workspace,
        )

    def add_job(
        self,
        days_ago: float | None,
        size_mb: float = 1,
        results: Made = NOTHING,
        snapshot: str = "",
    ) -> int:
        """A job with one folder on the machine; None: it still runs."""
        [number] = self.store.new_ids(1)
        spec = JobSpec(argv=("true",), cluster="lab", owner="me", snapshot=snapshot)
        ended = None if days_ago is None else self.now - days_ago * DAY_S
        job = Job(
            number,
            spec,
            state=State.RUNNING if ended is None else State.DONE,
            ended=ended,
            results=results,
            attempt=Attempt(1, (Slot("gpu1", ()),)),
        )
        self.store.commit({number: job}, {number}, (), self.now)
        self.machine.folders[self.key(number)] = (int(size_mb * MB), ended is not None)
        return number

    def key(self, number: int) -> str:
        return f"{self.store.engine_id}-{number}-1-0"

    def add_content(self, text: bytes, days_old: float) -> str:
        digest = self.blobs.put(io.BytesIO(text))[0]
        then = self.now - days_old * DAY_S
        os.utime(self.blobs.path(digest), (then, then))
        return digest

    async def close(self) -> None:
        self.engine.close()

    def jobs_there(self) -> list[int]:
        return sorted(int(key.split("-")[1]) for key in self.machine.folders)


Scenario = Callable[[House], Awaitable[None]]
Play = Callable[[Scenario], None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return lambda scenario: play_on(lambda: House(tmp_path), scenario, seconds=20)


def test_old_jobs_go_and_what_went_is_told(play: Play) -> None:
    async def scenario(house: House) -> None:
        old, kept = house.add_job(20, size_mb=3), house.add_job(1)
        house.add_job(None)
        done = await house.housekeeping.clean(dry_run=False)
        assert house.jobs_there() == [kept, 3]
        (machine,) = done["machines"]
        assert (machine["machine"], machine["jobs"], machine["folders"]) == ("gpu1", [old], 1)
        assert (machine["snapshots"], machine["blobs"]) == (1, 3)
        assert machine["bytes"] == 3 * MB + 7
        assert house.store.job(old) is not None

    play(scenario)


def test_dry_run_shows_the_same_and_removes_nothing(play: Play) -> None:
    async def scenario(house: House) -> None:
        old = house.add_job(20)
        content = house.add_content(b"unneeded", days_old=3)
        done = await house.housekeeping.clean(dry_run=True)
        assert done["machines"][0]["jobs"] == [old]
        assert done["here"]["blobs"] == 1
        assert house.jobs_there() == [old] and os.path.exists(house.blobs.path(content))
        assert house.machine.asked == ["sizes", "sweep"]
        assert house.machine.sweeps[0]["dry"] and house.machine.sweeps[0]["without"] == [
            house.key(old)
        ]

    play(scenario)


def test_the_configuration_says_how_long_and_how_much(play: Play) -> None:
    async def scenario(house: House) -> None:
        for days_ago in (5, 4, 1):
            house.add_job(days_ago, size_mb=10)
        config = Path(house.paths.config_file)
        config.write_text("[cleanup]\nkeep_mb = 15\n")
        assert (await house.housekeeping.clean(dry_run=True))["machines"][0]["jobs"] == [1, 2]
        config.write_text("[cleanup]\nafter_days = 4.5\n")
        assert (await house.housekeeping.clean(dry_run=True))["machines"][0]["jobs"] == [1]
        config.write_text("[cleanup]\nafter_days = -1\n")
        with pytest.raises(ConfigError, match="after_days"):
            await house.housekeeping.clean(dry_run=True)

    play(scenario)


def test_folders_of_another_engine_stay(play: Play) -> None:
    async def scenario(house: House) -> None:
        house.add_job(20)
        house.machine.folders["00ff00ff-1-1-0"] = (5, True)
        await house.housekeeping.clean(dry_run=False)
        assert list(house.machine.folders) == ["00ff00ff-1-1-0"]

    play(scenario)


def test_contents_are_not_relied_on_once_they_may_be_swept_away(play: Play) -> None:
    async def scenario(house: House) -> None:
        await house.housekeeping.clean(dry_run=False)
        assert house.machine.asked == ["sizes", "forget_staged", "sweep"]
        assert house.machine.sweeps[0]["unused_s"] == 14 * DAY_S

    play(scenario)


def test_results_that_could_not_be_fetched_keep_the_job_where_it_is(play: Play) -> None:
    async def scenario(house: House) -> None:
        async def refuse(*_: Any, **__: Any) -> Answer:
            raise AgentError("gpu1: no space left")

        def unread(*_: Any) -> JobFiles:
            return JobFiles(refuse)

        number = house.add_job(20, results=PENDING)
        machines = cast("Fleet", SimpleNamespace(files=unread, reach=refuse))
        receiver = house.workspace.receiver
        results = ResultsHome(house.engine, machines, receiver, house.paths.home)
        await house.housekeeping.clean(dry_run=False)
        results.resume()
        await results.settled(number)
        job = house.engine.job(number)
        assert "no space left" in job.results.why and not may_go(job, house.now)
        await house.housekeeping.clean(dry_run=False)
        assert house.jobs_there() == [number]

    play(scenario)


def test_contents_that_a_remembered_job_needs_stay_here(play: Play, tmp_path: Path) -> None:
    async def scenario(house: House) -> None:
        project = tmp_path / "project"
        project.mkdir()
        (project / "main.py").write_text("print(1)")
        taken = take_snapshot(str(project), SnapshotSettings(), HashCache(), house.blobs)
        house.add_job(400, snapshot=taken.id)
        needed = [taken.id, *taken.sizes]
        for digest in needed:
            os.utime(house.blobs.path(digest), (1.0, 1.0))
        unneeded = house.add_content(b"only looked at", days_old=3)
        fresh = house.add_content(b"on its way to a job", days_old=0.5)
        done = await house.housekeeping.clean(dry_run=False)
        assert done["here"] == {"blobs": 1, "bytes": len(b"only looked at")}
        there = [d for d in (*needed, unneeded, fresh) if os.path.exists(house.blobs.path(d))]
        assert there == [*needed, fresh]

    play(scenario)


def test_a_content_that_is_used_again_is_not_old_any_more(play: Play) -> None:
    async def scenario(house: House) -> None:
        digest = house.add_content(b"again", days_old=3)
        assert house.blobs.put_bytes(b"again") == digest
        await house.housekeeping.clean(dry_run=False)
        assert house.blobs.has(digest)

    play(scenario)


def test_what_is_submitted_again_is_not_old_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead_s = 0
    clock = SimpleNamespace(
        time=lambda: time.time() + ahead_s, time_ns=lambda: time.time_ns() + ahead_s * 10**9
    )
    monkeypatch.setattr("towline.snapshot.blobs.time", clock)
    folder, store = tmp_path / "project", BlobStore(str(tmp_path / "blobs"))
    folder.mkdir()
    (folder / "main.py").write_text("print(1)")
    cache = HashCache(now_ns=clock.time_ns)
    for ahead_s in (3600, 2 * 3600, 9 * 3600):
        taken = take_snapshot(str(folder), SnapshotSettings(), cache, store)
        for path in [store.path(digest) for digest in (taken.id, *taken.sizes)]:
            assert os.stat(path).st_mtime > time.time() - 3600
            if ahead_s == 2 * 3600:
                os.utime(path, (time.time() - 20 * 3600,) * 2)
    assert cache.reads == 1


def test_it_happens_by_itself_once_a_day_and_not_before_the_first_is_over(play: Play) -> None:
    async def scenario(house: House) -> None:
        old = house.add_job(20)
        await house.housekeeping.look()
        house.now += 0.9 * DAY_S
        await house.housekeeping.look()
        assert house.jobs_there() == [old]
        house.now += 0.2 * DAY_S
        await house.housekeeping.look()
        await house.housekeeping.look()
        assert house.jobs_there() == []
        assert house.machine.asked.count("sweep") == 1

    play(scenario)


def test_a_new_engine_knows_when_it_was_last_done(play: Play, tmp_path: Path) -> None:
    async def scenario(house: House) -> None:
        await house.housekeeping.look()
        house.now += 1.1 * DAY_S
        again = House(tmp_path)
        again.now = house.now
        await again.housekeeping.look()
        await house.housekeeping.look()
        assert (again.machine.asked.count("sweep"), house.machine.asked) == (1, [])
        again.engine.close()

    play(scenario)


def test_a_busy_engine_is_left_alone_for_a_second_day(play: Play) -> None:
    async def scenario(house: House) -> None:
        await house.housekeeping.look()
        house.idle = False
        house.now += 1.5 * DAY_S
        await house.housekeeping.look()
        assert house.machine.asked == []
        house.now += 1 * DAY_S
        await house.housekeeping.look()
        assert "sweep" in house.machine.asked

    play(scenario)


def test_nothing_happens_by_itself_when_switched_off_or_not_connected(play: Play) -> None:
    async def scenario(house: House) -> None:
        await house.housekeeping.look()
        house.now += 3 * DAY_S
        config = Path(house.paths.config_file)
        config.write_text("[cleanup]\nautomatic = false\n")
        await house.housekeeping.look()
        config.write_text("[cleanup]\nwrong = 1\n")
        await house.housekeeping.look()
        config.unlink()
        house.machine.is_connected = False
        await house.housekeeping.look()
        assert house.machine.asked == []

    play(scenario)


def test_everything_that_is_home_goes_when_that_is_asked_for(play: Play) -> None:
    async def scenario(house: House) -> None:
        gone = [house.add_job(0.001), house.add_job(0.0, results=at_home("/home/me/job_results/2"))]
        kept = [house.add_job(None), house.add_job(3, results=PENDING)]
        kept.append(house.add_job(3, results=not_fetched("no room")))
        done = await house.housekeeping.clean(dry_run=False, everything=True)
        assert done["machines"][0]["jobs"] == gone
        assert house.jobs_there() == kept

    play(scenario)


def test_what_stays_shrinks_once_it_is_home(play: Play) -> None:
    async def scenario(house: House) -> None:
        home = house.add_job(1, results=at_home("/home/me/job_results/1"))
        house.add_job(None)
        house.add_job(1, results=PENDING)
        await house.housekeeping.clean(dry_run=True)
        assert house.machine.shrunk == []
        await house.housekeeping.clean(dry_run=False)
        assert house.machine.shrunk == [house.key(home)]

    play(scenario)
