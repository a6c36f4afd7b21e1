"""Hydra's own suites for launchers, on this machine."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.test_utils.launcher_common_tests import (
    BatchedSweeperTestSuite,
    IntegrationTestSuite,
    LauncherTestSuite,
)

from hydra_plugins.clusterduck_launcher.clusterduck_launcher import ClusterDuckLocalLauncher
from hydra_plugins.towline_launcher.launcher import TowlineLauncher
from testbed.leftovers import stop_all

# Hydra's fixtures restore what was registered before the first of them.
Plugins.instance()
HERE = ["hydra.launcher.cluster=local"]


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """One Engine for all of them: starting one takes longer than a sweep."""
    home = Path(tempfile.mkdtemp(prefix="tow-", dir="/tmp"))
    try:
        yield home
    finally:
        stop_all(home)
        shutil.rmtree(home)


@pytest.fixture(autouse=True)
def _at_home(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TOWLINE_HOME", str(home))


def test_hydra_finds_the_launchers() -> None:
    found = {kind.__name__ for kind in Plugins.instance().discover(Launcher)}
    assert {TowlineLauncher.__name__, ClusterDuckLocalLauncher.__name__} <= found


@pytest.mark.parametrize("launcher_name, overrides", [("towline", HERE)])
class TestLauncher(LauncherTestSuite):
    """What any launcher does."""


@pytest.mark.parametrize(
    "launcher_name, overrides", [("towline", [*HERE, "hydra.sweeper.max_batch_size=2"])]
)
class TestBatches(BatchedSweeperTestSuite):
    """A sweep in several calls of the launcher."""


@pytest.mark.parametrize(
    "task_launcher_cfg, extra_flags", [({}, ["-m", "hydra/launcher=towline", *HERE])]
)
class TestIntegration(IntegrationTestSuite):
    """Applications as they are typed."""
