"""Which project files are trusted is remembered by path and by what they demand."""

import os
import stat
from pathlib import Path

import pytest

from towline.config.load import Configuration, project_of
from towline.config.trust import Trusted
from towline.errors import NotTrusted

SETUP = "[defaults]\nsetup = 'echo {}'\n"


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    return Configuration(
        str(tmp_path / "config.toml"), Trusted(str(tmp_path / "state" / "trusted"))
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "towline.toml").write_text(SETUP.format("one"))
    return folder


def is_trusted(configuration: Configuration, folder: Path) -> bool:
    try:
        configuration.in_folder(str(folder))
    except NotTrusted:
        return False
    return True


def test_trusted_file_counts_until_it_demands_something_else(
    configuration: Configuration, project: Path
) -> None:
    file = project / "towline.toml"
    assert not is_trusted(configuration, project)
    configuration.trusted.grant(project_of(str(project)))
    assert configuration.in_folder(str(project)).defaults.setup == "echo one"
    file.write_text("# a remark\n" + SETUP.format("one") + "[snapshot]\nexclude = ['a']\n")
    assert is_trusted(configuration, project)
    file.write_text(SETUP.format("another"))
    assert not is_trusted(configuration, project)
    file.write_text(SETUP.format("one"))
    assert is_trusted(configuration, project)


def test_same_file_elsewhere_is_not_trusted(
    configuration: Configuration, project: Path, tmp_path: Path
) -> None:
    configuration.trusted.grant(project_of(str(project)))
    other = tmp_path / "other"
    other.mkdir()
    (other / "towline.toml").write_text(SETUP.format("one"))
    assert not is_trusted(configuration, other)


def test_trust_is_taken_back_for_every_version_of_a_file(
    configuration: Configuration, project: Path
) -> None:
    trusted = configuration.trusted
    trusted.grant(project_of(str(project)))
    (project / "towline.toml").write_text(SETUP.format("second"))
    trusted.grant(project_of(str(project)))
    file = str(project / "towline.toml")
    assert [grant.file for grant in trusted.grants()] == [file, file]
    os.unlink(file)
    assert trusted.revoke(file) == 2
    assert trusted.grants() == []
    assert trusted.revoke(file) == 0


def test_what_is_trusted_only_the_user_can_write(
    configuration: Configuration, project: Path
) -> None:
    configuration.trusted.grant(project_of(str(project)))
    folder = Path(configuration.trusted.folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()] == [0o600]


def test_half_written_grant_grants_nothing(configuration: Configuration, project: Path) -> None:
    folder = Path(configuration.trusted.folder)
    folder.mkdir(parents=True)
    (folder / "abc.123").write_bytes(b'{"file": "/x')
    assert configuration.trusted.grants() == []
    assert not is_trusted(configuration, project)
