"""Fixtures for every test: real hosts, the real `tow` in a home of its own, a nasty folder."""

import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from testbed import own_home
from testbed.bringing_up import brought_up
from testbed.gridengine import GridEngine
from testbed.hosts import Hosts
from testbed.leftovers import stop_all
from testbed.slurm import Slurm
from testbed.tow import Tow

# `make quick` tries fewer random cases than `make test`.
# On a busy machine even making them may be slow, which is no fault.
settings.register_profile(
    "quick", max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)

#: Folders and files for `make test`, not for the inner loop: their tests start whole Engines or
#: agents, wait, try very many random cases, or are of commands that other systems had.
NOT_QUICK = {
    "e2e",
    "agent",
    "functions",
    "sweeps",
    "test_batch_live.py",
    "test_batches.py",
    "test_execute_combining.py",
    "test_execute_output.py",
    "test_files_come_and_go.py",
    "test_filesystem.py",
    "test_follow.py",
    "test_pace.py",
    "test_python_api.py",
    "test_python_page.py",
    "test_queue_machine.py",
    "test_random_trees.py",
    "test_scheduler_machine.py",
    "test_staging.py",
    "test_submit.py",
    "test_team_accounts.py",
    "test_tidied_machines.py",
}
#: Fixtures of hosts: each test has them as new.
REAL_HOSTS = ("hosts", "slurm", "gridengine")
#: Goes first, beside many tests that mostly wait: it takes longest, and would be alone at the end.
LONGEST = "test_slurm_kills.py"


def pytest_configure(config: pytest.Config) -> None:
    """Programs started in the background, or by nohup, would inherit that they hear no signal."""
    home = own_home.take()
    config.add_cleanup(lambda: own_home.give_back(home))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The inner loop does not even read what it does not run."""
    quick = "not slow" in config.getoption("markexpr")
    return True if quick and collection_path.name in NOT_QUICK else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if NOT_QUICK & set(item.path.parts):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: item.path.name != LONGEST)


@pytest.fixture(autouse=True)
def the_same_signals() -> Iterator[None]:
    """What a test keeps back, as whoever claims an attempt does, is heard again by the next one."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.fixture(scope="session")
def hosts() -> Iterator[Hosts]:
    """Four ssh hosts h1 to h4, and in1 behind h1; as new for every test."""
    yield from brought_up(Hosts())


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    """A Slurm with its access node `cedar` and the nodes h2 to h4; as new for every test."""
    yield from brought_up(Slurm())


@pytest.fixture(scope="session")
def gridengine() -> Iterator[GridEngine]:
    """A Grid Engine with its head node `msc` and the hosts h2 and h3; as new for every test."""
    yield from brought_up(GridEngine())


@pytest.fixture(autouse=True)
def _hosts_as_new_afterwards(request: pytest.FixtureRequest) -> Iterator[None]:
    # Made before the other fixtures of a test, so it ends after the Engine that uses the hosts.
    names = [name for name in REAL_HOSTS if name in request.fixturenames]
    made: list[Hosts] = [request.getfixturevalue(name) for name in names]
    yield
    for hosts in made:
        hosts.restore()
        if "tow_home" in request.fixturenames:
            hosts.wipe()


@pytest.fixture
def tow_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty TOWLINE_HOME; everything that ran in it is ended afterwards."""
    # Not below tmp_path: the path of a unix socket has room for some 100 characters.
    home = Path(tempfile.mkdtemp(prefix="tow-", dir="/tmp"))
    monkeypatch.setenv("TOWLINE_HOME", str(home))
    try:
        yield home
    finally:
        stop_all(home)
        shutil.rmtree(home)


@pytest.fixture
def tow(request: pytest.FixtureRequest, tow_home: Path, tmp_path: Path) -> Iterator[Tow]:
    """The real `tow`; it knows the ssh hosts when the test asks for `hosts`, and none otherwise."""
    known = [name for name in REAL_HOSTS if name in request.fixturenames]
    ssh_config = request.getfixturevalue(known[0]).ssh_config if known else Path("/dev/null")
    folder = tmp_path / "project"
    folder.mkdir()
    tow = Tow(tow_home, ssh_config, folder)
    try:
        yield tow
    finally:
        tow.close()


@pytest.fixture
def weird_path(tmp_path: Path) -> Path:
    """An empty folder whose name breaks whatever quotes it wrongly."""
    path = tmp_path / 'it\'s "odd" $HOME `id`; *\n ünï 雪 -x'
    path.mkdir()
    return path
