"""Adding and removing clusters keeps everything else in the file as it was."""

import stat
from pathlib import Path

import pytest

from towline.config.edit import add_cluster, remove_cluster, set_default
from towline.config.load import load_config
from towline.config.settings import MachinesCluster, SlurmCluster
from towline.errors import ConfigError, NotFound, UsageError

BEFORE = """\
# My machines.
default_cluster = "a"   # the usual one

[clusters.a]
machines = ["x"]  # quiet

# Patience.
[engine]
grace_s = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def test_first_cluster_makes_the_file_for_this_user_alone(tmp_path: Path) -> None:
    file = tmp_path / "new" / "config.toml"
    add_cluster(
        str(file), "lab", MachinesCluster(["gpu1", "me@10.0.0.5:2222"], setup="source 'env'")
    )
    assert load_config(str(file)).clusters["lab"] == MachinesCluster(
        ["gpu1", "me@10.0.0.5:2222"], setup="source 'env'"
    )
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_slurm_is_added_by_its_access_node(file: Path) -> None:
    cedar = SlurmCluster("me@cedar", options={"mem": "16G", "exclusive": "true"})
    add_cluster(str(file), "cedar", cedar)
    assert load_config(str(file)).clusters["cedar"] == cedar
    assert "folder" not in file.read_text() and "links" not in file.read_text()
    with pytest.raises(UsageError, match="cannot be a machine"):
        add_cluster(str(file), "other", SlurmCluster("-oProxyCommand=evil"))
    assert list(load_config(str(file)).clusters) == ["local", "cedar"]


def test_comments_and_order_are_kept(file: Path) -> None:
    file.write_text(BEFORE)
    add_cluster(str(file), "lab", MachinesCluster(["gpu1"]))
    assert file.read_text().startswith(BEFORE)
    remove_cluster(str(file), "lab")
    assert file.read_text().rstrip("\n") == BEFORE.rstrip("\n")


@pytest.mark.parametrize(
    "text",
    [
        'clusters.a.machines = ["x"]\n',
        '[clusters]\na = { machines = ["x"] }\n',
        'clusters = { a = { machines = ["x"] } }\n',
        '[clusters.a]\nmachines = ["x"]',
    ],
)
def test_every_way_to_write_clusters_can_be_added_to(file: Path, text: str) -> None:
    file.write_text(text)
    add_cluster(str(file), "lab", MachinesCluster(["gpu1"], setup='say "hi"\n'))
    config = load_config(str(file))
    assert list(config.clusters) == ["local", "a", "lab"]
    assert config.clusters["lab"].setup == 'say "hi"\n'
    remove_cluster(str(file), "lab")
    assert list(load_config(str(file)).clusters) == ["local", "a"]


def test_file_behind_a_link_is_changed_and_keeps_its_mode(tmp_path: Path, file: Path) -> None:
    real = tmp_path / "dotfiles.toml"
    real.write_text(BEFORE)
    real.chmod(0o644)
    file.symlink_to(real)
    add_cluster(str(file), "lab", MachinesCluster(["gpu1"]))
    assert file.is_symlink()
    assert "lab" in load_config(str(real)).clusters
    assert stat.S_IMODE(real.stat().st_mode) == 0o644
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.toml", "dotfiles.toml"]


@pytest.mark.parametrize(
    ("name", "machines", "message"),
    [
        ("a", ["y"], "there is a cluster a already"),
        ("a b", ["y"], "cannot be the name of a cluster"),
        ("lab", [], "needs at least one machine"),
        ("lab", ["-oProxyCommand=x"], "cannot be a machine"),
        ("lab", ["y", "y"], "names y a second time"),
        ("local", ["y"], "`local` is this machine"),
    ],
)
def test_wrong_cluster_changes_nothing(
    file: Path, name: str, machines: list[str], message: str
) -> None:
    file.write_text(BEFORE)
    with pytest.raises(UsageError, match=message):
        add_cluster(str(file), name, MachinesCluster([*machines]))
    assert file.read_text() == BEFORE


def test_broken_file_is_not_touched(file: Path) -> None:
    file.write_text("x = = 1")
    with pytest.raises(ConfigError, match="line 1, column 5"):
        add_cluster(str(file), "lab", MachinesCluster(["gpu1"]))
    assert file.read_text() == "x = = 1"


def test_removing_what_is_not_there_or_is_the_default_is_refused(file: Path) -> None:
    file.write_text(BEFORE)
    with pytest.raises(NotFound, match="there is no cluster lab"):
        remove_cluster(str(file), "lab")
    with pytest.raises(UsageError, match="a is the default cluster"):
        remove_cluster(str(file), "a")
    assert file.read_text() == BEFORE


def test_cluster_whose_machine_is_called_like_another_one_changes_nothing(file: Path) -> None:
    text = '[clusters.a]\nmachines = [{ ssh = "me@x", name = "gpu1" }]\n'
    file.write_text(text)
    with pytest.raises(ConfigError, match="the machine name 'gpu1' stands for both me@x and gpu1"):
        add_cluster(str(file), "lab", MachinesCluster(["gpu1"]))
    assert file.read_text() == text


@pytest.mark.parametrize(
    "text",
    [
        '[clusters.lab]\nmachines = ["x"]\n',
        '# mine\n\n[clusters.lab] # this one\nmachines = ["x"]\n',
        'default_cluster = "local" # here\n[clusters.lab]\nmachines = ["x"]\n',
        '[clusters]\nlab = { machines = ["x"] }\n',
    ],
)
def test_default_cluster_is_chosen_and_the_rest_of_the_file_kept(file: Path, text: str) -> None:
    file.write_text(text)
    set_default(str(file), "lab")
    assert load_config(str(file)).default_cluster == "lab"
    for line in text.splitlines():
        assert line.replace('"local"', '"lab"') in file.read_text().splitlines()
    set_default(str(file), "local")
    assert load_config(str(file)).default_cluster == "local"
    before = file.read_text()
    with pytest.raises(NotFound, match="there is no cluster moon"):
        set_default(str(file), "moon")
    assert file.read_text() == before


def test_default_cluster_of_no_file_is_written_into_a_new_one(file: Path) -> None:
    set_default(str(file), "local")
    assert load_config(str(file)).default_cluster == "local"
