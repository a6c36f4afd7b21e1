"""Whether jobs end when their user logs out is told from systemd's configuration."""

from pathlib import Path

from towline.agent.remote.share import lingering


def put(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_only_where_it_is_switched_on_and_systemd_runs(tmp_path: Path) -> None:
    top = str(tmp_path)
    put(tmp_path / "etc/systemd/logind.conf", "[Login]\n#KillUserProcesses=no\n")
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    assert not lingering.ends_jobs(top, "me")
    put(tmp_path / "etc/systemd/logind.conf", "[Login]\nKillUserProcesses = yes\n")
    assert lingering.ends_jobs(top, "me")
    (tmp_path / "run/systemd/system").rmdir()
    assert not lingering.ends_jobs(top, "me")


def test_files_beside_the_main_one_win_by_name_and_place(tmp_path: Path) -> None:
    top = str(tmp_path)
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    put(tmp_path / "etc/systemd/logind.conf", "KillUserProcesses=no\n")
    put(tmp_path / "usr/lib/systemd/logind.conf.d/20-x.conf", "KillUserProcesses=yes\n")
    assert lingering.ends_jobs(top, "me")
    put(tmp_path / "etc/systemd/logind.conf.d/20-x.conf", "")
    assert not lingering.ends_jobs(top, "me")
    put(tmp_path / "run/systemd/logind.conf.d/90-y.conf", "KillUserProcesses=1\n")
    assert lingering.ends_jobs(top, "me")


def test_some_users_are_spared(tmp_path: Path) -> None:
    top = str(tmp_path)
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    put(tmp_path / "etc/systemd/logind.conf", "KillUserProcesses=yes\nKillOnlyUsers=me you\n")
    assert (
        lingering.ends_jobs(top, "me")
        and not lingering.ends_jobs(top, "root")
        and not lingering.ends_jobs(top, "other")
    )
    put(tmp_path / "var/lib/systemd/linger/me")
    assert not lingering.ends_jobs(top, "me") and lingering.ends_jobs(top, "you")
