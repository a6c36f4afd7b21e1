"""Hydra's own suites for launchers, on this machine."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.test_utils.launcher_common_tests import (
    BatchedSweeperTestSuite,
    IntegrationTestSuite,
    LauncherTestSuite,
)
from hydra.test_utils.test_utils import TSweepRunner

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


def test_values_come_in_the_order_of_the_overrides(
    hydra_sweep_runner: TSweepRunner, tmpdir: Path
) -> None:
    def wait_for(config: Any) -> float:
        time.sleep(config.seconds)
        return float(config.seconds)

    words = ["hydra/launcher=clusterduck_local", "hydra.launcher.wait_for_completion=true"]
    words += ["hydra.launcher.parallel_runs_per_node=2", "+seconds=0.6,0.05,0.1"]
    sweep = hydra_sweep_runner(
        calling_file=None,
        calling_module="hydra.test_utils.a_module",
        task_function=wait_for,
        config_path="configs",
        config_name="compose.yaml",
        overrides=words,
        temp_dir=tmpdir,
    )
    with sweep:
        assert sweep.returns is not None
        assert [one.return_value for one in sweep.returns[0]] == [0.6, 0.05, 0.1]
        assert [one.hydra_cfg.hydra.job.num for one in sweep.returns[0]] == [0, 1, 2]


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
