"""The user's file, the project's above it, and mistakes in either."""

import stat
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import fields

from towline.config.check import check_text
from towline.config.load import load_config, load_with_sources
from towline.config.settings import Config, MachineEntry, MachinesCluster, SlurmCluster
from towline.config.trust import anybody
from towline.errors import ConfigError

MACHINE_SETTINGS = [
    *("ssh", "name", "key", "max_cpus", "max_mem", "gpus", "folder", "owners"),
    *("stagger", "quiet_hours"),
]


@pytest.fixture
def user_file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "sub" / "deeper").mkdir(parents=True)
    return folder


def settings_of(struct: type[Struct]) -> str:
    return ", ".join(field.name for field in fields(struct))


def machines(config: Config, name: str) -> list[str]:
    cluster = config.clusters[name]
    assert isinstance(cluster, MachinesCluster)
    return [entry.label for entry in cluster.entries()]


def test_without_any_file_there_is_this_machine(user_file: Path, project: Path) -> None:
    config = load_config(str(user_file), str(project))
    assert config.default_cluster == "local"
    assert machines(config, "local") == ["this"]


def test_clusters_of_every_kind_are_read(user_file: Path) -> None:
    user_file.write_text(
        """
        default_cluster = "lab"
        [clusters.lab]
        machines = [
          "gpu1",
          { ssh = "me@10.0.0.5:2222", name = "five", cpus = 4, mem = "10G", gpus = [0] },
        ]
        setup = "source env/bin/activate"
        owners = ["ann"]
        [clusters.big]
        kind = "slurm"
        host = "login"
        options = { partition = "long", nice = 3 }
        [clusters.old]
        kind = "gridengine"
        [clusters.team]
        kind = "server"
        url = "https://tow.example.org"
        """
    )
    config = load_config(str(user_file))
    assert list(config.clusters) == ["local", "lab", "big", "old", "team"]
    assert [cluster.kind for cluster in config.clusters.values()] == [
        "machines",
        "machines",
        "slurm",
        "gridengine",
        "server",
    ]
    lab = config.clusters["lab"]
    assert isinstance(lab, MachinesCluster)
    shared: dict[str, Any] = {"folder": "~/.towline", "owners": ["ann"]}
    shared |= {"stagger": 0.25, "quiet_hours": ""}
    five = MachineEntry("me@10.0.0.5:2222", "five", max_cpus=4.0, max_mem="10G", gpus=[0], **shared)
    assert lab.entries() == [MachineEntry("gpu1", name="gpu1", **shared), five]
    assert config.clusters["big"] == SlurmCluster("login", "", {"partition": "long", "nice": 3})


def test_project_overrides_the_user_key_by_key(user_file: Path, project: Path) -> None:
    user_file.write_text(
        """
        default_cluster = "lab"
        [clusters.lab]
        machines = ["gpu1"]
        setup = "user's"
        [clusters.home]
        machines = ["nas"]
        [aliases]
        big = "A100"
        [defaults]
        time = "2h"
        retries = 1
        env = { A = "user", B = "user" }
        [snapshot]
        limit_mb = 10
        exclude = ["a"]
        """
    )
    (project / "towline.toml").write_text(
        """
        [clusters.field]
        machines = ["gpu2"]
        [aliases]
        small = "T4"
        [defaults]
        retries = 2
        env = { B = "project" }
        [snapshot]
        exclude = ["b"]
        """
    )
    folder = str(project / "sub" / "deeper")
    config, sources = load_with_sources(str(user_file), folder, anybody)
    assert machines(config, "lab") == ["gpu1"]
    assert machines(config, "field") == ["gpu2"]
    assert machines(config, "home") == ["nas"]
    assert config.aliases == {"big": "A100", "small": "T4"}
    assert (config.defaults.time, config.defaults.retries) == ("2h", 2)
    assert config.defaults.env == {"A": "user", "B": "project"}
    assert (config.snapshot.limit_mb, config.snapshot.exclude) == (10, ["b"])
    assert sources == {
        "local": "",
        "lab": str(user_file),
        "home": str(user_file),
        "field": str(project / "towline.toml"),
    }


def test_changed_file_is_read_again(user_file: Path) -> None:
    user_file.write_text("[defaults]\nretries = 1\n")
    assert load_config(str(user_file)).defaults.retries == 1
    user_file.write_text("[defaults]\nretries = 23\n")
    assert load_config(str(user_file)).defaults.retries == 23
    user_file.unlink()
    assert load_config(str(user_file)).defaults.retries == 0


def test_world_readable_file_is_fine(user_file: Path) -> None:
    user_file.write_text("[defaults]\nretries = 1\n")
    user_file.chmod(0o644)
    assert stat.S_IMODE(user_file.stat().st_mode) == 0o644
    assert load_config(str(user_file)).defaults.retries == 1


def test_values_of_variables_do_not_show(user_file: Path) -> None:
    user_file.write_text('[defaults]\nenv = { TOKEN = "sesame" }\n')
    config = load_config(str(user_file))
    assert config.defaults.env == {"TOKEN": "sesame"}
    assert "sesame" not in repr(config)


def test_unknown_default_cluster_lists_the_clusters(user_file: Path) -> None:
    user_file.write_text('default_cluster = "lba"\n[clusters.lab]\nmachines = ["x"]\n')
    with pytest.raises(ConfigError) as caught:
        load_config(str(user_file))
    assert caught.value.text == (
        f"{user_file}: `default_cluster` names 'lba', which is not a cluster"
    )
    assert caught.value.hint == "Clusters: local, lab"


def test_one_name_for_two_machines_is_refused(user_file: Path) -> None:
    user_file.write_text(
        '[clusters.a]\nmachines = [{ ssh = "x", name = "m" }]\n'
        '[clusters.b]\nmachines = [{ ssh = "y", name = "m" }]\n'
    )
    with pytest.raises(ConfigError, match="the machine name 'm' stands for both x and y"):
        load_config(str(user_file))


@pytest.mark.parametrize("section", ["[engine]\ngrace_s = 1", "[cleanup]\nkeep_mb = 1"])
def test_what_the_engine_does_is_not_set_by_a_project(
    user_file: Path, project: Path, section: str
) -> None:
    (project / "towline.toml").write_text(f"{section}\n")
    with pytest.raises(ConfigError, match="` cannot be set here") as caught:
        load_config(str(user_file), str(project))
    assert str(user_file) in caught.value.hint


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        (
            'defualt_cluster = "x"',
            "`defualt_cluster` is not a setting; did you mean `default_cluster`?",
            f"Settings at the top: {settings_of(Config)}",
        ),
        (
            '[clusters.lab]\nmachine = ["a"]',
            "`clusters.lab.machine` is not a setting; did you mean `machines`?",
            f"Settings in [clusters.lab]: kind, {settings_of(MachinesCluster)}",
        ),
        (
            '[clusters.lab]\nmachines = [{ ssh = "a", cpu = 1 }]',
            "`clusters.lab.machines[0].cpu` is not a setting; did you mean `cpus`?",
            f"Settings in [clusters.lab.machines[0]]: {', '.join(MACHINE_SETTINGS)}",
        ),
        ("[clusters.lab]\nmachines = 'a'", "`clusters.lab.machines` must be a list, not", ""),
        ("[clusters.lab]\nmachines = [1]", "`clusters.lab.machines[0]` must be a text", ""),
        ("[clusters.lab]\nmachines = [{}]", "`clusters.lab.machines[0]` lacks the setting", ""),
        ("[clusters.lab]\nmachines = []", "`clusters.lab.machines` is empty", ""),
        ("[clusters.lab]\nmachines = ['a', 'a']", "`clusters.lab.machines[1]` names a a sec", ""),
        ("[clusters.lab]\nmachines = ['-x']", "`clusters.lab.machines[0]` is wrong: '-x'", None),
        (
            "[clusters.lab]\nmachines = [{ ssh = 'a', mem = '1Q' }]",
            "`clusters.lab.machines[0].mem` is wrong: '1Q' is not an amount of memory",
            None,
        ),
        (
            "[clusters.lab]\nmachines = [{ ssh = 'a', name = 'a b' }]",
            "`clusters.lab.machines[0].name` may have letters",
            "",
        ),
        ("[clusters.lab]\nkind = 'slrm'", "`clusters.lab.kind` must be one of machines, sl", ""),
        ("[clusters.lab]\nkind = ['slurm']", "`clusters.lab.kind` must be one of machines", ""),
        ("[clusters.'a b']\nmachines = ['a']", "`clusters.a b` is not a name", ""),
        ("clusters = 3", "`clusters` must be a table", ""),
        ("clusters.lab = 3", "`clusters.lab` must be a table", ""),
        ("defaults = 3", "`defaults` must be a table", ""),
        ("[clusters.s]\nkind = 'server'", "`clusters.s` lacks the setting `url`", ""),
        ("[clusters.s]\nkind = 'server'\nurl = 'x'", "`clusters.s.url` must start with http", ""),
        ("[clusters.s]\nkind = 'slurm'\nhost = '-x'", "`clusters.s.host` is wrong", None),
        ("[engine]\ngrace_s = 'x'", "`engine.grace_s` must be a number, not a text", ""),
        ("[engine]\nprobe_every_s = 0", "`engine.probe_every_s` is wrong", ""),
        ("[defaults]\ntime = 'soon'", "`defaults.time` is wrong: 'soon' is not a length", None),
        ("[defaults]\nrequest = '[,]'", "`defaults.request` is wrong: cannot read the req", None),
        ("[defaults]\nretries = -1", "`defaults.retries` is wrong", ""),
        ("[defaults]\nenv = { A = 1 }", "`defaults.env.A` must be a text in quotes, not a wh", ""),
        ("[defaults]\nenv = { 'A B' = '1' }", "`defaults.env.A B` is not the name of a vari", ""),
        (
            "[clusters.lab]\nmachines = [{ ssh = 'a', cpus = 1, max_cpus = 2 }]",
            "`clusters.lab.machines[0].cpus` is the older name of `max_cpus`, which is there as w",
            "",
        ),
        (
            "[clusters.lab]\nmachines = ['a']\nquiet_hours = '9-18'",
            "`clusters.lab.machines[0].quiet_hours` is wrong: '9-18' are no hours of a day or we",
            None,
        ),
        ("aliases = { a = 1 }", "`aliases.a` must be a text in quotes, not a whole number", ""),
        ("default_cluster = 1", "`default_cluster` must be a text in quotes", ""),
        ("[snapshot]\nexclude = [1]", "`snapshot.exclude[0]` must be a text in quotes", ""),
    ],
)
def test_mistake_is_named_with_file_and_key(text: str, problem: str, hint: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        check_text(text, "f.toml")
    assert caught.value.text.startswith(f"f.toml: {problem}")
    assert caught.value.hint == hint or (hint is None and caught.value.hint)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a = 1\nb = = 2\n", "f.toml, line 2, column 5: Invalid value\n  b = = 2\n      ^"),
        ("\tx = = 2", "f.toml, line 1, column 6: Invalid value\n   x = = 2\n       ^"),
        ("a = [", "f.toml, line 1, column 6: "),
    ],
)
def test_syntax_error_is_shown_with_line_and_caret(text: str, shown: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_text(text, "f.toml")
    assert caught.value.text.startswith(shown)
    line, caret = caught.value.text.split("\n")[1:]
    assert caret.strip() == "^" and len(caret) <= len(line) + 1


def test_unreadable_files_are_said(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b'a = "\xe9"')
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        load_config(str(tmp_path / "latin"))
    with pytest.raises(ConfigError, match="cannot read"):
        load_config(str(tmp_path))


def test_a_machine_has_its_own_pace_and_hours_or_those_of_its_cluster(user_file: Path) -> None:
    user_file.write_text(
        """
        [clusters.lab]
        machines = ["a", { ssh = "b", stagger = 0, quiet_hours = "" }, { ssh = "c", cpus = 3 }]
        stagger = 2
        quiet_hours = ["mon-fri 09:00-18:00", "sat,sun"]
        """
    )
    lab = load_config(str(user_file)).clusters["lab"]
    assert isinstance(lab, MachinesCluster)
    quiet = ["mon-fri 09:00-18:00", "sat,sun"]
    found = [(entry.stagger, entry.quiet_hours, entry.max_cpus) for entry in lab.entries()]
    assert found == [(2, quiet, None), (0, "", None), (2, quiet, 3)]


@pytest.mark.parametrize(
    ("name", "guess"),
    [("data/", "`data`"), ("./data", "`data`"), ("/abs", "`abs`"), ("..", ""), ("", ""),
     ("a//b", "`a/b`"), ("a/../b", "`a/b`")],
)  # fmt: skip
def test_a_link_whose_name_is_no_path_inside_the_folder_is_refused(name: str, guess: str) -> None:
    for kind in ('machines = ["this"]', 'kind = "slurm"\nhost = "login"'):
        with pytest.raises(ConfigError) as caught:
            check_text(f'[clusters.lab]\n{kind}\n[clusters.lab.links]\n"{name}" = "/d"', "f.toml")
        assert f'`clusters.lab.links."{name}"` is not the name of a link' in caught.value.text
        assert guess in caught.value.text
        assert "models/base.pt" in caught.value.hint


def test_a_link_leads_somewhere() -> None:
    good = 'links = { data = "/d", "models/base.pt" = "~/m" }'
    check_text(f'[clusters.lab]\nmachines = ["this"]\n{good}', "f.toml")
    with pytest.raises(ConfigError, match="does not say what the link leads to"):
        check_text('[clusters.lab]\nmachines = ["this"]\nlinks = { data = "" }', "f.toml")
