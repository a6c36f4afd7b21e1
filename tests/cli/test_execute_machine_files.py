"""Machine files of the ssh scheduler: where they are found, and what is wrong with them."""

from pathlib import Path
from typing import Any

import pytest

from towline.cli.compat.machine_files import read_machine
from towline.errors import TowlineError

KEY = "id_ssh_key"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder, beside an empty current one."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / KEY).write_text("secret")
    (tmp_path / "here").mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path / "here")
    return home


def machine(text: str) -> dict[str, Any]:
    Path("m.yaml").write_text(text)
    return read_machine("m.yaml")


def complaint(text: str) -> str:
    with pytest.raises(TowlineError) as caught:
        machine(text)
    assert caught.value.exit_code == 2
    assert caught.value.text.startswith("m.yaml")
    return caught.value.text


def test_all_settings_are_read(home: Path) -> None:
    found = machine(
        "username: ben       # Replace with your username on the machine\n"
        "ip: 105.29.123.241  # Replace with your machine's url or IP address\n"
        "port: 2222    # leave at default value of 22 unless you know what you are doing\n"
        f"ssh_key_path: ~/.ssh/{KEY}\n"
    )
    assert found == {"ssh": "ben@105.29.123.241:2222", "key": str(home / ".ssh" / KEY)}


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("ip: gpu1", "gpu1"),
        ("ip: gpu1\nusername: ben\nport: 22", "ben@gpu1"),
        ("ip: gpu1\nusername: 1234\nport: '23'", "1234@gpu1:23"),
        ("ip: '::1'\nusername: ben\nport: 23", "ben@[::1]:23"),
        ("ip: ' gpu1 '\nusername:", "gpu1"),
    ],
)
def test_what_is_left_out_is_up_to_ssh(text: str, target: str) -> None:
    assert machine(text) == {"ssh": target}


def test_files_are_found_as_given_with_yaml_and_in_the_shared_folder(home: Path) -> None:
    shared = home / ".local" / "var"
    shared.mkdir(parents=True)
    for place, host in (
        (Path("a"), "as-given"),
        (Path("a.yaml"), "with-yaml"),
        (Path("b.yaml"), "with-yaml"),
        (shared / "b", "shared"),
        (shared / "c", "shared"),
        (shared / "c.yaml", "shared-with-yaml"),
        (shared / "d.yaml", "shared-with-yaml"),
    ):
        place.write_text(f"ip: {host}")
    Path("d").mkdir()
    found = [read_machine(name)["ssh"] for name in "abcd"]
    assert found == ["as-given", "with-yaml", "shared", "shared-with-yaml"]


def test_missing_file_is_told_with_all_places(home: Path) -> None:
    with pytest.raises(TowlineError) as caught:
        read_machine("gpu9")
    assert caught.value.exit_code == 2
    for place in ("gpu9", "gpu9.yaml", f"{home}/.local/var/gpu9", f"{home}/.local/var/gpu9.yaml"):
        assert f" {place}," in caught.value.hint or f" {place};" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "holds no settings"),
        ("- a\n- b", "holds no settings"),
        ("username: ben", "lacks `ip`"),
        ("ip: gpu1\nuser_name: ben", "`user_name` is not a setting; did you mean `username`?"),
        ("ip: gpu1\npassword: x", "`password` is not a setting"),
        ("ip: 10.1", "`ip` must be a text"),
        ("ip: [gpu1]", "`ip` must be a text"),
        ("ip: gpu1\nport: 70000", "`port` must be a number from 1 to 65535"),
        ("ip: gpu1\nport: ssh", "`port` must be a number"),
        ("ip: gpu1\nport: true", "`port` must be a number"),
        ("ip: gpu1\nport: 0", "`port` must be a number"),
        ("ip: -oProxyCommand=x", "cannot be a machine"),
        ("ip: 'gpu1; reboot'", "cannot be a machine"),
        ("ip: gpu1\nssh_key_path: ~/.ssh/none", "there is no key file"),
        ("ip: gpu1\nssh_key_path: [a]", "`ssh_key_path` must be a text"),
        ("ip: gpu1\n  port: 22", "line 2"),
        ("ip: !!python/object/apply:os.system ['touch hit']", "line 1"),
        ("ip: 'gpu1", "line"),
    ],
)
def test_every_mistake_is_told_with_the_file(text: str, told: str) -> None:
    assert told in complaint(text)
    assert not Path("hit").exists()


def test_file_that_is_no_text_is_told() -> None:
    Path("m.yaml").write_bytes(b"ip: \xff\xfe\x00")
    with pytest.raises(TowlineError):
        read_machine("m.yaml")
